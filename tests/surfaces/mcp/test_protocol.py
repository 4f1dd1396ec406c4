"""What is said in each revision, without any transport."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.surfaces.mcp.endpoint import HANDSHAKE_REVISIONS, describe_client
from fidelio.surfaces.mcp.protocol import ClientConnection, Peer
from tests.support import proves
from tests.surfaces.mcp.example import ExampleTools, as_json, protocol
from tests.surfaces.mcp.wire import ASKABLE, META, call, initialize, request, text_of

SERVER = "io.modelcontextprotocol/serverInfo"
CAPABILITIES = {"tools": {"listChanged": False}, "resources": {"subscribe": False, "listChanged": False}}


@pytest.fixture
def talk() -> ClientConnection:
    return protocol(ExampleTools()).connect()


async def error_of(talk: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
    return dict((await talk.answer(message))["error"])


@proves("mcp.handshake")
@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
async def test_every_handshake_revision_is_spoken(talk: ClientConnection, revision: str) -> None:
    result = (await talk.answer(initialize(revision)))["result"]

    assert result == {
        "protocolVersion": revision,
        "capabilities": CAPABILITIES,
        "serverInfo": {"name": "example", "version": "1.2.3"},
        "instructions": "Tools for tests.",
    }


@proves("mcp.handshake")
@pytest.mark.parametrize("revision", ["2099-01-01", "2026-07-28", "", "1.0"])
async def test_an_unknown_revision_is_answered_with_our_newest(talk: ClientConnection, revision: str) -> None:
    assert (await talk.answer(initialize(revision)))["result"]["protocolVersion"] == "2025-11-25"


@proves("mcp.handshake")
async def test_after_a_handshake_results_have_no_type(talk: ClientConnection) -> None:
    await talk.answer(initialize())
    listed = (await talk.answer(request(1, "tools/list")))["result"]

    assert set(listed) == {"tools"}
    assert (await talk.answer(request(2, "ping")))["result"] == {}
    assert "resultType" not in (await talk.answer(call(3, "tally")))["result"]


@proves("mcp.stateless")
async def test_a_request_with_its_own_introduction_needs_no_handshake(talk: ClientConnection) -> None:
    discovered = (await talk.answer(request(1, "server/discover", _meta=META)))["result"]

    assert discovered["supportedVersions"] == ["2026-07-28"]
    assert discovered["capabilities"] == CAPABILITIES
    assert discovered["instructions"] == "Tools for tests."
    assert (discovered["resultType"], discovered["ttlMs"], discovered["cacheScope"]) == ("complete", 300_000, "public")
    assert discovered["_meta"][SERVER] == {"name": "example", "version": "1.2.3"}


@proves("mcp.stateless")
async def test_results_say_their_type_and_who_made_them(talk: ClientConnection) -> None:
    listed = (await talk.answer(request(1, "tools/list", _meta=META)))["result"]
    called = (await talk.answer(call(2, "echo", {"text": "a"}, _meta=META)))["result"]

    assert (listed["resultType"], listed["ttlMs"]) == ("complete", 300_000)
    assert called["resultType"] == "complete"
    assert called["_meta"] == {"said": 1, SERVER: {"name": "example", "version": "1.2.3"}}


@proves("mcp.stateless")
async def test_both_kinds_of_requests_are_served_on_one_connection(talk: ClientConnection) -> None:
    await talk.answer(initialize())

    assert "resultType" in (await talk.answer(call(1, "tally", _meta=META)))["result"]
    assert "resultType" not in (await talk.answer(call(2, "tally")))["result"]


@proves("mcp.stateless")
async def test_a_revision_we_do_not_serve_is_refused_with_those_we_do(talk: ClientConnection) -> None:
    meta = {**META, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}

    error = await error_of(talk, request(1, "tools/list", _meta=meta))

    assert (error["code"], error["data"]) == (-32022, {"supported": ["2026-07-28"], "requested": "2031-01-01"})


@proves("mcp.stateless")
@pytest.mark.parametrize(
    "change", [{"io.modelcontextprotocol/protocolVersion": 7}, {"io.modelcontextprotocol/clientCapabilities": 7}]
)
async def test_an_introduction_of_the_wrong_shape_is_refused(talk: ClientConnection, change: dict[str, Any]) -> None:
    assert (await error_of(talk, request(1, "tools/list", _meta={**META, **change})))["code"] == -32602


@proves("mcp.stateless", "mcp.errors")
@pytest.mark.parametrize(("method", "meta"), [("ping", META), ("server/discover", {}), ("prompts/list", {}), ("x" * 9999, {})])
async def test_a_method_that_the_revision_does_not_have_is_not_found(talk: ClientConnection, method: str, meta: Any) -> None:
    error = await error_of(talk, request(1, method, _meta=meta))

    assert error["code"] == -32601
    assert len(error["message"]) < 200


@proves("mcp.errors")
@pytest.mark.parametrize(
    "params",
    [
        {"name": 7},
        {"arguments": {}},
        {"name": "echo", "arguments": []},
        {"name": "echo", "arguments": "text"},
        {"name": None, "arguments": None},
    ],
)
async def test_a_call_of_the_wrong_shape_is_a_protocol_error(talk: ClientConnection, params: dict[str, Any]) -> None:
    assert (await error_of(talk, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))["code"] == -32602


@proves("mcp.errors")
@pytest.mark.parametrize("params", [[], [1], "text", 7, True])
async def test_params_that_are_no_object_are_a_protocol_error(talk: ClientConnection, params: Any) -> None:
    assert (await error_of(talk, {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": params}))["code"] == -32602


@proves("mcp.errors")
async def test_a_handshake_without_a_revision_is_a_protocol_error(talk: ClientConnection) -> None:
    assert (await error_of(talk, request(1, "initialize")))["code"] == -32602


@proves("mcp.errors")
async def test_a_bug_is_a_reply_that_keeps_the_secrets(talk: ClientConnection, capsys: pytest.CaptureFixture[str]) -> None:
    reply = await talk.answer(call(1, "crash"))

    assert reply["result"]["isError"]
    assert text_of(reply) == "Unexpected RuntimeError in crash; details are in the server's log."
    assert "a secret of the server" in capsys.readouterr().err


@proves("mcp.elicitation", "mcp.input-required")
@pytest.mark.parametrize(
    ("revision", "capabilities", "can_ask"),
    [
        ("2025-11-25", {"elicitation": {}}, True),
        ("2025-11-25", {"elicitation": {"form": {}, "url": {}}}, True),
        ("2026-07-28", {"elicitation": {"form": {}}}, True),
        ("2025-06-18", {"elicitation": {}}, True),
        ("2025-11-25", {"elicitation": {"url": {}}}, False),
        ("2025-03-26", {"elicitation": {}}, False),
        ("2025-11-25", {"sampling": {}}, False),
        ("2025-11-25", {"elicitation": True}, False),
        ("2025-11-25", ["elicitation"], False),
    ],
)
def test_a_client_is_asked_only_what_it_declared(revision: str, capabilities: Any, can_ask: bool) -> None:
    assert describe_client(revision, capabilities, None).can_elicit is can_ask


@proves("mcp.request-state")
async def test_a_bad_state_is_a_protocol_error(talk: ClientConnection) -> None:
    error = await error_of(talk, call(1, "choose", _meta=ASKABLE, requestState="forged", inputResponses={}))

    assert error["code"] == -32602
    assert "Call the tool again without requestState" in error["message"]


@proves("mcp.progress")
@pytest.mark.parametrize("token", ["t", 7, 0])
async def test_progress_is_told_to_who_asked_for_it(token: object) -> None:
    told: list[Any] = []

    async def notify(method: str, params: dict[str, Any]) -> None:
        told.append((method, params))

    talk = protocol(ExampleTools()).connect(Peer(notify=notify))
    await talk.answer(call(1, "count", {"steps": 2}, _meta={"progressToken": token}))
    await talk.answer(call(2, "count", {"steps": 2}))

    assert told == [
        ("notifications/progress", {"progressToken": token, "progress": 1, "total": 2, "message": "step 1"}),
        ("notifications/progress", {"progressToken": token, "progress": 2, "total": 2, "message": "step 2"}),
    ]


@proves("mcp.hints")
async def test_the_list_of_tools_is_the_same_every_time(talk: ClientConnection) -> None:
    first = as_json(await talk.answer(request(1, "tools/list")))

    assert as_json(await talk.answer(request(1, "tools/list"))) == first
