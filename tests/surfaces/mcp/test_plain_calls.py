"""Plain JSON over HTTP: our protocol gives the reply that the SDK gives to the same request, and refuses what it refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from fidelio.surfaces.http.limits import MAX_BODY
from tests.support import proves
from tests.surfaces.mcp.serving import ACCEPT, NO_TLS, Served, served, served_by_sdk
from tests.surfaces.mcp.wire import META, SECONDS, call, initialize, notification, request

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
# What a client may say about itself, and what we take as not said, as over stdio. The SDK refuses most of the latter.
ENVELOPES: dict[str, Any] = {
    "a name": {**META, INFO: {"name": "a client", "version": "1"}},
    "forms": {**META, CAPABILITIES: {"elicitation": {}}},
    "forms by name": {**META, CAPABILITIES: {"elicitation": {"form": {}}}},
    "only addresses": {**META, CAPABILITIES: {"elicitation": {"url": {}}}},
    "a list as capabilities": {**META, CAPABILITIES: []},
    "no capabilities": {key: value for key, value in META.items() if key != CAPABILITIES},
    "a version that is not in the header": {**META, VERSION: "2025-11-25"},
    "a number as version": {**META, VERSION: 2026},
    "words of others": {**META, "example.com/trace": [1, {"a": None}]},
    "many words of others": {**META, "example.com/long": "x" * 5000},
    "nothing": {},
}
ODD_ENVELOPES: dict[str, Any] = {
    "a name without a version": {**META, INFO: {"name": "a client"}},
    "a number as name": {**META, INFO: {"name": 5, "version": "1"}},
    "a text as introduction": {**META, INFO: "a client"},
    "null as introduction": {**META, INFO: None},
    "null as forms": {**META, CAPABILITIES: {"elicitation": {"form": None}}},
    "a text as elicitation": {**META, CAPABILITIES: {"elicitation": "yes"}},
    "no place for progress": {**META, "progressToken": None},
}
OTHERS: dict[str, Any] = {
    "tools": request(1, "tools/list"),
    "resources": request(1, "resources/list"),
    "a resource": request(1, "resources/read", uri="workflow-server://schemas/state"),
    "an unknown resource": request(1, "resources/read", uri="workflow-server://nothing"),
    "no resource": request(1, "resources/read"),
    "ping": request(1, "ping"),
    "discover": request(1, "server/discover"),
    "a method we do not have": request(1, "prompts/list"),
    "an unknown method": request(1, "no/such/method"),
    "a handshake": initialize(),
    "a handshake of an older client": initialize("2024-11-05"),
    "a handshake without a revision": request(1, "initialize"),
    "a notification": notification("notifications/initialized"),
    "an unknown notification": notification("no/such/notification"),
    "a call without an id": {key: value for key, value in ECHO.items() if key != "id"},
}
# With the codes of JSON-RPC. The SDK reports those of its models instead.
NO_MESSAGES: dict[str, Any] = {
    "no version": {key: value for key, value in ECHO.items() if key != "jsonrpc"},
    "another version": {**ECHO, "jsonrpc": "1.0"},
    "null as id": {**ECHO, "id": None},
    "a fraction as id": {**ECHO, "id": 1.5},
    "true as id": {**ECHO, "id": True},
    "a number as method": {**ECHO, "method": 5},
    "neither id nor method": {"jsonrpc": "2.0"},
    "a batch": [ECHO],
    "an empty batch": [],
    "a text": "tools/call",
    "null": None,
}

Headers = dict[str, str] | list[tuple[str, str]]
Seen = tuple[int, str | None, Any]


def stateless(message: Any) -> Any:
    """As 2026-07-28 sends it, where the message is whole enough for that."""
    has_params = isinstance(message, dict) and isinstance(message.get("params"), dict)
    return {**message, "params": {**message["params"], "_meta": META}} if has_params else message


def new(message: Any) -> dict[str, str]:
    params = message.get("params") if isinstance(message, dict) else None
    name = params.get("name", params.get("uri")) if isinstance(params, dict) else None
    named = {"Mcp-Name": name} if isinstance(name, str) else {}
    method = {"Mcp-Method": str(message["method"])} if isinstance(message, dict) and "method" in message else {}
    return {**OLD, "MCP-Protocol-Version": "2026-07-28", **method, **named}


def encoded(message: Any) -> bytes:
    return json.dumps(message).encode()


async def sent(server: Served, body: bytes, headers: Headers) -> Seen:
    async with httpx2.AsyncClient(timeout=SECONDS, verify=NO_TLS) as client:
        reply = await client.post(server.url, content=body, headers=headers)
    try:
        content = reply.json()
    except ValueError:
        content = reply.text
    return reply.status_code, reply.headers.get("content-type"), content


class Ways:
    """The same request to our protocol and to the SDK."""

    def __init__(self, ours: Served, sdk: Served) -> None:
        self._servers = (ours, sdk)

    async def both(self, body: bytes, headers: Headers) -> tuple[Seen, Seen]:
        ours, sdk = await asyncio.gather(*(sent(server, body, headers) for server in self._servers))
        return ours, sdk


@asynccontextmanager
async def both_ways() -> AsyncIterator[Ways]:
    async with served() as ours, served_by_sdk() as sdk:
        yield Ways(ours, sdk)


@pytest.fixture
async def ways() -> AsyncIterator[Ways]:
    async with both_ways() as both:
        yield both


def comparable(seen: Seen) -> tuple[int, Any]:
    """Status and content, but not how an error is worded, and not the sealed state of a question, which is never the same."""
    status, _, content = seen
    if not isinstance(content, dict):
        return status, content or None
    if "error" in content:
        return status, (content["error"]["code"], content["id"])
    result = content["result"]
    return status, ({**content, "result": {**result, "requestState": "…"}} if "requestState" in result else content)


@proves("mcp.http-single")
@pytest.mark.parametrize("message", [*CALLS.values(), *OTHERS.values()], ids=[*CALLS, *OTHERS])
async def test_every_method_gets_the_reply_of_the_sdk(message: Any, ways: Ways) -> None:
    for headers, body in ((OLD, message), (new(message), stateless(message))):
        ours, sdk = await ways.both(encoded(body), headers)
        assert comparable(ours) == comparable(sdk)
        assert ours[0] == 202 or ours[1] == "application/json"


@proves("mcp.http-single")
@pytest.mark.parametrize("envelope", ENVELOPES.values(), ids=list(ENVELOPES))
async def test_whoever_calls_is_taken_for_the_same_as_by_the_sdk(envelope: Any, ways: Ways) -> None:
    for message in (call(1, "echo", {"text": "x"}), call(1, "choose")):
        body = encoded({**message, "params": {**message["params"], "_meta": envelope}})
        for headers in (OLD, new(message)):
            ours, sdk = await ways.both(body, headers)
            assert comparable(ours) == comparable(sdk)


@proves("mcp.http-single")
@pytest.mark.parametrize("envelope", ODD_ENVELOPES.values(), ids=list(ODD_ENVELOPES))
async def test_what_a_client_says_about_itself_in_an_odd_way_counts_as_not_said(envelope: Any, ways: Ways) -> None:
    message = call(1, "choose")
    expected, _ = await ways.both(encoded(stateless(message)), new(message))
    ours, _ = await ways.both(encoded({**message, "params": {**message["params"], "_meta": envelope}}), new(message))
    assert (expected[0], ours) == (200, expected)


@proves("mcp.http-single")
@pytest.mark.parametrize("message", NO_MESSAGES.values(), ids=list(NO_MESSAGES))
async def test_what_is_no_message_is_refused(message: Any, ways: Ways) -> None:
    for headers, body in ((OLD, message), (new(message), stateless(message))):
        ours, sdk = await ways.both(encoded(body), headers)
        assert (ours[0], ours[2]["error"]["code"], ours[2]["id"]) == (400, -32600, None)
        assert sdk[0] in {400, 202}  # with an odd id it takes a request of an older client for a notification


@proves("mcp.http-single")
async def test_a_response_nobody_waits_for_is_taken_from_older_clients_only(ways: Ways) -> None:
    response = {"jsonrpc": "2.0", "id": 1, "result": {}}
    for headers, status in ((OLD, 202), (new({}), 400)):
        ours, sdk = await ways.both(encoded(response), headers)
        assert (ours[0], sdk[0]) == (status, status)


@proves("mcp.http-single")
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b'{"a": NaN}', b"[" * 100_000, b'{"a": "\xff"}', b'{"a": 1e400}'],
)
async def test_what_cannot_be_read_is_refused(body: bytes, ways: Ways) -> None:
    for headers in (OLD, new(ECHO)):
        ours, _ = await ways.both(body, headers)
        assert (ours[0], ours[2]["error"]["code"], ours[2]["id"]) == (400, -32700, None)


@proves("mcp.http-single")
@pytest.mark.parametrize(
    ("changed", "status"),
    [
        # An envelope under an older revision is what such a client may send by mistake.
        ({"MCP-Protocol-Version": "2025-11-25"}, 200),
        ({"MCP-Protocol-Version": "2099-01-01"}, 400),
        ({"MCP-Protocol-Version": "\xe9"}, 400),
        ({"Mcp-Method": "tools/list"}, 400),
        ({"Mcp-Name": "choose"}, 400),
        ({"Mcp-Name": "=?base64?ZWNobw==?="}, 200),
        ({"Mcp-Name": "=?base64?ZWNo?="}, 400),
        ({"Mcp-Param-Text": "x"}, 200),
        ({"Accept": "application/*;q=0.5, text/html"}, 200),
        ({"Accept": "*/*"}, 200),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
    ],
    ids=str,
)
async def test_headers_are_compared_with_the_body(changed: dict[str, str], status: int, ways: Ways) -> None:
    headers = [(name, value.encode("latin-1")) for name, value in {**new(ECHO), **changed}.items()]
    ours, sdk = await ways.both(encoded(stateless(ECHO)), headers)  # type: ignore[arg-type]  # bytes, for what is not ASCII
    assert (ours[0], comparable(ours)) == (status, comparable(sdk))


@proves("mcp.http-single")
@pytest.mark.parametrize("name", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])
async def test_a_header_that_is_missing_or_there_twice_is_refused(name: str, ways: Ways) -> None:
    others = [(key, value) for key, value in new(ECHO).items() if key != name]
    # Whoever takes the first one would find nothing wrong.
    twice = [*others, (name, new(ECHO)[name]), (name, "choose")]
    for headers in (twice, others):
        ours, sdk = await ways.both(encoded(stateless(ECHO)), headers)
        assert comparable(ours) == comparable(sdk)
        # Without a revision the request is one of an older client.
        assert ours[0] == (200 if headers is others and name == "MCP-Protocol-Version" else 400)


@proves("mcp.http-single")
@pytest.mark.parametrize("headers", [OLD, new(ECHO)], ids=["handshake", "stateless"])
@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Accept": "text/event-stream"}, 406),
        ({"Accept": "application/jsonp"}, 406),
        ({"Accept": "text/html;x=application/json"}, 406),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "text/plain, application/json"}, 415),
    ],
    ids=str,
)
async def test_only_json_is_read_and_sent(changed: dict[str, str], status: int, headers: dict[str, str], ways: Ways) -> None:
    ours, _ = await ways.both(encoded(stateless(ECHO)), {**headers, **changed})
    assert (ours[0], "error" in ours[2]) == (status, True)


@proves("mcp.http-single")
async def test_a_notification_with_an_unknown_revision_is_refused(ways: Ways) -> None:
    ours, sdk = await ways.both(encoded(notification("notifications/x")), {**OLD, "MCP-Protocol-Version": "2099-01-01"})
    assert comparable(ours) == comparable(sdk) == (400, (-32022, None))


@proves("mcp.http-single")
@pytest.mark.parametrize(
    ("mirrored", "status"),
    [({"Mcp-Param-Text": "x"}, 200), ({}, 400), ({"Mcp-Param-Text": "y"}, 400)],
    ids=["the same", "missing", "another"],
)
async def test_arguments_that_a_tool_wants_in_headers_are_compared(
    mirrored: dict[str, str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "Text"}}}
    monkeypatch.setattr("fidelio.toolkit.input_schema", lambda _: named)
    message = call(1, "echo", {"text": "x"})
    async with both_ways() as ways:
        ours, sdk = await ways.both(encoded(stateless(message)), {**new(message), **mirrored})
        assert (ours[0], comparable(ours)) == (status, comparable(sdk))


@proves("mcp.http-single")
async def test_a_reply_that_cannot_be_sent_tells_nothing_of_the_server(ways: Ways) -> None:
    message = call(1, "strange")
    for headers, body in ((OLD, message), (new(message), stateless(message))):
        ours, _ = await ways.both(encoded(body), headers)
        assert (ours[0], ours[2]["error"]["code"]) == (200, -32603)
        assert "object at" not in ours[2]["error"]["message"]


@proves("mcp.http-single")
async def test_without_a_session_or_a_stream_the_sdk_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise AssertionError("the SDK was asked")

    monkeypatch.setattr(StreamableHTTPSessionManager, "handle_request", fail)
    messages = [ECHO, OTHERS["tools"], OTHERS["a resource"]]
    async with served() as server:
        for revision in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
            for message in [*messages, OTHERS["a handshake"], call(1, "echo", {"text": "x"}, _meta={"progressToken": 1})]:
                assert (await sent(server, encoded(message), {**OLD, "MCP-Protocol-Version": revision}))[0] == 200
        for message in [*messages, OTHERS["discover"]]:
            assert (await sent(server, encoded(stateless(message)), new(message)))[0] == 200


@proves("mcp.http-single")
async def test_a_request_that_was_cut_off_is_not_carried_out() -> None:
    body = json.dumps(call(1, "hang")).encode()
    sized = b"Content-Length: %d" % (len(body) + 50)
    async with served() as server:
        for framing, sent_body in ((sized, body), (b"Transfer-Encoding: chunked", b"%x\r\n%s\r\n" % (len(body), body))):
            await _cut_off(server, framing, sent_body)
        # The next request is answered when those before it have been dealt with.
        status, *_ = await sent(server, encoded(call(2, "echo", {"text": "x"})), OLD)
        assert (status, server.example.started) == (200, 0)


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
