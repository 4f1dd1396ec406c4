"""The HTTP front: who gets in, what kind of reply a client gets, and how the server starts and stops."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from typing import Any

import httpx2
import pytest

from fidelio.errors import UsageProblem
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.guard import is_loopback
from fidelio.surfaces.http.limits import MAX_BODY
from fidelio.surfaces.http.serving import open_listener, serve_http
from tests.support import proves
from tests.surfaces.mcp.example import ExampleTools, protocol
from tests.surfaces.mcp.serving import ACCEPT, Served, served
from tests.surfaces.mcp.wire import ASKABLE, META, SECONDS, call, initialize, request

TOKEN = "a token for tests"


async def health(server: Served, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=SECONDS) as client:
        return await client.get(f"{server.address}/health", headers=headers)


@proves("mcp.http-guard")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost"}, 200),
        ({"Host": "localhost:9"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Host": "LOCALHOST"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost.evil.example"}, 421),
        ({"Host": "192.168.0.1"}, 421),
        ({"Host": "user@localhost:80@evil.example"}, 421),
        ({"Host": "[:"}, 421),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Origin": "http://127.0.0.1"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
    ],
)
async def test_a_foreign_host_or_origin_gets_no_reply(headers: dict[str, str], status: int) -> None:
    async with served() as server:
        assert (await health(server, **headers)).status_code == status
        assert (await server.post(initialize(), **headers)).status_code == status


@proves("mcp.http-plain")
async def test_a_slash_at_the_end_of_the_address_does_no_harm() -> None:
    async with served() as server, httpx2.AsyncClient(timeout=SECONDS, follow_redirects=True) as client:
        reply = await client.post(f"{server.url}/", json=initialize(), headers=ACCEPT)
        assert reply.json()["result"]["serverInfo"]["name"] == "example"


@proves("mcp.http-guard")
async def test_a_name_that_was_allowed_is_served() -> None:
    async with served(allowed_hosts=["fidelio.example"]) as server:
        assert (await health(server, Host="fidelio.example:443")).status_code == 200
        assert (await health(server, Host="other.example")).status_code == 421


@proves("mcp.http-token")
@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        ("", 401),
        ("Bearer", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Basic {TOKEN}", 401),
        (TOKEN, 401),
        ("Bearer \xe9", 401),
    ],
)
async def test_with_a_token_only_who_knows_it_gets_in(authorization: str, status: int) -> None:
    async with served("0.0.0.0", bearer_token=TOKEN) as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        given = {b"Authorization": authorization.encode("latin-1"), b"Accept": b"application/json"}
        async with httpx2.AsyncClient(timeout=SECONDS) as client:
            reply = await client.post(url, json=initialize(), headers=given)

    assert reply.status_code == status
    assert ("WWW-Authenticate" in reply.headers) is (status == 401)


@proves("mcp.http-token")
@pytest.mark.parametrize("token", ["tökén", "a\nb", " a", "a\x00"])
async def test_a_token_that_clients_would_send_in_different_ways_is_refused(token: str) -> None:
    with pytest.raises(UsageProblem, match="printable ASCII"):
        async with served(bearer_token=token):
            pass


@proves("mcp.http-token")
async def test_beyond_this_machine_a_token_is_needed() -> None:
    app = create_app({"/mcp": protocol(ExampleTools())})

    with pytest.raises(UsageProblem, match="would let other machines in"):
        await serve_http(app, "0.0.0.0", 0)


@proves("mcp.http-token", "mcp.http-guard")
async def test_with_a_token_an_address_is_as_good_as_a_name() -> None:
    async with served(bearer_token=TOKEN) as server:
        assert (await health(server, Host="192.168.0.1")).status_code == 200
        assert (await health(server, Host=socket.gethostname())).status_code == 200
        assert (await health(server, Host="evil.example")).status_code == 421


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("a.b", False),
        ("", False),
    ],
)
@proves("mcp.http-token")
def test_what_counts_as_this_machine(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@proves("mcp.http-health")
async def test_a_monitor_needs_no_token() -> None:
    async with served(bearer_token=TOKEN) as server:
        assert (await health(server)).json() == {"status": "ok"}


@proves("mcp.http-plain")
async def test_replies_are_plain_json_and_nothing_is_kept_between_requests() -> None:
    async with served() as server:
        handshake = await server.post(initialize())
        called = await server.post(call(1, "echo", {"text": "x"}), **{"MCP-Protocol-Version": "2025-11-25"})
        stateless = await server.ask_stateless(call(2, "echo", {"text": "x"}, _meta=META))

        for reply in (handshake, called, stateless):
            assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
            assert "mcp-session-id" not in reply.headers


@proves("mcp.http-plain", "mcp.elicitation")
async def test_who_can_be_asked_gets_a_session_and_a_stream() -> None:
    async with served() as server:
        reply = await server.post(initialize(elicitation={}))

        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.headers["mcp-session-id"]


@proves("mcp.progress")
async def test_progress_without_a_handshake_comes_as_a_stream() -> None:
    async with served() as server:
        wanted = call(1, "count", {"steps": 2}, _meta={**META, "progressToken": "p"})
        reply = await server.ask_stateless(wanted)

        told = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ")]
        assert [message.get("method") for message in told] == ["notifications/progress"] * 2 + [None]


@proves("mcp.http-plain")
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_without_a_session_there_is_only_post(method: str) -> None:
    async with served() as server, httpx2.AsyncClient(timeout=SECONDS) as client:
        reply = await client.request(method, server.url, headers={"Accept": "text/event-stream"})

        assert (reply.status_code, reply.headers["allow"]) == (405, "POST")


@proves("mcp.hostile", "mcp.bounded")
@pytest.mark.parametrize("revision", [{}, {"MCP-Protocol-Version": "2025-11-25"}, {"MCP-Protocol-Version": "2026-07-28"}])
@pytest.mark.parametrize(
    "body", [b"garbage", b"", b"[" * 100_000, b"\xff", b"7", b"[]", b'{"jsonrpc":"2.0","id":1,"method":"initialize"}']
)
async def test_a_broken_body_is_refused_and_the_next_request_is_served(body: bytes, revision: dict[str, str]) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **revision}
    async with served() as server, httpx2.AsyncClient(timeout=SECONDS) as client:
        refused = await client.post(server.url, content=body, headers=headers)

        assert refused.status_code in {200, 400}
        assert "error" in refused.json()
        assert (await server.ask_stateless(request(1, "tools/list", _meta=META))).status_code == 200


@proves("mcp.bounded")
async def test_a_body_that_is_too_long_is_refused() -> None:
    async with served() as server, httpx2.AsyncClient(timeout=SECONDS) as client:
        reply = await client.post(server.url, content=b"x" * (MAX_BODY + 1), headers={"Content-Type": "application/json"})

        assert reply.status_code == 413


@proves("mcp.request-state")
async def test_a_bad_state_is_a_protocol_error_over_http_too() -> None:
    async with served() as server:
        reply = await server.ask_stateless(call(1, "choose", _meta=ASKABLE, requestState="forged", inputResponses={}))

        assert reply.json()["error"]["code"] == -32602


@proves("mcp.http-quick")
def test_a_reply_is_not_held_back_by_the_network() -> None:
    with open_listener("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP  # asyncio turns the delay off for these only


@proves("mcp.http-port")
def test_a_port_in_use_is_named_with_a_way_out() -> None:
    with open_listener("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UsageProblem, match=rf"Port {port} on 127.0.0.1 is in use. Stop the program that uses it, or choose"
        ):
            open_listener("127.0.0.1", port).__enter__()


@proves("mcp.http-port")
@pytest.mark.parametrize(("host", "port"), [("no.such.host.invalid", 0), ("127.0.0.1", 70_000), ("203.0.113.1", 0)])
def test_an_address_that_is_not_ours_is_named(host: str, port: int) -> None:
    with pytest.raises(UsageProblem, match="Cannot listen on"):
        open_listener(host, port).__enter__()


@proves("mcp.http-stop")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_cleanly_even_with_a_stream_open(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "tests.surfaces.mcp.http_example"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        with httpx2.Client(timeout=SECONDS) as client:
            accept = {"Accept": "application/json, text/event-stream"}
            started = client.post(f"{address}/mcp", json=initialize(elicitation={}), headers=accept)
            session = {"mcp-session-id": started.headers["mcp-session-id"], **accept}
            with client.stream("GET", f"{address}/mcp", headers=session) as stream:
                assert stream.status_code == 200
                server.send_signal(number)
                assert server.wait(timeout=SECONDS) == 128 + number
        assert server.stdout.read() == "closed cleanly\n"


@proves("mcp.http-stop")
async def test_a_cancelled_server_gives_its_port_back() -> None:
    async with served() as server:
        port = int(server.address.rpartition(":")[2])
    with open_listener("127.0.0.1", port):
        pass


@proves("mcp.in-flight")
async def test_calls_of_several_clients_do_not_wait_for_each_other() -> None:
    async with served() as server:
        late = asyncio.create_task(server.ask_stateless(call(1, "later", {"seconds": 0.3}, _meta=META)))
        quick: Any = await server.ask_stateless(call(2, "echo", {"text": "quick"}, _meta=META))

        assert not late.done()
        assert quick.json()["result"]["content"][0]["text"] == "quick"
        assert (await late).json()["id"] == 1
