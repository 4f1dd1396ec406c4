"""A text that an agent got before on its connection is not sent again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import CallToolResult, TextContent
from mcp_types import ElicitRequestParams, ElicitResult

from fidelio.app.application import Application
from fidelio.settings import Settings
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.serving import serve_http
from fidelio.surfaces.mcp.dialects import endpoint_path, load_tools
from fidelio.surfaces.mcp.protocol import ClientConnection, Protocol
from fidelio.surfaces.mcp.server import make_identity, make_request_states
from fidelio.toolkit import DeliveredTexts
from tests.dialects.conftest import Player, ToolReply
from tests.support import proves

both_dialects = pytest.mark.parametrize("dialect", ["sessions", "gates"])
UNCHANGED = "pass full: true, or call start_session with session_token"
LISTEN = {"step_id": "hear"}


def connect(protocol: Protocol) -> Player:
    """A player over a new connection, as over stdio."""
    connection, ids = protocol.connect(), count(1)

    async def call(tool: str, arguments: dict[str, Any]) -> ToolReply:
        return await _call(connection, next(ids), tool, arguments)

    return Player(call)


async def _call(connection: ClientConnection, number: int, tool: str, arguments: dict[str, Any]) -> ToolReply:
    params = {"name": tool, "arguments": arguments}
    reply = await connection.answer({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
    result = reply["result"]
    return ToolReply(result["content"][0]["text"], result.get("_meta", {}), result["isError"], result.get("structuredContent"))


@asynccontextmanager
async def serving(settings: Settings, library: Path, dialect: str = "sessions") -> AsyncIterator[Protocol]:
    async with Application(settings, [str(library)]) as house:
        yield Protocol(make_identity(settings), load_tools(dialect, house), make_request_states(settings))


def reads(dialect: str) -> list[tuple[str, dict[str, Any]]]:
    resource = "resource_id" if dialect == "sessions" else "resource_index"
    texts = [("get_workflow", {}), ("get_workflow", {"summary": False}), ("get_skills", {})]
    return [*texts, ("get_skill", {"step_id": "bar"}), ("get_resource", {resource: "01"})]


@proves("dialects.sent-once")
@both_dialects
async def test_what_was_given_before_is_named_by_its_digest(settings: Settings, library: Path, dialect: str) -> None:
    async with serving(settings, library, dialect) as protocol:
        play = connect(protocol)
        token = await play.at("play", agent_id="worker")
        for tool, arguments in reads(dialect):
            first = await play(tool, session_token=token, full=True, **arguments)
            second = await play(tool, session_token=first.token, **arguments)
            again = await play(tool, session_token=second.token, full=True, **arguments)

            assert not first.is_error, first.text
            assert UNCHANGED not in first.text
            assert UNCHANGED in second.text
            assert re.search(r'digest"?: ?"?[0-9a-f]{16}', second.text)
            assert second.text_token.startswith("s_")
            assert again.text.replace(again.token, "") == first.text.replace(first.token, "")


@proves("sessions.read")
@both_dialects
async def test_front_matter_that_is_not_yaml_is_said_where_the_agent_reads(
    settings: Settings, library: Path, dialect: str
) -> None:
    (library / "score" / "resources" / "09-odd.md").write_text("---\nid: [odd\n---\nThe A is at 415 Hz.\n")
    argument = "resource_id" if dialect == "sessions" else "resource_index"
    async with serving(settings, library, dialect) as protocol:
        play = connect(protocol)
        reply = await play("get_resource", session_token=await play.at("play"), **{argument: "9"})

    assert re.search('^warning: |"warning": ?"', reply.text, re.MULTILINE), reply.text
    assert "The front matter is not used, and the page is served with it" in reply.text


@proves("dialects.sent-once")
@both_dialects
async def test_another_agent_session_or_connection_gets_the_whole_text(settings: Settings, library: Path, dialect: str) -> None:
    async with serving(settings, library, dialect) as protocol:
        play = connect(protocol)
        token = await play.start(agent_id="worker")
        await play("get_skills", session_token=token)

        other_agent = (await play("start_session", workflow_id="score", session_token=token, agent_id="second")).token
        await play("get_skills", session_token=other_agent)
        replies = [
            await play("get_skills", session_token=token),
            await play("get_skills", session_token=await play.start(agent_id="worker")),
            await connect(protocol)("get_skills", session_token=token),
        ]

    assert [UNCHANGED in reply.text for reply in replies] == [False, False, False]


@proves("dialects.sent-once")
@both_dialects
async def test_an_agent_that_lost_its_context_starts_again_and_gets_everything(
    settings: Settings, library: Path, dialect: str
) -> None:
    async with serving(settings, library, dialect) as protocol:
        play = connect(protocol)
        token = await play.start()
        await play("get_skills", session_token=token)
        repeated = await play("get_skills", session_token=token)
        resumed = await play("start_session", workflow_id="score", session_token=token)
        reply = await play("get_skills", session_token=resumed.token)

    assert (UNCHANGED in repeated.text, UNCHANGED in reply.text) == (True, False)


@proves("dialects.sent-once")
@both_dialects
async def test_a_short_handle_names_no_agent_and_gets_the_whole_text(settings: Settings, library: Path, dialect: str) -> None:
    async with serving(settings, library, dialect) as protocol:
        play = connect(protocol)
        token = await play.start()
        session = (await play("get_trace", session_token=token)).json["traceId"]
        by_handle = [await play("get_skills", session_token=session) for _ in range(2)]
        by_token = await play("get_skills", session_token=token)

    assert [UNCHANGED in reply.text for reply in (*by_handle, by_token)] == [False, False, False]


@proves("dialects.sent-once")
@both_dialects
async def test_a_changed_text_is_whole_again(settings: Settings, library: Path, dialect: str) -> None:
    async with serving(settings, library, dialect) as protocol:
        play = connect(protocol)
        token = await play.start()
        await play("get_skills", session_token=token)
        file = library / "score/skills/01-conduct.yaml"
        before = file.read_text()
        file.write_text(before.replace("1.0.0", "1.0.1"))
        changed = await play("get_skills", session_token=token)
        file.write_text(before)
        restored = await play("get_skills", session_token=token)

    assert "1.0.1" in changed.text
    assert UNCHANGED not in restored.text


@proves("dialects.sent-once")
async def test_a_refused_call_does_not_count_as_given(settings: Settings, library: Path) -> None:
    async with serving(settings, library) as protocol:
        play = connect(protocol)
        token = await play.at("tune")
        yielded = await play("yield_checkpoint", session_token=token, checkpoint_id="how")
        refused = await play("get_skill", session_token=token, **LISTEN)
        await play("respond_checkpoint", checkpoint_handle=yielded.token, option_id="forte")
        reply = await play("get_skill", session_token=token, **LISTEN)

    assert refused.is_error
    assert UNCHANGED not in reply.text


@proves("dialects.sent-once")
async def test_the_activity_and_entering_it_in_gates_are_always_whole(settings: Settings, library: Path) -> None:
    async with serving(settings, library) as protocol:
        play = connect(protocol)
        token = await play.at("tune")
        activities = [await play("get_activity", session_token=token) for _ in range(2)]
    async with serving(settings, library, "gates") as protocol:
        play = connect(protocol)
        token = await play.start()
        entered = [await play("next_activity", session_token=token, activity_id="tune") for _ in range(2)]

    assert not any(UNCHANGED in reply.text for reply in (*activities, *entered))


async def decline(context: Any, params: ElicitRequestParams) -> ElicitResult:  # the signature is the SDK's
    return ElicitResult(action="decline")


@proves("dialects.sent-once")
@pytest.mark.parametrize("has_session", [True, False])
async def test_over_http_a_connection_is_an_mcp_session(settings: Settings, library: Path, *, has_session: bool) -> None:
    async with serving(settings, library) as protocol:
        app = create_app({endpoint_path("sessions"): protocol})
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        server = asyncio.create_task(serve_http(app, port=0, ready=address.set_result))
        # A client that can ask its user gets a session of the SDK; any other is served without a connection.
        callback = decline if has_session else None
        try:
            url = f"{await address}{endpoint_path('sessions')}"
            async with asyncio.timeout(30), Client(url, mode="legacy", elicitation_callback=callback) as client:
                token = (await _text(client, "start_session", workflow_id="score"))["session_token"]
                texts = [await _raw(client, "get_skills", session_token=token) for _ in range(2)]
        finally:
            server.cancel()
            await asyncio.wait([server], timeout=10)

    assert [UNCHANGED in text for text in texts] == [False, has_session]


async def _raw(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    block = result.content[0]
    assert isinstance(block, TextContent)
    return block.text


async def _text(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    return dict(result.structured_content or {})


@proves("dialects.sent-once")
def test_what_a_connection_remembers_is_bounded() -> None:
    delivered = DeliveredTexts()
    for number in range(DeliveredTexts.MAX_SESSIONS + 1):
        delivered.add(f"s_{number}", "worker", "skill a", "d")
    for number in range(DeliveredTexts.MAX_TEXTS + 1):
        delivered.add("s_5", "worker", f"skill {number}", "d")

    assert not delivered.has("s_0", "worker", "skill a", "d")
    assert delivered.has("s_64", "worker", "skill a", "d")
    assert not delivered.has("s_5", "worker", "skill 0", "d")
    assert delivered.has("s_5", "worker", f"skill {DeliveredTexts.MAX_TEXTS}", "d")
