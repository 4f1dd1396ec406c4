"""End-to-end test: the official MCP client, the server over stdio, SQLite, and a person at the command line."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from mcp import Client
from mcp.types import CallToolResult, TextContent

from tests.support import proves
from tests.surfaces.conftest import Connect, Fidelio


async def raw(client: Client, tool: str, **arguments: str) -> CallToolResult:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    return result


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await raw(client, tool, **arguments)
    assert not result.is_error, text_of(result)
    return dict(json.loads(text_of(result)))


async def refusal(client: Client, tool: str, **arguments: str) -> str:
    result = await raw(client, tool, **arguments)
    assert result.is_error
    return text_of(result)


async def yield_checkpoint(client: Client) -> dict[str, Any]:
    started = await call(client, "start_session", workflow_id="hello")
    entered = await call(client, "next_activity", session_token=started["session_token"], activity_id="greet")
    return await call(client, "yield_checkpoint", session_token=entered["session_token"], checkpoint_id="choose-tone")


async def finish(client: Client, token: str) -> dict[str, Any]:
    for activity in ("compose", "farewell", "__terminal__"):
        moved = await call(client, "next_activity", session_token=token, activity_id=activity)
        token = moved["session_token"]
    return await call(client, "get_workflow_status", session_token=token)


@proves("workflows.walk", "workflows.answer-from-elsewhere", "workflows.record", "inbox.lists", "inbox.person")
async def test_an_agent_walks_through_hello_and_a_person_answers_from_another_process(
    connect: Connect, fidelio: Fidelio
) -> None:
    async with connect() as client:
        yielded = await yield_checkpoint(client)
        waiting = json.loads(fidelio("inbox", "--json").stdout)["items"]
        assert [request["id"] for request in waiting] == [yielded["request_id"]]
        assert fidelio("answer", yielded["request_id"], "warm").returncode == 0

        resumed = await call(client, "resume_checkpoint", session_token=yielded["checkpoint_handle"])
        status = await finish(client, yielded["checkpoint_handle"])

    assert (resumed["option_id"], resumed["variables"]["tone"]) == ("warm", "warm")
    assert (status["status"], status["completed_activities"]) == ("completed", ["greet", "compose", "farewell"])
    assert fidelio("verify", "--all").stdout == "1 of 1 sessions hold.\n"
    assert "answered: local over cli, by person:" in fidelio("inbox", "--all").stdout


@proves("workflows.gate")
async def test_while_a_question_waits_no_token_moves_the_session(connect: Connect) -> None:
    async with connect() as client:
        started = await call(client, "start_session", workflow_id="hello")
        before = await call(client, "next_activity", session_token=started["session_token"], activity_id="greet")
        yielded = await call(client, "yield_checkpoint", session_token=before["session_token"], checkpoint_id="choose-tone")
        for token in (started["session_token"], before["session_token"], yielded["checkpoint_handle"]):
            assert "Active checkpoint" in await refusal(client, "next_activity", session_token=token, activity_id="compose")
            assert "Active checkpoint" in await refusal(client, "resume_checkpoint", session_token=token)

        status = await call(client, "get_workflow_status", session_token=started["session_token"])

    assert (status["status"], status["open_checkpoint"]) == ("blocked", "choose-tone")


@proves("workflows.one-answer", "cli.errors")
async def test_a_second_different_answer_is_refused_at_the_command_line(connect: Connect, fidelio: Fidelio) -> None:
    async with connect() as client:
        request = (await yield_checkpoint(client))["request_id"]

    first, same, other = (fidelio("answer", request, option) for option in ("warm", "warm", "brief"))
    unknown = fidelio("answer", request, "loud")

    assert (first.returncode, same.returncode, other.returncode, unknown.returncode) == (0, 0, 1, 2)
    assert "as it was answered before" in same.stdout
    assert other.stderr.startswith(f"fidelio: Request {request} is answered already, with warm by person:")
    assert other.stderr.endswith(". See what was answered with `fidelio inbox --all`.\n")
    assert "The options are: warm, brief, none." in unknown.stderr


@proves("inbox.person")
async def test_an_agent_that_fidelio_started_cannot_answer(connect: Connect, fidelio: Fidelio) -> None:
    async with connect() as client:
        request = (await yield_checkpoint(client))["request_id"]

    refused = fidelio("answer", request, "warm", FIDELIO_AGENT="s_0")

    assert refused.returncode == 2
    assert "only a person may do this" in refused.stderr


@proves("workflows.restart")
async def test_after_a_restart_the_agent_goes_on_with_the_token_it_holds(connect: Connect, fidelio: Fidelio) -> None:
    async with connect() as client:
        yielded = await yield_checkpoint(client)
    fidelio("answer", yielded["request_id"], "none")

    async with connect() as client:
        again = await call(client, "yield_checkpoint", session_token=yielded["checkpoint_handle"], checkpoint_id="choose-tone")
        status = await finish(client, yielded["checkpoint_handle"])

    assert (again["already_resolved"], again["resolved_option"]) == (True, "none")
    assert status["status"] == "completed"


@proves("workflows.ways")
async def test_every_way_out_says_whether_it_holds(connect: Connect, fidelio: Fidelio) -> None:
    async with connect() as client:
        yielded = await yield_checkpoint(client)
        fidelio("answer", yielded["request_id"], "none")
        activity = await raw(client, "get_activity", session_token=yielded["checkpoint_handle"])

    assert activity.meta is not None
    assert activity.meta["transitions"] == [
        {"to": "farewell", "holds": True, "default": False, "condition": "write_note == false"},
        {"to": "compose", "holds": False, "default": True},
    ]
    assert text_of(activity).startswith("session_token: s_")
    assert "\n\nid: greet\n" in text_of(activity)


@proves("workflows.two-movers")
async def test_two_servers_on_one_session_decide_one_after_the_other(connect: Connect) -> None:
    async with connect() as one, connect() as two:
        token = (await call(one, "start_session", workflow_id="hello"))["session_token"]
        token = (await call(one, "next_activity", session_token=token, activity_id="greet"))["session_token"]
        yields = [raw(client, "yield_checkpoint", session_token=token, checkpoint_id="choose-tone") for client in (one, two)]
        results = await asyncio.gather(*yields)
        status = await call(one, "get_workflow_status", session_token=token)

    assert sorted(bool(result.is_error) for result in results) == [False, True]
    assert status["status"] == "blocked"
