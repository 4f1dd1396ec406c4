"""The proxy of a sandbox, on a unix socket in its directory.

It decides by the host name, resolves it itself, connects to an address that it has checked, and in a tunnel lets bytes through
only after the ClientHello has named the same host. Every connection ends in the log, the refused ones too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

import msgspec

from fidelio.clock import Clock, now_ms
from fidelio.ids import new_id
from fidelio.retry import cancel_tasks, restart_on_failure
from fidelio.sandbox.directory import PROXY_SOCKET, host_uid
from fidelio.sandbox.host.listening import accept_connections, open_listener, remove_socket
from fidelio.sandbox.host.proxy.addresses import Address, IsPublic, Resolve, is_listed, is_public, resolve
from fidelio.sandbox.host.proxy.hello import MAX_HELLO, ClientHello, HelloProblem, read_hello
from fidelio.sandbox.host.proxy.requests import MAX_HEAD, ProxyRequest, RequestProblem, parse_request
from fidelio.sandbox.model import ConnectionEntry, ConnectionPage, SandboxSpec, Verdict

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect: TypeAlias = Callable[[Address, int], Awaitable[Streams]]

_CHUNK = 64 << 10
_MAX_ADDRESSES = 4
_MAX_ENTRIES = 1_000
_MAX_LOGS = 1_024
_FLUSH_SECONDS = 5.0
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
# A fatal alert, unrecognized_name (RFC 6066 3): the client says what is wrong instead of that the connection broke.
_ALERT = bytes((21, 3, 1, 0, 2, 2, 112))


class ProxyLimits(NamedTuple):
    """Connections at once, bytes of a connection and of a session in both directions, and the time limit of each phase."""

    connections: int = 64
    connection_bytes: int = 1 << 30
    session_bytes: int = 8 << 30
    request_seconds: float = 10.0
    connect_seconds: float = 10.0
    idle_seconds: float = 300.0


async def open_connection(address: Address, port: int) -> Streams:
    """Connect to an address. It is numeric, so no name is resolved."""
    return await asyncio.open_connection(str(address), port, limit=_CHUNK)


class ProxyOptions(msgspec.Struct, frozen=True):
    """How the proxy resolves and connects; tests replace it, because they must stay on the machine."""

    resolve: Resolve = resolve
    is_public: IsPublic = is_public
    connect: Connect = open_connection
    limits: ProxyLimits = ProxyLimits()
    clock: Clock = now_ms


class ConnectionLog:
    """The ended connections of a session, the oldest dropped. `bytes` counts what it has transferred in all."""

    def __init__(self) -> None:
        self._entries: deque[ConnectionEntry] = deque(maxlen=_MAX_ENTRIES)
        self._last = 0
        self.bytes = 0

    def add(self, link: _Link, at: int) -> None:
        self._last += 1
        entry = ConnectionEntry(
            self._last, at, link.host, link.port, link.verdict, link.reason, sent=link.sent, received=link.received
        )
        self._entries.append(entry)

    def read(self, after: int) -> tuple[tuple[ConnectionEntry, ...], int]:
        """The entries after a number, and how many of them were dropped."""
        found = tuple(entry for entry in self._entries if entry.number > after)
        first = found[0].number if found else self._last + 1
        return found, max(0, first - after - 1)


class ConnectionLogs:
    """The logs of all sessions of a host."""

    def __init__(self) -> None:
        self._id = new_id("log_")
        self._logs: dict[str, ConnectionLog] = {}

    def open(self, session: str) -> ConnectionLog:
        # The one that was used last is at the end, and the first is dropped.
        log = self._logs.pop(session, None) or ConnectionLog()
        self._logs[session] = log
        if len(self._logs) > _MAX_LOGS:
            del self._logs[next(iter(self._logs))]
        return log

    def read(self, session: str, after: int, log: str) -> ConnectionPage:
        known = self._logs.get(session)
        entries, missed = known.read(after if log in ("", self._id) else 0) if known is not None else ((), 0)
        return ConnectionPage(self._id, entries, missed)


class _Link:
    """A connection, with what is to be logged of it."""

    def __init__(self, log: ConnectionLog, limits: ProxyLimits) -> None:
        self.host, self.port = "", 0
        self.verdict: Verdict = "refused"
        self.reason = "no_request"
        self.sent = self.received = 0
        self._log, self._limits = log, limits

    def decide(self, verdict: Verdict, reason: str = "") -> None:
        self.verdict, self.reason = verdict, reason

    def count(self, size: int, *, is_sent: bool) -> None:
        """Count bytes before they are forwarded. Raises `_CapReached`."""
        used = self.sent + self.received + size
        if used > self._limits.connection_bytes:
            raise _CapReached("connection_bytes")
        if self._log.bytes + size > self._limits.session_bytes:
            raise _CapReached("session_bytes")
        self._log.bytes += size
        if is_sent:
            self.sent += size
        else:
            self.received += size


class _CapReached(Exception):
    """A connection has transferred as much as it may. The text is the reason in the log."""


class SandboxProxy:
    """`async with SandboxProxy(spec, log, options):` serves the socket of a sandbox for as long as the block lasts."""

    def __init__(self, spec: SandboxSpec, log: ConnectionLog, options: ProxyOptions) -> None:
        self._spec, self._log, self._options = spec, log, options
        self._directory = Path(spec.directory)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._listener = open_listener(self._directory, PROXY_SOCKET, owner=host_uid(self._directory))
        self._identity = (self._directory / PROXY_SOCKET).lstat()
        name = f"The proxy of the sandbox {self._spec.session}"
        self._accepting = asyncio.create_task(restart_on_failure(self._accept, name=name, until=self._ending))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        await cancel_tasks(self._accepting, *self._tasks)
        self._listener.close()
        remove_socket(self._directory, PROXY_SOCKET, self._identity)

    async def _accept(self) -> None:
        await accept_connections(self._listener, self._make_protocol)

    def _make_protocol(self) -> asyncio.BaseProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=_CHUNK), self._begin)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= self._options.limits.connections:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link, at = _Link(self._log, self._options.limits), self._options.clock()
        try:
            await self._handle(link, reader, writer)
        except RequestProblem as problem:
            link.host, link.port = problem.host or link.host, problem.port or link.port
            link.decide("failed" if problem.status >= 500 else "refused", problem.reason)
            await _reply(writer, problem)
        except _CapReached as cap:
            link.decide("capped", str(cap))
        except TimeoutError:
            link.decide(link.verdict, "timeout")
        except (OSError, EOFError):
            # Either side has ended the connection.
            pass
        finally:
            self._log.add(link, at)
            await _close(writer)

    async def _handle(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        limits = self._options.limits
        async with asyncio.timeout(limits.request_seconds):
            request = parse_request(await _read_head(reader))
        link.host, link.port = request.host, request.port
        upstream_reader, upstream = await self._open(request)
        try:
            link.decide("allowed")
            if request.kind == "tunnel":
                first = await self._start_tunnel(request, link, reader, writer)
            else:
                first = request.head
            link.count(len(first), is_sent=True)
            upstream.write(first)
            body = None if request.kind == "tunnel" else request.length
            await _relay(link, (reader, writer), (upstream_reader, upstream), body, limits.idle_seconds)
        finally:
            upstream.transport.abort()

    async def _open(self, request: ProxyRequest) -> Streams:
        """Connect to a checked address of the host."""
        if self._spec.network == "limited" and not is_listed(request.host, self._spec.hosts):
            raise RequestProblem("host", f"{request.host} is not one of the hosts of this environment.")
        addresses = await self._resolve(request)
        for address in addresses[:_MAX_ADDRESSES]:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._options.limits.connect_seconds):
                    return await self._options.connect(address, request.port)
        raise RequestProblem("connect", f"{request.host} cannot be reached.", status=502)

    async def _resolve(self, request: ProxyRequest) -> Sequence[Address]:
        try:
            async with asyncio.timeout(self._options.limits.connect_seconds):
                found = await self._options.resolve(request.host, request.port)
        except (OSError, TimeoutError, UnicodeError) as error:
            raise RequestProblem("resolve", f"{request.host} has no address.", status=502) from error
        allowed = [address for address in found if self._options.is_public(address)]
        if not allowed:
            raise RequestProblem("private_address", f"{request.host} has no public address.")
        return allowed

    async def _start_tunnel(
        self, request: ProxyRequest, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        """The first bytes of a tunnel, once they name the host of its CONNECT."""
        writer.write(_ESTABLISHED)
        problem, data = "", b""
        async with asyncio.timeout(self._options.limits.request_seconds):
            try:
                hello, data = await _read_hello(reader)
            except HelloProblem:
                problem = "not_tls"
            else:
                if hello.name.removesuffix(".") != request.host:
                    problem = "server_name"
                elif hello.is_encrypted and self._spec.network == "limited":
                    # The real name may be another one at the same provider.
                    problem = "encrypted_hello"
        if problem:
            link.decide("refused", problem)
            writer.write(_ALERT)
            raise EOFError(problem)
        return data


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise RequestProblem("malformed", "The head of the request is too long.", status=431) from error
    if len(head) > MAX_HEAD:
        raise RequestProblem("malformed", "The head of the request is too long.", status=431)
    return head[:-4]


async def _read_hello(reader: asyncio.StreamReader) -> tuple[ClientHello, bytes]:
    data = b""
    while len(data) <= 2 * MAX_HELLO:
        chunk = await reader.read(_CHUNK)
        if not chunk:
            raise HelloProblem("the connection ended before the ClientHello")
        data += chunk
        if (hello := read_hello(data)) is not None:
            return hello, data
    raise HelloProblem("the ClientHello is too long")


async def _relay(link: _Link, client: Streams, server: Streams, body: int | None, idle_seconds: float) -> None:
    """Forward in both directions. `body`: forward only so many bytes of the client; None: everything."""
    loop = asyncio.get_running_loop()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None, *, is_sent: bool) -> None:
        while left is None or left > 0:
            data = await reader.read(_CHUNK if left is None else min(_CHUNK, left))
            if not data:
                break
            left = None if left is None else left - len(data)
            link.count(len(data), is_sent=is_sent)
            deadline.reschedule(loop.time() + idle_seconds)
            writer.write(data)
            await writer.drain()
        if left is None:
            writer.write_eof()
        elif not await reader.read(1):
            # Nobody is left to read the answer. Anything else than the end is a second request, which is never forwarded.
            raise EOFError("The client has closed the connection.")

    async with asyncio.timeout(idle_seconds) as deadline:
        upward = asyncio.create_task(pump(client[0], server[1], body, is_sent=True))
        downward = asyncio.create_task(pump(server[0], client[1], None, is_sent=False))
        running = {upward, downward}
        try:
            while running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if body is not None and downward in done:
                    # The server has answered the request. The rest of the body is of no use.
                    return
        finally:
            await cancel_tasks(upward, downward)


async def _reply(writer: asyncio.StreamWriter, problem: RequestProblem) -> None:
    text = f"{problem}\n".encode()
    head = (
        f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(text)}\r\nfidelio-reason: {problem.reason}\r\nconnection: close\r\n\r\n"
    )
    with suppress(OSError):
        writer.write(head.encode() + text)
        await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close the connection to the sandbox after it has read what was sent, within a bound."""
    writer.close()
    try:
        async with asyncio.timeout(_FLUSH_SECONDS):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()
