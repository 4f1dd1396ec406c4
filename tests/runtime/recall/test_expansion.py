"""The calls that show more of a hit, and the plan, without a ledger."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.runtime.durable_shell import CommandRecord, ShellRecord
from fidelio.runtime.navigation.verdicts import Standing
from fidelio.runtime.outcomes.record import Evaluation
from fidelio.runtime.recall.expansion import MAX_STEPS, PRIORITY, expand, plan_expansion, summarize_backends
from fidelio.runtime.recall.scoring import weigh_found
from tests.runtime.recall.support import ALL_TOOLS, check_call, make_found, make_outcome, make_session
from tests.support import proves

READY = Standing("pass", "improving", None)
NOT_READY = Standing("missing_outcome", None, None)
STALLED = Standing("not_ready", "stable", None)
RAN = ShellRecord(commands=(CommandRecord("c", "shell_run", "ls", "/workspace", 1, state="completed"),))


def evaluations(count: int) -> tuple[Evaluation, ...]:
    return tuple(Evaluation(f"w{number}", number, number, "fail", "stable") for number in range(count))


def step_of(tools: frozenset[str] = ALL_TOOLS, own_setup: str = "", **found: Any) -> dict[str, Any] | None:
    (candidate,) = weigh_found([make_found(**found)], make_session("s_own", setup=own_setup))
    return expand(candidate, tools)


S = {"sessionId": "s_other"}


@proves("recall.expansion")
@pytest.mark.parametrize(
    ("found", "tool", "args"),
    [
        ({"source": "learning"}, "learning_list", {"limit": 10}),
        ({"source": "workspace_memory"}, "memory_read", {"target": "workspace_memory"}),
        ({"source": "workspace_memory_notes"}, "memory_read", {"target": "workspace_memory_notes"}),
        ({"source": "session_checkpoint", "session": make_session()}, "session_get_snapshot", S),
        ({"source": "session_outcome", "session": make_session()}, "outcome_read", S),
        ({"source": "session_evaluation", "session": make_session()}, "outcome_evaluate", S),
        (
            {"source": "session_evaluation", "session": make_session(outcome=make_outcome("x", evaluations=evaluations(1)))},
            *("outcome_evaluate", S),
        ),
        (
            {"source": "session_evaluation", "session": make_session(outcome=make_outcome("x", evaluations=evaluations(3)))},
            *("outcome_history", {**S, "limit": 3}),
        ),
        (
            {"source": "session_evaluation", "session": make_session(outcome=make_outcome("x", evaluations=evaluations(9)))},
            *("outcome_history", {**S, "limit": 6}),
        ),
        ({"source": "session_state", "session": make_session()}, "memory_read", {**S, "target": "session_state"}),
        ({"source": "working_buffer", "session": make_session()}, "memory_read", {**S, "target": "working_buffer"}),
        ({"source": "shell_state", "session": make_session()}, "shell_describe", S),
        ({"source": "shell_state", "session": make_session(shell=RAN)}, "shell_read_last_output", S),
        ({"session": make_session(), "event": "e1", "wake": "w1"}, "session_get_trace", {**S, "wakeId": "w1"}),
        (
            {"session": make_session(), "event": "e1"},
            "session_get_events",
            {**S, "aroundEventId": "e1", "beforeLimit": 2, "afterLimit": 2, "includeProcessed": True},
        ),
        ({"source": "session_trace", "session": make_session(), "wake": "w1"}, "session_get_trace", {**S, "wakeId": "w1"}),
        ({"source": "vector", "session": make_session()}, "session_get_snapshot", S),
    ],
)
def test_every_source_has_its_call(found: dict[str, Any], tool: str, args: dict[str, Any]) -> None:
    step = step_of(**found)

    assert step is not None
    assert (step["tool"], step["args"]) == (tool, args)
    assert step["rationale"]
    check_call(step)


@proves("recall.expansion")
@pytest.mark.parametrize("source", ["session_context", "session_trace", "shell_state", "session_state", "session_outcome"])
def test_a_session_with_another_setup_is_compared_first(source: str) -> None:
    found: dict[str, Any] = {"source": source, "session": make_session(setup="f2", shell=RAN), "wake": "w1"}

    step = step_of(own_setup="f1", **found)
    assert step is not None
    assert (step["tool"], step["args"]) == ("agent_compare_setup", S)
    check_call(step)
    same = step_of(own_setup="f2", **found)
    assert same is not None
    assert same["tool"] != "agent_compare_setup"


@proves("recall.expansion")
def test_a_call_names_only_tools_that_the_caller_has() -> None:
    other = make_session(setup="f2")

    assert step_of(frozenset(), source="learning") is None
    step = step_of(frozenset({"session_get_trace"}), own_setup="f1", session=other, wake="w1", source="session_trace")
    assert step is not None
    assert step["tool"] == "session_get_trace"


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args, "rationale": "x"}


@proves("recall.plan")
def test_equal_calls_are_grouped_and_the_most_supported_comes_first() -> None:
    calls = [call("learning_list", limit=10), call("memory_read", target="x"), call("learning_list", limit=10), None]

    plan = plan_expansion(calls, READY)

    assert [(step["tool"], step["support"]) for step in plan] == [("learning_list", 2), ("memory_read", 1)]


@proves("recall.plan")
def test_of_equal_support_the_priority_of_the_tool_decides() -> None:
    plan = plan_expansion([call(tool) for tool in reversed(PRIORITY)], READY)

    assert [step["tool"] for step in plan] == list(PRIORITY[:MAX_STEPS])


@proves("recall.plan")
def test_until_the_own_outcome_is_reached_calls_that_verify_come_first() -> None:
    calls = [
        *([call("learning_list", limit=10)] * 3),
        *(call(tool) for tool in ("outcome_history", "outcome_evaluate", "outcome_read", "session_get_trace")),
    ]

    def order(standing: Standing) -> list[str]:
        return [step["tool"] for step in plan_expansion(calls, standing)]

    verifying = ["outcome_history", "outcome_evaluate", "learning_list", "outcome_read", "session_get_trace"]
    assert order(NOT_READY) == verifying
    assert order(READY)[0] == "learning_list"
    # The history becomes more urgent when nothing gets better, and another evaluation less.
    assert order(STALLED) == ["outcome_history", "learning_list", "outcome_read", "outcome_evaluate", "session_get_trace"]


@proves("recall.plan")
def test_the_summary_counts_the_hits_of_every_backend() -> None:
    session = make_session()
    found = [
        make_found(backend="memory", source="session_state", session=session),
        make_found(backend="session_context", session=make_session("s_b"), event="e", relevance=0.5),
    ]
    hits = weigh_found(found, make_session("s_own"))

    assert summarize_backends(hits, ("memory", "session_context", "vector")) == (
        {"backend": "memory", "count": 1, "topScore": 10},
        {"backend": "session_context", "count": 1, "topScore": 7},
        {"backend": "vector", "count": 0, "topScore": None},
    )
