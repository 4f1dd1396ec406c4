"""Single calls over HTTP: the short way gives the reply of the long way, and takes nothing that is not plain."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from fidelio.surfaces.http import single
from fidelio.surfaces.http.single import Single, Singles
from tests.support import proves
from tests.surfaces.mcp.serving import ACCEPT, Served, served
from tests.surfaces.mcp.wire import META, SECONDS, call, notification, request

OLD = {"MCP-Protocol-Version": "2025-11-25", "Content-Type": "application/json", **ACCEPT}
ECHO = call(7, "echo", {"text": 'hé\u2028 "quoted"', "times": 2})
CALLS: dict[str, Any] = {
    "echo": ECHO,
    "text as id": call("a", "echo", {"text": "x"}),
    "large": call(1, "echo", {"text": "x" * 1000, "times": 100}),
    "refused": call(1, "refuse"),
    "a bug": call(1, "crash"),
    "unknown tool": call(1, "nonsense"),
    "bad arguments": call(1, "echo", {"text": 5}),
    "a person is needed": call(1, "choose"),
    "no name": {**ECHO, "params": {"arguments": {}}},
    "a number as name": {**ECHO, "params": {"name": 5}},
    "a list as arguments": {**ECHO, "params": {"name": "echo", "arguments": [1]}},
    "no arguments": {**ECHO, "params": {"name": "tally"}},
    "null as arguments": {**ECHO, "params": {"name": "tally", "arguments": None}},
}
ODD: dict[str, Any] = {
    "another method": request(1, "tools/list"),
    "no params": {"jsonrpc": "2.0", "id": 1, "method": "tools/call"},
    "a list as params": {**ECHO, "params": [1]},
    "no id": {key: value for key, value in ECHO.items() if key != "id"},
    "null as id": {**ECHO, "id": None},
    "a fraction as id": {**ECHO, "id": 1.5},
    "true as id": {**ECHO, "id": True},
    "no version": {key: value for key, value in ECHO.items() if key != "jsonrpc"},
    "another version": {**ECHO, "jsonrpc": "1.0"},
    "a notification": notification("notifications/initialized"),
    "a batch": [ECHO],
    "a text": "tools/call",
}


def stateless(message: Any) -> Any:
    """As 2026-07-28 sends it, where the message is whole enough for that."""
    has_params = isinstance(message, dict) and isinstance(message.get("params"), dict)
    return {**message, "params": {**message["params"], "_meta": META}} if has_params else message


def new(message: Any) -> dict[str, str]:
    params = message.get("params") if isinstance(message, dict) else None
    name = params.get("name") if isinstance(params, dict) else None
    named = {"Mcp-Name": name} if isinstance(name, str) else {}
    method = {"Mcp-Method": message["method"]} if isinstance(message, dict) else {}
    return {**OLD, "MCP-Protocol-Version": "2026-07-28", **method, **named}


async def sent(server: Served, body: bytes, headers: dict[str, str] | list[tuple[str, str]]) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=SECONDS) as client:
        return await client.post(server.url, content=body, headers=headers)


class Ways:
    """The same request on both ways."""

    def __init__(self, server: Served, patches: pytest.MonkeyPatch) -> None:
        self._server = server
        self._patches = patches
        self.short = 0

    async def both(self, body: bytes, headers: dict[str, str] | list[tuple[str, str]]) -> list[tuple[int, str | None, Any]]:
        read = Singles.read

        def counting(singles: Singles, asked: Request, found: Any, content: bytes) -> Single | None:
            read_as = read(singles, asked, found, content)
            self.short += read_as is not None
            return read_as

        replies = []
        for way in (counting, lambda *_: None):
            self._patches.setattr(single.Singles, "read", way)
            replies.append(_seen(await sent(self._server, body, headers)))
        self._patches.setattr(single.Singles, "read", read)
        return replies


def _seen(reply: httpx2.Response) -> tuple[int, str | None, Any]:
    try:
        content = reply.json()
    except ValueError:
        content = reply.text
    return reply.status_code, reply.headers.get("content-type"), content


@proves("mcp.http-single")
@pytest.mark.parametrize("message", CALLS.values(), ids=list(CALLS))
async def test_the_short_way_gives_the_reply_of_the_long_way(message: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as server:
        ways = Ways(server, monkeypatch)
        for headers, body in ((OLD, message), (new(message), stateless(message))):
            short, long = await ways.both(json.dumps(body).encode(), headers)
            assert short == long


@proves("mcp.http-single")
async def test_a_reply_that_cannot_be_sent_tells_nothing_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    message = call(1, "strange")
    async with served() as server:
        ways = Ways(server, monkeypatch)
        short, long = await ways.both(json.dumps(stateless(message)).encode(), new(message))
        assert short == long
        # The transport of the older revisions would show the words of the exception.
        older, _ = await ways.both(json.dumps(message).encode(), OLD)
        assert older[2]["error"] == long[2]["error"] == {"code": -32603, "message": "Internal server error"}


@proves("mcp.http-single")
async def test_a_call_takes_the_short_way_in_every_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as server:
        ways = Ways(server, monkeypatch)
        for revision in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
            await ways.both(json.dumps(ECHO).encode(), {**OLD, "MCP-Protocol-Version": revision})
        await ways.both(json.dumps(stateless(ECHO)).encode(), new(ECHO))
        assert ways.short == 5


@proves("mcp.http-single")
@pytest.mark.parametrize("message", ODD.values(), ids=list(ODD))
async def test_what_is_no_plain_call_goes_the_long_way(message: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as server:
        ways = Ways(server, monkeypatch)
        await ways.both(json.dumps(message).encode(), OLD)
        await ways.both(json.dumps(stateless(message)).encode(), new(message))
        assert ways.short == 0


@proves("mcp.http-single")
@pytest.mark.parametrize(
    "changed",
    [
        {"MCP-Protocol-Version": "2025-11-25"},
        {"MCP-Protocol-Version": "2099-01-01"},
        {"Mcp-Method": "tools/list"},
        {"Mcp-Name": "choose"},
        {"Mcp-Param-Text": "x"},
        {"Accept": "text/event-stream"},
        {"Content-Type": "text/plain"},
    ],
    ids=lambda changed: " ".join(*changed.items()),
)
async def test_headers_that_do_not_fit_are_left_to_the_transport(
    changed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as server:
        ways = Ways(server, monkeypatch)
        short, long = await ways.both(json.dumps(stateless(ECHO)).encode(), {**new(ECHO), **changed})
        assert short == long
        # An envelope under an older revision is what such a client may send by mistake: it is served as before.
        assert ways.short == (changed == {"MCP-Protocol-Version": "2025-11-25"})


@proves("mcp.http-single")
async def test_a_header_that_is_there_twice_is_left_to_the_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as server:
        ways = Ways(server, monkeypatch)
        twice = [*new(ECHO).items(), ("Mcp-Name", "choose")]
        (status, *_), _ = await ways.both(json.dumps(stateless(ECHO)).encode(), twice)
        assert (status, ways.short) == (400, 0)


@proves("mcp.http-single")
@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"a": NaN}', b"[" * 100_000, b'{"id": ' + b"9" * 400 + b"}"])
async def test_what_cannot_be_read_is_left_to_the_transport(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as server:
        ways = Ways(server, monkeypatch)
        short, long = await ways.both(body, OLD)
        assert (short, ways.short) == (long, 0)
