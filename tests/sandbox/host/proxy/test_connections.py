"""The proxy with real connections: servers on loopback, with a resolver and a rule for addresses of the test."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fidelio.sandbox.directory import PROXY_SOCKET, create_directory, host_uid
from fidelio.sandbox.host.proxy.addresses import Address
from fidelio.sandbox.host.proxy.server import ConnectionLogs, ProxyLimits, ProxyOptions, SandboxProxy, Streams
from fidelio.sandbox.model import ConnectionEntry, Network, SandboxSpec
from tests.sandbox.host.fakes import connect_socket
from tests.sandbox.host.proxy.test_rules import client_hello
from tests.support import proves

PUBLIC, PRIVATE = ipaddress.ip_address("127.0.0.2"), ipaddress.ip_address("127.0.0.3")
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


class Internet:
    """Servers by address, and the answers of the name server, which may change with every query."""

    def __init__(self) -> None:
        self.names: dict[str, list[Sequence[Address]]] = {}
        self.queries: list[str] = []
        self.connected: list[Address] = []
        self.ports: dict[Address, int] = {}

    async def resolve(self, name: str, _: int) -> Sequence[Address]:
        self.queries.append(name)
        answers = self.names.get(name)
        if not answers:
            raise OSError("no such name")
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def connect(self, address: Address, _: int) -> Streams:
        self.connected.append(address)
        return await asyncio.open_connection(str(address), self.ports[address])


class ProxyHarness:
    """A sandbox directory with a proxy, and a client at its socket."""

    def __init__(self, home: Path) -> None:
        self.directory, self.internet = create_directory(home), Internet()
        self.logs = ConnectionLogs()
        self.received = bytearray()

    @asynccontextmanager
    async def serving(
        self, network: Network = "limited", hosts: tuple[str, ...] = ("example.org",), **limits: Any
    ) -> AsyncIterator[None]:
        spec = SandboxSpec("s_1", str(self.directory), (), network=network, hosts=hosts)
        options = ProxyOptions(
            resolve=self.internet.resolve,
            connect=self.internet.connect,
            is_public=lambda address: address != PRIVATE,
            limits=ProxyLimits(**limits),
        )
        async with asyncio.timeout(30), SandboxProxy(spec, self.logs.open("s_1"), options):
            yield

    @asynccontextmanager
    async def server(self, handler: Handler | None = None, address: Address = PUBLIC) -> AsyncIterator[None]:
        """A server that echoes, or does what the handler does."""
        server = await asyncio.start_server(handler or self.echo, str(address), 0)
        self.internet.ports[address] = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    async def echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                self.received += data
                writer.write(data)
                await writer.drain()
        writer.close()

    async def ask(self, data: bytes) -> bytes:
        """Send, and read until the proxy closes."""
        async with self.connection() as (reader, writer):
            writer.write(data)
            return await self.read_all(reader)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Streams]:
        reader, writer = await connect_socket(self.directory / PROXY_SOCKET)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def read_all(self, reader: asyncio.StreamReader) -> bytes:
        data = b""
        with suppress(ConnectionError):
            async with asyncio.timeout(20):
                while chunk := await reader.read(65_536):
                    data += chunk
        return data

    async def entries(self, count: int = 1) -> list[ConnectionEntry]:
        async with asyncio.timeout(10):
            while len(found := self.logs.read("s_1", 0, "").entries) < count:  # noqa: ASYNC110  # written by another task
                await asyncio.sleep(0.01)
        return list(found)


@pytest.fixture
def proxy(tmp_path: Path) -> ProxyHarness:
    harness = ProxyHarness(tmp_path)
    harness.internet.names["example.org"] = [[PUBLIC]]
    return harness


CONNECT = b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n"


async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> bytes:
    """Open a tunnel and send the first bytes; the reply to them, of at least one byte unless it is refused."""
    writer.write(CONNECT)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    writer.write(data)
    return await reader.read(65_536)


@proves("sandbox.proxy-server-name", "sandbox.proxy-log")
async def test_a_tunnel_carries_bytes_to_the_host_that_both_names_say(proxy: ProxyHarness) -> None:
    hello = client_hello("example.org")
    async with proxy.server(), proxy.serving():
        async with proxy.connection() as (reader, writer):
            assert await tunnel(reader, writer, hello) == hello
            writer.write(b"more")
            assert await reader.readexactly(4) == b"more"
            writer.write_eof()
            assert await proxy.read_all(reader) == b""
        (entry,) = await proxy.entries()

    total = len(hello) + 4
    assert (entry.host, entry.port, entry.verdict, entry.reason) == ("example.org", 443, "allowed", "")
    assert (entry.sent, entry.received) == (total, total)


@proves("sandbox.proxy-server-name")
@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (client_hello("other.org"), "server_name"),
        (client_hello("sub.example.org"), "server_name"),
        (client_hello(None), "server_name"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "not_tls"),
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "not_tls"),
        (b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", "not_tls"),
    ],
    ids=["other", "subdomain", "none", "ssh", "http", "server-hello"],
)
async def test_a_tunnel_whose_first_bytes_name_another_host_carries_nothing(
    proxy: ProxyHarness, first: bytes, reason: str
) -> None:
    async with proxy.server(), proxy.serving(), proxy.connection() as (reader, writer):
        reply = await tunnel(reader, writer, first)
        (entry,) = await proxy.entries()

    assert reply == bytes((21, 3, 1, 0, 2, 2, 112))
    assert (entry.host, entry.verdict, entry.reason, entry.sent) == ("example.org", "refused", reason, 0)
    assert proxy.received == b""


@proves("sandbox.proxy-names")
async def test_only_listed_hosts_are_looked_up_in_a_limited_network(proxy: ProxyHarness) -> None:
    proxy.internet.names["other.org"] = [[PUBLIC]]
    async with proxy.server(), proxy.serving():
        reply = await proxy.ask(CONNECT.replace(b"example", b"other"))
        (entry,) = await proxy.entries()

    assert reply.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert reply.endswith(b"other.org is not one of the hosts of this environment.\n")
    assert (entry.host, entry.port, entry.verdict, entry.reason) == ("other.org", 443, "refused", "host")
    # Its name could carry data to a name server.
    assert proxy.internet.queries == []


@proves("sandbox.proxy-names")
async def test_an_unrestricted_network_reaches_any_public_host(proxy: ProxyHarness) -> None:
    proxy.internet.names |= {"other.org": [[PUBLIC]], "inside.org": [[PRIVATE]]}

    async def repeat_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with proxy.server(repeat_head), proxy.serving("unrestricted", ()):
        reply = await proxy.ask(b"GET http://other.org/ HTTP/1.1\r\nHost: other.org\r\n\r\n")
        refused = await proxy.ask(CONNECT.replace(b"example", b"inside"))
        _, entry = await proxy.entries(2)

    assert reply.startswith(b"GET / HTTP/1.1\r\nhost: other.org")
    assert refused.startswith(b"HTTP/1.1 403 ")
    assert (entry.host, entry.verdict, entry.reason) == ("inside.org", "refused", "private_address")


@proves("sandbox.proxy-rebinding")
async def test_the_address_that_was_checked_is_the_one_that_is_used(proxy: ProxyHarness) -> None:
    # The second answer of the name server leads inside.
    proxy.internet.names["example.org"] = [[PUBLIC], [PRIVATE]]
    async with proxy.server(), proxy.server(address=PRIVATE), proxy.serving():
        async with proxy.connection() as (reader, writer):
            assert await tunnel(reader, writer, client_hello("example.org"))
        assert proxy.internet.connected == [PUBLIC]
        assert proxy.internet.queries == ["example.org"]

        reply = await proxy.ask(CONNECT)

    assert reply.startswith(b"HTTP/1.1 403 ")
    assert proxy.internet.connected == [PUBLIC]


@proves("sandbox.proxy-rebinding")
async def test_of_several_addresses_only_the_public_ones_are_tried(proxy: ProxyHarness) -> None:
    closed = ipaddress.ip_address("127.0.0.4")
    proxy.internet.names["example.org"] = [[PRIVATE, closed, PUBLIC]]
    async with proxy.server(), proxy.serving(), proxy.connection() as (reader, writer):
        proxy.internet.ports[closed] = 1
        assert await tunnel(reader, writer, client_hello("example.org"))

    assert proxy.internet.connected == [closed, PUBLIC]


@proves("sandbox.proxy-log")
async def test_a_host_that_cannot_be_reached_is_logged_as_failed(proxy: ProxyHarness) -> None:
    proxy.internet.ports[PUBLIC] = 1
    async with proxy.serving(hosts=("example.org", "missing.org")):
        unreachable = await proxy.ask(CONNECT)
        unknown = await proxy.ask(CONNECT.replace(b"example", b"missing"))
        first, second = await proxy.entries(2)

    assert unreachable.startswith(b"HTTP/1.1 502 ")
    assert unknown.startswith(b"HTTP/1.1 502 ")
    assert (first.verdict, first.reason) == ("failed", "connect")
    assert (second.verdict, second.reason) == ("failed", "resolve")


@proves("sandbox.proxy-requests")
async def test_a_second_request_in_the_same_connection_is_not_forwarded(proxy: ProxyHarness) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        proxy.received += await reader.readuntil(b"body")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                proxy.received += await reader.read(100)
        writer.close()

    plain = b"POST http://example.org/a HTTP/1.1\r\nHost: example.org\r\nContent-Length: 4\r\n\r\nbody"
    async with proxy.server(answer), proxy.serving():
        reply = await proxy.ask(plain + plain.replace(b"example.org", b"internal.org"))
        (entry,) = await proxy.entries()

    assert reply.endswith(b"ok")
    assert proxy.received.endswith(b"\r\n\r\nbody")
    assert b"internal.org" not in proxy.received
    assert (entry.port, entry.verdict, entry.received) == (80, "allowed", len(reply))


@proves("sandbox.proxy-requests")
async def test_a_client_that_leaves_ends_its_request(proxy: ProxyHarness) -> None:
    ended = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        ended.set()

    async with proxy.server(never_answer), proxy.serving():
        async with proxy.connection() as (_, writer):
            writer.write(b"GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n")
            await writer.drain()
        await proxy.entries()
        await ended.wait()


@proves("sandbox.proxy-bytes")
async def test_a_connection_that_transfers_too_much_is_cut(proxy: ProxyHarness) -> None:
    hello = client_hello("example.org")
    async with proxy.server(), proxy.serving(connection_bytes=100_000), proxy.connection() as (reader, writer):
        await tunnel(reader, writer, hello)
        writer.write(b"x" * 200_000)
        await proxy.read_all(reader)
        (entry,) = await proxy.entries()

    assert (entry.verdict, entry.reason) == ("capped", "connection_bytes")
    assert entry.sent + entry.received <= 100_000
    assert len(proxy.received) <= 100_000


@proves("sandbox.proxy-bytes")
async def test_the_bytes_of_a_session_count_over_its_connections_and_sandboxes(proxy: ProxyHarness) -> None:
    hello = client_hello("example.org")
    async with proxy.server():
        for _ in range(2):
            async with proxy.serving(session_bytes=3 * len(hello)), proxy.connection() as (reader, writer):
                await tunnel(reader, writer, hello)
        first, second = await proxy.entries(2)

    assert (first.verdict, first.sent, first.received) == ("allowed", len(hello), len(hello))
    assert (second.verdict, second.reason) == ("capped", "session_bytes")


@proves("sandbox.proxy-bytes")
async def test_a_client_that_says_nothing_is_cut_and_many_connections_are_refused(proxy: ProxyHarness) -> None:
    async with proxy.serving(request_seconds=0.2, connections=2):
        async with proxy.connection() as (first, _), proxy.connection() as (second, _):
            async with proxy.connection() as (third, _):
                assert await proxy.read_all(third) == b""
            assert await proxy.read_all(first) == await proxy.read_all(second) == b""
        entries = await proxy.entries(2)

    assert [(entry.verdict, entry.reason) for entry in entries] == [("refused", "timeout")] * 2


@proves("sandbox.proxy-bytes")
async def test_a_tunnel_without_traffic_is_closed(proxy: ProxyHarness) -> None:
    async with proxy.server(), proxy.serving(idle_seconds=0.2), proxy.connection() as (reader, writer):
        await tunnel(reader, writer, client_hello("example.org"))
        assert await proxy.read_all(reader) == b""
        (entry,) = await proxy.entries()

    assert (entry.verdict, entry.reason) == ("allowed", "timeout")


@proves("sandbox.proxy-requests")
async def test_a_head_that_never_ends_is_refused(proxy: ProxyHarness) -> None:
    async with proxy.serving():
        reply = await proxy.ask(b"GET http://example.org/ HTTP/1.1\r\n" + b"X: " + b"y" * 100_000)

    assert reply.startswith(b"HTTP/1.1 431 ")


@proves("sandbox.proxy-log")
async def test_the_log_is_read_in_pages_and_says_what_it_dropped(proxy: ProxyHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxy.serving(hosts=()):
        for _ in range(3):
            await proxy.ask(CONNECT)
    page = proxy.logs.read("s_1", 1, "")
    other = proxy.logs.read("s_1", 1, "log_of_another_host")

    assert [entry.number for entry in page.entries] == [2, 3]
    assert [entry.number for entry in other.entries] == [1, 2, 3]
    assert page.missed == 0
    log = proxy.logs.open("s_1")
    log._entries.popleft()
    assert proxy.logs.read("s_1", 0, "").missed == 1
    assert proxy.logs.read("s_2", 0, "").entries == ()


@proves("sandbox.proxy-socket")
async def test_the_socket_belongs_to_the_user_of_the_sandbox_and_ends_with_it(proxy: ProxyHarness) -> None:
    path = proxy.directory / PROXY_SOCKET
    async with proxy.server(), proxy.serving():
        assert (path.stat().st_mode & 0o777, path.stat().st_uid) == (0o600, host_uid(proxy.directory))
        reader, writer = await connect_socket(path)
        await tunnel(reader, writer, client_hello("example.org"))

    # Its connections end with the sandbox and are logged.
    assert not path.exists()
    assert await proxy.read_all(reader) == b""
    writer.transport.abort()
    assert [entry.verdict for entry in await proxy.entries()] == ["allowed"]
