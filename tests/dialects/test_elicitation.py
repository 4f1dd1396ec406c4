"""A question that only a person may answer, put to them by their own client, in both eras of the protocol."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult, TextContent
from mcp_types import ElicitRequestParams, ElicitResult

from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.surfaces.mcp.dialects import DEFAULT
from tests.support import proves

both_eras = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])


async def nothing() -> None:
    """For a person who only answers what their client asks."""


def client(
    settings: Settings,
    library: Path,
    era: Any,
    answer: ElicitResult,
    *,
    dialect: str = DEFAULT,
    before: Callable[[], Awaitable[None]] = nothing,
) -> Client:
    async def person(context: Any, params: ElicitRequestParams) -> ElicitResult:
        assert "May we begin?" in params.message
        await before()
        return answer

    environ = {**os.environ, "FIDELIO_HOME": str(settings.home.path), "FIDELIO_MIN_RESPONSE_SECONDS": "0"}
    arguments = ["-m", "fidelio", "mcp", "--workflows", str(library), "--dialect", dialect]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environ)
    return Client(stdio_client(server), mode=era, elicitation_callback=person)


async def call(connected: Client, tool: str, **arguments: Any) -> tuple[bool, Any]:
    result = await connected.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    block = result.content[0]
    assert isinstance(block, TextContent)
    return bool(result.is_error), block.text if result.is_error else json.loads(block.text)


async def reach_the_conductor(connected: Client) -> str:
    _, started = await call(connected, "start_session", workflow_id="score")
    _, entered = await call(connected, "next_activity", session_token=started["session_token"], activity_id="tune")
    _, yielded = await call(connected, "yield_checkpoint", session_token=entered["session_token"], checkpoint_id="conductor")
    return str(yielded["checkpoint_handle"])


@proves("sessions.person")
@both_eras
async def test_what_the_person_says_counts_whatever_the_model_passed_on(settings: Settings, library: Path, era: str) -> None:
    async with client(settings, library, era, ElicitResult(action="accept", content={"answer": "wait"})) as connected:
        handle = await reach_the_conductor(connected)
        failed, answered = await call(connected, "respond_checkpoint", checkpoint_handle=handle, option_id="begin")
    async with await open_ledger(settings.ledger) as ledger:
        (event,) = await ledger.events(types=["request.answered"])

    assert not failed
    assert answered["resolved_option"] == "wait"
    assert (event.body["option"], event.body["channel"], event.body["assurance"]) == ("wait", "elicited", "elicited")
    assert event.body["by"].startswith("person:")


@proves("sessions.person")
@both_eras
async def test_when_the_person_declines_nothing_is_recorded_and_the_gate_stays_closed(
    settings: Settings, library: Path, era: str
) -> None:
    async with client(settings, library, era, ElicitResult(action="decline")) as connected:
        handle = await reach_the_conductor(connected)
        failed, said = await call(connected, "respond_checkpoint", checkpoint_handle=handle, option_id="begin")
        _, status = await call(connected, "get_workflow_status", session_token=handle)

    assert failed
    assert "fidelio answer" in said
    assert status["status"] == "blocked"


WAIT = ElicitResult(action="accept", content={"answer": "wait"})


async def trace(connected: Client, token: str) -> list[tuple[str, str]]:
    _, found = await call(connected, "get_trace", session_token=token)
    return [(event["s"], event.get("err", "")) for event in found["events"] if event["name"] == "respond_checkpoint"]


@proves("sessions.one-call", "sessions.answer-once")
@both_eras
async def test_what_a_person_said_in_one_call_settles_nothing_for_the_next(settings: Settings, library: Path, era: str) -> None:
    async with client(settings, library, era, WAIT) as connected:
        handle = await reach_the_conductor(connected)
        await call(connected, "respond_checkpoint", checkpoint_handle=handle, option_id="begin")
        once = await trace(connected, handle)
        later = [
            await call(connected, "respond_checkpoint", checkpoint_handle=handle, **choice)
            for choice in ({"option_id": "begin"}, {"option_id": "nonsense"}, {"option_id": "wait", "auto_advance": True}, {})
        ]
        failed, confirmed = await call(connected, "respond_checkpoint", checkpoint_handle=handle, option_id="wait")

    assert once == [("ok", "")]
    assert [refused for refused, _ in later] == [True] * 4
    assert not failed
    assert confirmed["resolved_option"] == "wait"


@proves("sessions.one-call")
@both_eras
async def test_a_call_that_nobody_answers_is_one_refusal(settings: Settings, library: Path, era: str) -> None:
    async with client(settings, library, era, ElicitResult(action="decline")) as connected:
        handle = await reach_the_conductor(connected)
        await call(connected, "respond_checkpoint", checkpoint_handle=handle, option_id="begin")
    async with await open_ledger(settings.ledger) as ledger:
        calls = [event.body for event in await ledger.events(types=["tool.called"])]

    assert [one["err"] for one in calls if one["name"] == "respond_checkpoint"] == ["checkpoint.person"]


@proves("mcp.elsewhere", "sessions.one-call")
@both_eras
async def test_the_call_goes_on_with_what_the_person_has_answered_elsewhere(
    settings: Settings, library: Path, era: str
) -> None:
    async def elsewhere() -> None:
        async with await open_ledger(settings.ledger) as ledger:
            (request,) = (await ledger.requests()).items
            await Inbox(ledger).answer(request.id, "begin", by="person:a", channel="cli")

    async with client(settings, library, era, WAIT, before=elsewhere) as connected:
        handle = await reach_the_conductor(connected)
        failed, answered = await call(connected, "respond_checkpoint", checkpoint_handle=handle, option_id="wait")
        once = await trace(connected, handle)

    assert not failed, answered
    assert answered["resolved_option"] == "begin"
    assert once == [("ok", "")]
