"""Answers to the requests of Codex, without a program."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.orchestrator.blueprints.model import Permissions
from fidelio.orchestrator.executors.codex.messages import parse_item
from fidelio.orchestrator.executors.codex.questions import RequestHandler
from fidelio.orchestrator.executors.contract import Reply
from tests.orchestrator.executors.recording import RecordingReporter
from tests.support import proves

FORM = "mcpServer/elicitation/request"
CHOICE = {"type": "string", "oneOf": [{"const": "a", "title": "The first"}, {"const": "b"}]}
DECLINED = {"action": "decline", "content": None, "_meta": None}


def form(fields: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": fields}
    return {"serverName": "ours", "mode": "form", "_meta": None, "message": "Well?", "requestedSchema": schema}


async def decide(method: str, params: dict[str, Any], reporter: RecordingReporter, mode: Any = "ask") -> Any:
    return await RequestHandler(Permissions(mode=mode), reporter, {}).answer(method, params, 7)


@proves("agents.codex-form")
@pytest.mark.parametrize(
    ("fields", "reply", "content"),
    [
        ({"tone": CHOICE}, Reply(option="b"), {"tone": "b"}),
        ({"sure": {"type": "boolean"}}, Reply(option="true"), {"sure": True}),
        ({"count": {"type": "integer"}}, Reply(text="3"), {"count": 3}),
        ({"name": {"type": "string"}}, Reply(text="3"), {"name": "3"}),
        ({"a": {"type": "string"}, "b": {"type": "string"}}, Reply(text='{"a": "1", "b": "2"}'), {"a": "1", "b": "2"}),
        ({}, Reply(option="allow"), {}),
    ],
)
async def test_an_answer_reaches_the_server_in_its_form(fields: dict[str, Any], reply: Reply, content: dict[str, Any]) -> None:
    reporter = RecordingReporter(reply)

    assert await decide(FORM, form(fields), reporter) == {"action": "accept", "content": content, "_meta": None}
    assert (reporter.questions[0].kind, reporter.questions[0].text) == ("question", "ours asks: Well?")


@proves("agents.codex-form")
@pytest.mark.parametrize(
    ("fields", "reply"),
    [
        ({"tone": CHOICE}, Reply(option="decline")),
        ({}, Reply(option="refuse")),
        ({"a": {"type": "string"}, "b": {"type": "string"}}, Reply(text="neither")),
    ],
)
async def test_a_declined_form_is_reported_to_the_server(fields: dict[str, Any], reply: Reply) -> None:
    assert await decide(FORM, form(fields), RecordingReporter(reply)) == DECLINED


@proves("agents.permissions")
@pytest.mark.parametrize(("mode", "decision"), [("full", "accept"), ("read", "decline")])
async def test_no_person_is_asked_what_the_permissions_decide(mode: str, decision: str) -> None:
    reporter = RecordingReporter()
    command = {"itemId": "c1", "command": "make"}

    assert await decide("item/commandExecution/requestApproval", command, reporter, mode) == {"decision": decision}
    assert reporter.questions == []


@proves("agents.permissions")
@pytest.mark.parametrize(("option", "granted"), [("allow", {"network": {"enabled": True}}), ("refuse", {})])
async def test_more_permissions_are_granted_for_one_turn_or_not_at_all(option: str, granted: dict[str, Any]) -> None:
    wanted = {"itemId": "c1", "reason": "The network.", "permissions": {"network": {"enabled": True}}}
    answer = await decide("item/permissions/requestApproval", wanted, RecordingReporter(Reply(option=option)))

    assert answer == {"permissions": granted, "scope": "turn"}


@proves("agents.codex-question")
async def test_an_unknown_request_is_not_answered() -> None:
    assert await decide("item/tool/call", {}, RecordingReporter()) is None


DELETE, READ = ("delete", {"path": "a"}), ("read", {"path": "b"})


@proves("agents.permissions", "agents.codex-question")
@pytest.mark.parametrize(
    ("waiting", "arguments", "asked"),
    [
        ((DELETE, READ), {"path": "a"}, ["i0"]),
        ((DELETE, READ), {"path": "b"}, []),
        ((READ, READ), {"path": "b"}, []),
        ((("delete", {}), ("read", None)), {}, ["elicitation-7"]),
        ((READ,), {"path": "c"}, ["elicitation-7"]),
    ],
)
async def test_permission_for_a_tool_does_not_allow_another_that_waits_with_it(
    waiting: tuple[tuple[str, Any], ...], arguments: Any, asked: list[str]
) -> None:
    begun = {
        f"i{number}": {"type": "mcpToolCall", "server": "s", "tool": tool, "arguments": given, "status": "inProgress"}
        for number, (tool, given) in enumerate(waiting)
    }
    items = {name: parse_item({"id": name, **raw}) for name, raw in begun.items()}
    leave = {"codex_approval_kind": "mcp_tool_call", "tool_params": arguments}
    reporter = RecordingReporter(Reply(option="refuse"))

    await RequestHandler(Permissions(allow=("mcp__s__read",)), reporter, items).answer(
        FORM, {"serverName": "s", "message": "May it?", "_meta": leave}, 7
    )

    assert [question.key for question in reporter.questions] == asked
