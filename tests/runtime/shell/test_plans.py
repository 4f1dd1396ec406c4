"""Suggestions: every one is a call that its tool accepts, and names only tools that the caller has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.runtime import events as e
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.shell.live import CurrentCommand, LiveShell
from fidelio.runtime.shell.plans import describe_plans, describe_posture, find_status, read_first_alternatives
from fidelio.runtime.tools.definitions import DEFINITIONS, SANDBOX_TOOL_NAMES
from fidelio.toolkit import read_arguments
from tests.runtime.shell.strategies import LIVE, RECORDS, fold_all
from tests.support import proves

CALLERS = st.sets(st.sampled_from(sorted(SANDBOX_TOOL_NAMES))).map(frozenset)
ALL = frozenset(SANDBOX_TOOL_NAMES)
OPEN = (e.SHELL_OPEN, {"shell_id": "shell_1", "incarnation": "box_1"})
STARTED = (e.COMMAND_STARTED, {"command_id": "cmd_1", "tool": "shell_exec", "command": "make", "cwd": "/tmp"})
ENDED = (e.COMMAND_ENDED, {"command_id": "cmd_1", "state": "completed", "exit_code": 0})
CLOSED = (e.SHELL_CLOSED, {"shell_id": "shell_1", "reason": "shell_exited"})


def suggestions(value: Any) -> Iterator[dict[str, Any]]:
    """Every suggested call anywhere in a result."""
    if isinstance(value, dict):
        if "tool" in value:
            yield value
        for item in value.values():
            yield from suggestions(item)
    elif isinstance(value, list):
        for item in value:
            yield from suggestions(item)


def named_tools(value: Any) -> set[str]:
    plan = value.get("busyPlan") or {}
    return {*plan.get("allowlistedReadTools", ()), *plan.get("avoidTools", ())}


def check(value: Any, tools: frozenset[str]) -> None:
    for suggestion in suggestions(value):
        assert suggestion["tool"] in tools
        read_arguments(suggestion["tool"], DEFINITIONS[suggestion["tool"]].parameters, suggestion["args"])
        assert suggestion["rationale"]


@proves("runtime.shell-plans")
@given(RECORDS, st.none() | LIVE, CALLERS)
def test_every_suggestion_is_a_valid_call_of_a_tool_that_the_caller_has(
    record: RuntimeRecord, live: LiveShell | None, tools: frozenset[str]
) -> None:
    posture = describe_posture(record, live, tools)
    alternatives = read_first_alternatives(record, live, tools)

    check(posture, tools)
    check(alternatives, tools)
    assert named_tools(posture) <= tools


@proves("runtime.shell-plans")
@given(RECORDS, st.none() | LIVE)
def test_a_caller_with_all_tools_always_knows_what_to_do(record: RuntimeRecord, live: LiveShell | None) -> None:
    plans = describe_plans(record.shell, live, ALL)
    status = find_status(record.shell, live)

    assert (plans["busyPlan"] is not None) == (status == "busy")
    assert (plans["recoveryPlan"] is not None) == (status in ("missing", "closed"))
    assert (plans["nextStep"] is None) == (status == "ready")


@proves("runtime.shell-plans")
@given(RECORDS, st.none() | LIVE, CALLERS)
def test_describe_never_suggests_itself(record: RuntimeRecord, live: LiveShell | None, tools: frozenset[str]) -> None:
    found = read_first_alternatives(record, live, tools, in_describe=True)

    assert "shell_describe" not in [suggestion["tool"] for suggestion in found]


@proves("runtime.shell-plans")
@pytest.mark.parametrize(
    ("events", "status", "step"),
    [
        ([], "missing", ("shell_open", {"cwd": "/workspace"})),
        ([OPEN], "ready", None),
        ([OPEN, CLOSED], "closed", ("shell_restart", {"cwd": "/workspace"})),
        ([OPEN, STARTED], "busy", ("shell_wait", {"commandId": "cmd_1", "timeoutMs": 1_000})),
        ([OPEN, STARTED, ENDED], "ready", None),
    ],
)
def test_the_next_step_follows_from_the_shell(events: list[Any], status: str, step: tuple[str, Any] | None) -> None:
    record = fold_all(events)
    next_step = describe_plans(record.shell, None, ALL)["nextStep"]

    assert find_status(record.shell, None) == status
    assert (next_step and (next_step["tool"], next_step["args"])) == step


@proves("runtime.shell-plans")
def test_a_busy_plan_shows_what_is_safe_what_is_not_and_what_was_printed() -> None:
    live = LiveShell("shell_1", True, True, current_command=CurrentCommand("cmd_1", "make", None, "50 %", "warning"))

    plan = describe_plans(fold_all([OPEN, STARTED]).shell, live, ALL)["busyPlan"]

    assert plan is not None
    assert plan["liveOutputPreview"] == {"stdout": "50 %", "stderr": "warning"}
    assert plan["evidencePlan"]["tool"] == "shell_read_last_output"
    assert {"bash", "read", "glob", "grep", "shell_wait"} <= set(plan["allowlistedReadTools"])
    assert plan["avoidTools"] == ["shell_run", "shell_exec", "shell_open", "shell_restart", "shell_close"]


@proves("runtime.shell-plans")
def test_a_preferred_alternative_comes_first_if_the_caller_has_its_tool() -> None:
    record = fold_all([OPEN, STARTED, ENDED])
    preferred = {"tool": "read", "args": {"path": "/workspace/x"}, "rationale": "The command only reads a file."}

    with_it = read_first_alternatives(record, None, ALL, preferred=preferred)
    without = read_first_alternatives(record, None, ALL - {"read"}, preferred=preferred)

    assert [found["tool"] for found in with_it] == ["read", "shell_describe", "bash", "shell_read_last_output"]
    assert "read" not in [found["tool"] for found in without]
