"""Reports and permission decisions for the updates of ACP agents, without a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from acp.schema import AgentMessageChunk, PermissionOption, PromptResponse, TextContentBlock, ToolCallProgress, ToolCallStart

from fidelio.orchestrator.blueprints.model import Blueprint, Permissions
from fidelio.orchestrator.executors.acp.conversation import append_schema
from fidelio.orchestrator.executors.acp.tool_calls import PermissionChooser, UpdateReporter, classify_change, tool_name
from fidelio.orchestrator.executors.contract import Reply
from fidelio.orchestrator.record.model import Usage
from fidelio.orchestrator.runs.results import extract_json
from tests.orchestrator.executors.recording import RecordingReporter, make_turn
from tests.support import proves

OPTIONS = [
    PermissionOption(option_id="once", name="Yes", kind="allow_once"),
    PermissionOption(option_id="tool", name="Always", kind="allow_always"),
    PermissionOption(option_id="no", name="No", kind="reject_once"),
]


def use(**values: Any) -> ToolCallStart:
    return ToolCallStart.model_validate({"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "", **values})


def progress(**values: Any) -> ToolCallProgress:
    return ToolCallProgress.model_validate({"sessionUpdate": "tool_call_update", "toolCallId": "c1", **values})


def chunk(text: str, message: str | None = None, **meta: Any) -> AgentMessageChunk:
    content = TextContentBlock(type="text", text=text)
    return AgentMessageChunk(session_update="agent_message_chunk", content=content, message_id=message, field_meta=meta)


@proves("agents.acp-tools")
@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"title": "look (ours MCP Server)"}, "mcp__ours__look"),
        ({"title": "{}", "_meta": {"toolName": "mcp__ours__look"}}, "mcp__ours__look"),
        ({"toolCallId": "mcp_ours_look__mcp_ours_look_17_0", "title": "Looks"}, "mcp__ours__look"),
        ({"title": "ours_look"}, "mcp__ours__look"),
        ({"title": "bash"}, "bash"),
        ({"title": "echo a > b", "kind": "execute"}, "execute"),
        ({"title": "Two words"}, "tool"),
    ],
)
def test_a_tool_has_the_same_name_in_every_agent(values: dict[str, Any], name: str) -> None:
    assert tool_name(use(**values), ["ours"]) == name


@proves("agents.acp-tools")
@pytest.mark.parametrize(
    ("kind", "path", "change"),
    [
        ("read", "/elsewhere", "nothing"),
        ("edit", "inside.txt", "files"),
        ("edit", "../outside.txt", "something"),
        ("edit", None, "something"),
        ("execute", "inside.txt", "something"),
        (None, None, "something"),
    ],
)
def test_only_files_of_the_project_are_files_of_the_project(kind: str, path: str | None, change: str, tmp_path: Path) -> None:
    locations = [{"path": path}] if path else []

    assert classify_change(use(kind=kind, locations=locations), tmp_path) == change


@proves("agents.acp-tools")
async def test_messages_are_reported_whole_and_calls_once() -> None:
    reporter = RecordingReporter()
    account = UpdateReporter(reporter, ["ours"])
    text = {"type": "content", "content": {"type": "text", "text": "three"}}
    for update in (
        chunk("I shall "),
        chunk("look."),
        use(title="ours_look", status="pending"),
        progress(status="in_progress", title="Looks", rawInput={"far": True}),
        progress(status="completed", content=[text]),
        progress(status="completed"),
        chunk("One.", "m1"),
        chunk("Two.", "m2", usage={"inputTokens": 7, "outputTokens": 2}),
    ):
        await account.report_update(update)
    await account.report_end(PromptResponse(stop_reason="end_turn"), None)

    assert reporter.texts == ["I shall look.", "One.", "Two."]
    assert reporter.calls == [("c1", "mcp__ours__look", {"far": True})]
    assert reporter.returns == [("c1", True, "three")]
    assert (account.last_message, reporter.usages[-1]) == ("Two.", Usage(turns=1, input_tokens=7, output_tokens=2))


@proves("agents.acp-leave")
@pytest.mark.parametrize(("option", "chosen"), [("allow", "once"), ("tool", "tool"), ("refuse", "no"), ("unheard of", None)])
async def test_a_call_is_asked_about_once_and_the_answer_is_an_option_of_the_agent(
    option: str, chosen: str | None, tmp_path: Path
) -> None:
    reporter = RecordingReporter(Reply(option=option))
    leave = PermissionChooser("The agent", make_turn(tmp_path), reporter)
    wanted = progress(title="make", kind="execute")

    assert [await leave.choose(wanted, "shell", OPTIONS) for _ in range(2)] == [chosen, chosen]
    (question,) = reporter.questions
    assert (question.key, question.text) == ("c1", "The agent wants to use shell: make")
    assert [name for name, _ in question.options] == ["allow", "tool", "refuse"]


@proves("agents.acp-leave")
@pytest.mark.parametrize(("deny", "chosen"), [((), "once"), (("execute",), "no")])
async def test_no_person_is_asked_what_the_permissions_decide(deny: tuple[str, ...], chosen: str, tmp_path: Path) -> None:
    blueprint = Blueprint(name="b", description="d", permissions=Permissions(mode="full", deny=deny))
    leave = PermissionChooser("The agent", make_turn(tmp_path, blueprint=blueprint), RecordingReporter())

    assert await leave.choose(progress(kind="execute"), "shell", OPTIONS) == chosen


@proves("agents.acp-schema")
@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('{"a": 1}', {"a": 1}),
        ('```json\n{"a": "```\\nb```"}\n```', {"a": "```\nb```"}),
        ('Here:\n```json\n{"a": 1}\n```\nor\n```\n{"a": 2}\n```', {"a": 2}),
        ("None at all.", "None at all."),
    ],
)
def test_a_structure_is_found_in_what_the_agent_says(text: str, data: Any) -> None:
    assert extract_json(text) == data


@proves("agents.acp-schema")
def test_the_prompt_contains_the_output_schema() -> None:
    assert append_schema("Do it.", None) == "Do it."
    assert '{"type": "object"}' in append_schema("Do it.", {"type": "object"})
