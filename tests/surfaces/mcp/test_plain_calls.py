"""Single calls over HTTP: the short way gives the reply of the long way, and takes nothing that is not plain."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from fidelio.surfaces.http import guard
from fidelio.surfaces.http import plain as single
from fidelio.surfaces.http.application import MAX_BODY
from fidelio.surfaces.http.plain import Headers, PlainCall, PlainCalls
from tests.support import proves
from tests.surfaces.mcp.serving import ACCEPT, Served, served
from tests.surfaces.mcp.wire import ASKABLE, META, SECONDS, call, notification, request

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
VERSION, CAPABILITIES, INFO = (
    f"io.modelcontextprotocol/{key}" for key in ("protocolVersion", "clientCapabilities", "clientInfo")
)
# What a client may say about itself, soundly or not.
ENVELOPES: dict[str, Any] = {
    "a name": {**META, INFO: {"name": "a client", "version": "1"}},
    "a name without a version": {**META, INFO: {"name": "a client"}},
    "a number as name": {**META, INFO: {"name": 5, "version": "1"}},
    "a text as introduction": {**META, INFO: "a client"},
    "null as introduction": {**META, INFO: None},
    "forms": {**META, CAPABILITIES: {"elicitation": {}}},
    "forms by name": {**META, CAPABILITIES: {"elicitation": {"form": {}}}},
    "null as forms": {**META, CAPABILITIES: {"elicitation": {"form": None}}},
    "only addresses": {**META, CAPABILITIES: {"elicitation": {"url": {}}}},
    "a text as elicitation": {**META, CAPABILITIES: {"elicitation": "yes"}},
    "a list as capabilities": {**META, CAPABILITIES: []},
    "no capabilities": {key: value for key, value in META.items() if key != CAPABILITIES},
    "a version that is not in the header": {**META, VERSION: "2025-11-25"},
    "a number as version": {**META, VERSION: 2026},
    "a place for progress": {**META, "progressToken": "p"},
    "no place for progress": {**META, "progressToken": None},
    "words of others": {**META, "example.com/trace": [1, {"a": None}]},
    "more than is remembered": {**META, "example.com/long": "x" * 5000},
    "nothing": {},
    "null": None,
    "a list": [],
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
    "an error beside it": {**ECHO, "error": {"code": 1, "message": "x"}},
    "very deep": {**ECHO, "params": {"name": "echo", "arguments": {"text": "x"}, "more": json.loads("[" * 300 + "]" * 300)}},
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


def with_meta(meta: bytes) -> bytes:
    return json.dumps(ECHO).encode().replace(b'"params": {', b'"params": {"_meta": ' + meta + b", ")


class Ways:
    """The same request on both ways."""

    def __init__(self, server: Served, patches: pytest.MonkeyPatch) -> None:
        self._server = server
        self._patches = patches
        self.short = 0

    async def both(self, body: bytes, headers: dict[str, str] | list[tuple[str, str]]) -> list[tuple[int, str | None, Any]]:
        read = PlainCalls.read

        def counting(singles: PlainCalls, found: Headers, content: bytes) -> PlainCall | None:
            read_as = read(singles, found, content)
            self.short += read_as is not None
            return read_as

        replies = []
        for way in (counting, lambda *_: None):
            self._patches.setattr(single.PlainCalls, "read", way)
            replies.append(_seen(await sent(self._server, body, headers)))
        self._patches.setattr(single.PlainCalls, "read", read)
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
@pytest.mark.parametrize("envelope", ENVELOPES.values(), ids=list(ENVELOPES))
async def test_whoever_calls_is_taken_for_the_same_on_both_ways(envelope: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as server:
        ways = Ways(server, monkeypatch)
        for name in ("echo", "choose"):
            message = call(1, name, {"text": "x"} if name == "echo" else {})
            body = json.dumps({**message, "params": {**message["params"], "_meta": envelope}}).encode()
            for headers in (OLD, new(message)):
                short, long = await ways.both(body, headers)
                assert _without_state(short) == _without_state(long)


def _without_state(seen: tuple[int, str | None, Any]) -> tuple[int, str | None, Any]:
    """A question that is asked twice has two sealed states, of the same length."""
    state = seen[2].get("result", {}).pop("requestState", "") if isinstance(seen[2], dict) else ""
    return (*seen[:2], (seen[2], len(state)))


@proves("mcp.http-single")
@pytest.mark.parametrize("more", [{"requestState": "x"}, {"inputResponses": {}}, {"task": {"ttl": 1}}, {"anything": 1}])
async def test_a_call_that_brings_more_than_arguments_is_left_to_the_transport(
    more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as server:
        ways = Ways(server, monkeypatch)
        message = {**ECHO, "params": {**ECHO["params"], **more}}
        for headers, body in ((OLD, message), (new(message), stateless(message))):
            short, long = await ways.both(json.dumps(body).encode(), headers)
            assert (short, ways.short) == (long, 0)


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
        introduced = {**ASKABLE, INFO: {"name": "a client", "version": "1"}}
        for envelope in (META, introduced):
            body = {**ECHO, "params": {**ECHO["params"], "_meta": envelope}}
            await ways.both(json.dumps(body).encode(), new(ECHO))
        assert ways.short == 6


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
        {"Accept": "application/jsonp"},
        {"Accept": "text/html;x=application/json"},
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
        others = [(name, value) for name, value in new(ECHO).items() if name != "Mcp-Name"]
        # Whoever takes the last one would find nothing wrong.
        twice = [*others, ("Mcp-Name", "choose"), ("Mcp-Name", "echo")]
        (status, *_), _ = await ways.both(json.dumps(stateless(ECHO)).encode(), twice)
        assert (status, ways.short) == (400, 0)


@proves("mcp.http-single")
@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"\xff", b'{"a": NaN}', b"[" * 100_000, b'{"id": ' + b"9" * 400 + b"}"),
        *(
            with_meta(meta)
            for meta in (b'{"x": 1e400}', b'{"x": "\xff"}', b'{"x": "\xff"}, "_meta": {}', b'{"progressToken": [1]}')
        ),
    ],
)
async def test_what_cannot_be_read_is_left_to_the_transport(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as server:
        ways = Ways(server, monkeypatch)
        short, long = await ways.both(body, OLD)
        assert (short, ways.short) == (long, 0)


@proves("mcp.http-single")
async def test_a_tool_whose_arguments_go_into_headers_is_left_to_the_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "Text"}}}
    monkeypatch.setattr("fidelio.toolkit.tools.input_schema", lambda _: named)
    async with served() as server:
        ways = Ways(server, monkeypatch)
        short, long = await ways.both(json.dumps(stateless(ECHO)).encode(), new(ECHO))
        assert (short, ways.short) == (long, 0)


@proves("mcp.http-single")
async def test_a_request_that_was_cut_off_is_not_carried_out() -> None:
    body = json.dumps(call(1, "hang")).encode()
    sized = b"Content-Length: %d" % (len(body) + 50)
    async with served() as server:
        for framing, sent_body in ((sized, body), (b"Transfer-Encoding: chunked", b"%x\r\n%s\r\n" % (len(body), body))):
            await _cut_off(server, framing, sent_body)
        # The next request is answered when those before it have been dealt with.
        reply = await sent(server, json.dumps(call(2, "echo", {"text": "x"})).encode(), OLD)
        assert (reply.status_code, server.example.started) == (200, 0)


async def _cut_off(server: Served, framing: bytes, body: bytes) -> None:
    host, port = server.address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    headers = b"\r\n".join(f"{name}: {value}".encode() for name, value in OLD.items())
    writer.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + framing + b"\r\n" + headers + b"\r\n\r\n" + body)
    await writer.drain()
    writer.write_eof()
    async with asyncio.timeout(SECONDS):
        await reader.read()
    writer.close()
    await writer.wait_closed()


@proves("mcp.http-single")
async def test_what_is_too_large_is_refused_before_it_is_read() -> None:
    async with served() as server, asyncio.timeout(SECONDS):
        host, port = server.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n")
        assert b" 413 " in await reader.readline()
        writer.close()
        await writer.wait_closed()


@proves("mcp.http-single")
async def test_a_call_that_is_too_large_is_refused_without_a_declared_size() -> None:
    body = json.dumps(call(1, "echo", {"text": "x", "more": "x" * MAX_BODY})).encode()

    async def parts() -> AsyncIterator[bytes]:
        yield body

    async with served() as server, httpx2.AsyncClient(timeout=SECONDS) as client:
        assert (await client.post(server.url, content=parts(), headers=OLD)).status_code == 413


@proves("mcp.http-single")
@pytest.mark.parametrize("name", ["Accept", "Mcp-Name", "Mcp-Method", "MCP-Protocol-Version", "Host", "Origin"])
async def test_what_strangers_send_at_length_is_not_remembered(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remembering = (guard._parse_short_address, single._accepts_json, single._identify_client)
    async with served() as server:
        ways = Ways(server, monkeypatch)
        body = json.dumps(stateless(ECHO)).encode()
        await ways.both(body, new(ECHO))
        before = [one.cache_info().currsize for one in remembering]
        short, long = await ways.both(body, {**new(ECHO), name: "application/json, " + "x" * 5000})
        assert (short, ways.short) == (long, 1)
        assert [one.cache_info().currsize for one in remembering] == before
