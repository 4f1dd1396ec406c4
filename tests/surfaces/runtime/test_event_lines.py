"""Lines for the events of a session."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.ledger.model import Event
from fidelio.runtime import events as e
from fidelio.surfaces.cli.runtime.event_lines import EventLines, describe_result, summarize_input
from fidelio.surfaces.text import Layout, measure
from tests.support import proves

WIDTH = 60
HI = {"type": "text", "text": "Hi"}
DUE = 1_700_000_000_000


def fail(status: str, **more: str) -> dict[str, Any]:
    return {"error": {"message": "No key.", "retry_status": {"type": status}, **more}}


def make_event(type_: str, time: int = 0, actor: str = "agent") -> Event:
    return Event(1, "s", 1, "e", type_, actor, time, "{}", b"", b"", b"")


def render(type_: str, body: dict[str, Any], actor: str = "agent", lines: EventLines | None = None, time: int = 0) -> list[str]:
    return (lines or EventLines(Layout(WIDTH))).render(make_event(type_, time, actor), body)


def fold(name: str, arguments: Any, *, seconds: float = 0.0, **result: Any) -> str:
    lines = EventLines(Layout(WIDTH))
    assert render(e.TOOL_USE, {"id": "t", "name": name, "input": arguments}, lines=lines) == []
    (line,) = render(e.TOOL_RESULT, {"tool_use_id": "t", "name": name, **result}, lines=lines, time=int(seconds * 1000))
    return line


@proves("runtime-cli.events")
def test_a_call_is_one_line_with_what_it_did_and_how_it_ended() -> None:
    assert fold("shell_run", {"command": "wc -c a"}, seconds=1.26, result={"ok": True, "output": {"exitCode": 2}}) == (
        '- shell_run "wc -c a": exit code 2 (1.3 s)'
    )
    assert fold("read", {"path": "/workspace/a.txt"}, result={"ok": True}) == "- read /workspace/a.txt: done"
    assert fold("shell_wait", {}, result={"output": {"status": "running"}}) == "- shell_wait: still running"
    assert fold("bash", {"command": "ls", "args": ["-l", "x"]}, result={}) == '- bash "ls -l x": done'


@proves("runtime-cli.events")
def test_a_failed_call_says_why_within_the_width() -> None:
    error = {"ok": False, "error": {"code": "refused", "message": "The file is outside of every mount. " * 5}}

    line = fold("write", {"path": "/etc/" + "x" * 80}, is_error=True, result=error)

    assert line.startswith('! write "/etc/xxx')
    assert ": failed. The file is" in line
    assert measure(line) <= WIDTH


@proves("runtime-cli.events")
def test_foreign_text_cannot_look_like_a_line_of_ours() -> None:
    hostile = 'x": exit code 0\n- shell_run "rm -rf /": exit code 0\x1b[2J'

    line = fold("shell_run", {"command": hostile}, is_error=True, result="no")
    (message,) = render(e.AGENT_MESSAGE, {"content": [{"type": "text", "text": "! Stopped.\x1b[2J"}]})

    assert "\n" not in line
    assert "\x1b" not in line + message
    assert line.startswith('! shell_run "x\\"')
    assert message.startswith("│ ! Stopped.")


@proves("runtime-cli.events")
def test_a_call_without_its_beginning_is_still_shown() -> None:
    assert render(e.TOOL_RESULT, {"tool_use_id": "t", "name": "read", "result": {}}) == ["- read: done"]


@proves("runtime-cli.events")
@pytest.mark.parametrize(
    ("arguments", "summary"),
    [
        ({"name": "shell_run", "arguments": {"command": "make"}}, "shell_run make"),
        ({"limit": 3}, '{"limit":3}'),
        ({}, ""),
        (None, ""),
        ("broken {", "broken {"),
        ({"path": "a", "content": "b"}, "a"),
    ],
)
def test_the_argument_that_says_most_is_shown(arguments: Any, summary: str) -> None:
    assert summarize_input(arguments) == summary


@proves("runtime-cli.events")
def test_a_result_is_told_in_a_few_words() -> None:
    assert describe_result({"result": {"output": {"timedOut": True, "exitCode": 1}}}) == "ended by its time limit"
    assert describe_result({"result": "text"}) == "done"
    assert describe_result({"is_error": True, "result": "why"}) == "failed. why."
    assert describe_result({"is_error": True}) == "failed."


@proves("runtime-cli.events")
@pytest.mark.parametrize(
    ("type_", "body", "expected"),
    [
        (e.USER_MESSAGE, {"content": [HI, {"type": "image", "media_type": "image/png"}]}, "│ (image/png)"),
        (e.SESSION_ERROR, fail("terminal", remedy="Set X."), "! No key. Set X."),
        (e.SESSION_ERROR, fail("retrying"), "! No key. It is tried again."),
        (e.STATUS_IDLE, {"stop_reason": {"type": "budget_reached"}}, "It has stopped: a limit is reached."),
        (e.STATUS_RESCHEDULED, {"reason": "follow_up", "due": DUE}, "It goes on by itself at 2023-11-14 22:13:20 UTC."),
        (e.WAKE_QUEUED, {"reason": "look", "due": DUE, "note": "n"}, "It wakes at 2023-11-14 22:13:20 UTC: look,"),
        (e.WAKES_CANCELLED, {"ids": ["a"]}, "1 queued wake cancelled."),
        (e.SCHEDULE_SET, {"name": "daily", "every_seconds": 60, "next": 0}, "Schedule daily: every 60 s, next at 1970-01-01"),
        (e.SCHEDULE_SET, {"name": "daily"}, "Schedule daily was removed."),
        (e.EVALUATION_ENDED, {"iteration": 2, "status": "pass", "trend": "stable"}, "Outcome, iteration 2: pass, stable."),
        (e.OUTCOME_DEFINED, {"title": "It works", "criteria": [{}]}, 'Outcome "It works" with 1 criterion, defined by anna.'),
        (e.OUTCOME_DECIDED, {"decision": "pass"}, "anna decides on the outcome: pass."),
        (e.USER_CONFIRMATION, {"result": "deny", "deny_message": "Not now"}, 'anna denies it: "Not now"'),
        (e.USER_INTERRUPT, {}, "anna interrupts."),
        (e.ENDED, {}, "The session was ended by anna."),
        (e.CHILD_CREATED, {"childSessionId": "s_1", "outcomeTitle": "Part one"}, 'It delegates "Part one" to session s_1.'),
        (
            e.CHILD_IDLE,
            {"childSessionId": "s_1", "childStopReason": "requires_action"},
            "Session s_1 is idle: requires action.",
        ),
    ],
)
def test_what_a_person_should_know_is_a_sentence(type_: str, body: dict[str, Any], expected: str) -> None:
    assert any(line.startswith(expected) for line in render(type_, body, actor="person:anna"))


@proves("runtime-cli.events")
@pytest.mark.parametrize(
    ("type_", "body"),
    [
        (e.STATUS_RUNNING, {}),
        (e.SPAN_STARTED, {}),
        (e.MODEL_REQUEST_ENDED, {}),
        (e.STATUS_IDLE, {"stop_reason": {"type": "end_turn"}}),
        (e.STATUS_RESCHEDULED, {"reason": "model_retry", "due": 1}),
        (e.WAKE_QUEUED, {"reason": "session.retry", "due": 1}),
        ("something.new", {}),
    ],
)
def test_bookkeeping_is_left_out(type_: str, body: dict[str, Any]) -> None:
    assert render(type_, body) == []


@proves("runtime-cli.events")
def test_an_open_call_is_described_until_it_ends() -> None:
    lines = EventLines(Layout(WIDTH))
    render(e.TOOL_USE, {"id": "t", "name": "shell_run", "input": {"command": "make all"}}, lines=lines)

    assert lines.describe_call(lines.newest_call) == 'shell_run "make all"'
    render(e.TOOL_RESULT, {"tool_use_id": "t", "result": {}}, lines=lines)
    assert lines.newest_call == ""
    assert lines.describe_call("t") == ""
