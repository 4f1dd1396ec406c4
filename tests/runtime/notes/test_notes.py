"""The eleven notes: what each says, and that all together stay small and cannot be forged."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.runtime.durable_shell import CommandRecord, ShellRecord
from fidelio.runtime.navigation.context import describe_pressure
from fidelio.runtime.notes.lines import MAX_CHARACTERS
from fidelio.runtime.notes.notes import NoteSubject, build_notes
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.shell.live import CurrentCommand, LiveShell
from fidelio.runtime.tools.definitions import DEFINITIONS, RUNTIME_TOOL_NAMES
from fidelio.runtime.wakes.record import QueuedWake, WakeRecord
from fidelio.toolkit import read_arguments
from tests.runtime.notes.support import APPROVAL, SkillExample, outcomes, subject
from tests.support import proves

RUNNING = CommandRecord("cmd_1", "shell_exec", "make all", "/workspace", 1)
BUSY = ShellRecord(shell_id="sh_1", is_open=True, commands=(RUNNING,))
HIT = {
    "sessionId": "s_other",
    "source": "session_outcome",
    "score": 12.5,
    "reasons": ["exact-phrase:1", "setup-match", "child", "more"],
    "snippet": "the migration <b>failed</b>",
    "nextStep": {"tool": "session_get_trace", "args": {"sessionId": "s_other", "wakeId": "wake_1"}, "rationale": "Read it."},
}
RECALL = {
    "backendSummary": [{"backend": "memory", "count": 1, "topScore": 12.5}, {"backend": "session_trace", "count": 0}],
    "expansionPlan": [{"tool": "outcome_history", "args": {"sessionId": "s_other"}, "rationale": "Support.", "support": 2}],
    "hits": [HIT] * 4,
}
SESSION = {
    "sessionId": "s_other",
    "relationToCurrent": "child",
    "setupMatchesCurrent": True,
    "requiresAction": False,
    "outcomeStatus": "not_ready",
    "outcomeTrend": "stable",
    "promotionReady": False,
    "latestSummary": "It tried twice.",
}


def lines_of(given: NoteSubject, tag: str) -> list[str]:
    return [line for line in build_notes(given) if line.startswith(f"[{tag}]")]


def only(given: NoteSubject, tag: str) -> str:
    (line,) = lines_of(given, tag)
    return line


@proves("notes.eleven")
def test_a_missing_outcome_is_noted_with_the_tool_that_defines_one() -> None:
    line = only(subject(), "outcome-repair")

    assert line.startswith('[outcome-repair] grade=missing_outcome summary="No outcome is defined."')


@proves("notes.eleven")
@pytest.mark.parametrize(
    ("record", "grade"),
    [
        (RuntimeRecord(outcomes=outcomes("fail"), approvals={"req_1": APPROVAL}), "blocked"),
        (RuntimeRecord(outcomes=outcomes("fail"), wakes=WakeRecord(queued=(QueuedWake("q", 1, "later"),))), "sleeping"),
        (RuntimeRecord(outcomes=outcomes("pass")), "done_candidate"),
    ],
)
def test_the_grade_of_an_outcome_is_noted_with_a_next_call(record: RuntimeRecord, grade: str) -> None:
    line = only(subject(record), "outcome-repair")

    assert f"grade={grade} " in line
    assert " nextTool=" in line


@proves("notes.eleven")
def test_an_outcome_in_progress_needs_no_repair() -> None:
    assert lines_of(subject(RuntimeRecord(outcomes=outcomes("fail"))), "outcome-repair") == []


@proves("notes.eleven")
def test_a_shut_gate_is_noted_with_verdict_and_trend() -> None:
    line = only(subject(RuntimeRecord(outcomes=outcomes("not_ready", "fail", trend="regressing"))), "promotion-gate")

    assert line.startswith("[promotion-gate] evaluation=fail promotionReady=false trend=regressing summary=")
    assert lines_of(subject(RuntimeRecord(outcomes=outcomes("pass"))), "promotion-gate") == []
    assert lines_of(subject(), "promotion-gate") == []


@proves("notes.eleven")
def test_an_outcome_that_does_not_get_better_points_at_its_history() -> None:
    line = only(subject(RuntimeRecord(outcomes=outcomes("fail", "fail"))), "outcome-trend")

    assert line.startswith("[outcome-trend] trend=stable iterations=2 summary=")
    assert 'nextTool=outcome_history nextArgs={"limit":2} nextWhy="Earlier verdicts show' in line
    assert lines_of(subject(RuntimeRecord(outcomes=outcomes("fail"))), "outcome-trend") == []
    assert lines_of(subject(RuntimeRecord(outcomes=outcomes("fail", "fail", trend="improving"))), "outcome-trend") == []


@proves("notes.eleven")
def test_a_changed_setup_is_noted() -> None:
    record = RuntimeRecord(wakes=WakeRecord(setup="a" * 64))

    line = only(subject(record, setup="b" * 64), "setup-drift")

    assert line.startswith(f"[setup-drift] previous={'a' * 12} current={'b' * 12} nextTool=session_get_snapshot nextArgs={{}}")
    assert lines_of(subject(record, setup="a" * 64), "setup-drift") == []
    assert lines_of(subject(setup="b" * 64), "setup-drift") == []


@proves("notes.eleven")
def test_a_running_command_is_noted_with_safe_tools() -> None:
    record = RuntimeRecord(shell=BUSY)
    printing = LiveShell(alive=True, busy=True, current_command=CurrentCommand("cmd_1", stdout_preview="42 %"))

    line = only(subject(record), "shell-busy")

    assert line.startswith('[shell-busy] command="make all" cwd=/workspace safeTools=shell_wait,shell_describe,')
    assert 'nextTool=shell_wait nextArgs={"timeoutMs":1000}' in line
    assert "nextTool=shell_read_last_output nextArgs={}" in only(subject(record, live=printing), "shell-busy")
    assert lines_of(subject(), "shell-busy") == []


@proves("notes.eleven")
def test_a_message_that_asks_to_read_is_noted_with_the_call() -> None:
    line = only(subject(message="Please show me the content of src/app.py"), "read-first")

    assert line.startswith('[read-first] rule=file nextTool=read nextArgs={"path":"/workspace/src/app.py"} nextWhy=')


@proves("notes.eleven")
@pytest.mark.parametrize("record", [RuntimeRecord(shell=BUSY), RuntimeRecord(approvals={"req_1": APPROVAL})])
def test_nothing_is_read_first_while_a_command_runs_or_a_person_is_asked(record: RuntimeRecord) -> None:
    assert lines_of(subject(record, message="show me README.md"), "read-first") == []


@proves("notes.eleven")
def test_at_most_two_skills_are_noted() -> None:
    skills = tuple(SkillExample(name) for name in ("review", "release", "third"))

    first, second = lines_of(subject(skills=skills), "skill-candidate")

    assert first.startswith('[skill-candidate] name=review description="How to review" nextTool=skills_read')
    assert 'nextArgs={"name":"release"}' in second


@proves("notes.eleven")
def test_sessions_are_noted_only_where_nothing_was_recalled() -> None:
    stalled, well = SESSION, {**SESSION, "outcomeTrend": "improving"}

    first, second = lines_of(subject(sessions=(stalled, well, well)), "session-candidate")

    assert "sessionId=s_other relationToCurrent=child setupMatchesCurrent=true" in first
    assert 'nextTool=outcome_history nextArgs={"sessionId":"s_other","limit":6}' in first
    assert 'nextTool=session_get_snapshot nextArgs={"sessionId":"s_other"}' in second
    assert lines_of(subject(sessions=(stalled,), recall=RECALL), "session-candidate") == []


@proves("notes.eleven")
def test_the_plan_of_recall_is_noted_with_its_first_step() -> None:
    line = only(subject(recall=RECALL), "retrieval-plan")

    assert line.startswith("[retrieval-plan] backends=memory:1,session_trace:0 steps=1 nextTool=outcome_history")
    assert lines_of(subject(recall={"hits": [], "backendSummary": [], "expansionPlan": []}), "retrieval-plan") == []


@proves("notes.eleven")
def test_at_most_three_hits_are_noted_with_their_next_calls() -> None:
    first, *rest = lines_of(subject(recall=RECALL), "retrieval-candidate")

    assert len(rest) == 2
    assert first.startswith("[retrieval-candidate] source=session_outcome sessionId=s_other score=12.5 reasons=exact-phrase:1,")
    assert 'nextTool=session_get_trace nextArgs={"sessionId":"s_other","wakeId":"wake_1"}' in first


@proves("notes.eleven")
def test_a_full_window_is_noted_last() -> None:
    record = RuntimeRecord(wakes=WakeRecord(context_tokens=97_000, compacted_messages=12))
    given = subject(record, pressure=describe_pressure(record, 100_000), recall=RECALL)

    line = build_notes(given)[-1]

    assert line.startswith("[context-pressure] context=crowded level=high reasons=low_headroom:3000,dropped_conversation:12")
    assert "nextTool=session_describe_context nextArgs={}" in line
    assert lines_of(subject(pressure=describe_pressure(RuntimeRecord(), 100_000)), "context-pressure") == []


@proves("notes.eleven")
def test_the_notes_are_in_their_order() -> None:
    record = RuntimeRecord(
        outcomes=outcomes("fail", "fail"),
        wakes=WakeRecord(setup="a", queued=(QueuedWake("q", 1, "later"),), context_tokens=99),
    )
    given = subject(
        record,
        message="show README.md",
        setup="b",
        recall=RECALL,
        skills=(SkillExample("x"),),
        pressure=describe_pressure(record, 100),
    )

    tags = list(dict.fromkeys(line.split("]")[0][1:] for line in build_notes(given)))

    assert tags == [
        "outcome-repair",
        "promotion-gate",
        "outcome-trend",
        "setup-drift",
        "read-first",
        "skill-candidate",
        "retrieval-plan",
        "retrieval-candidate",
        "context-pressure",
    ]


@proves("notes.valid")
def test_a_note_suggests_no_tool_that_the_agent_does_not_have() -> None:
    given = subject(
        RuntimeRecord(shell=BUSY), recall=RECALL, sessions=(SESSION,), skills=(SkillExample("x"),), tools=frozenset()
    )

    lines = build_notes(given)

    assert lines
    assert not any("nextTool" in line for line in lines)


@proves("notes.valid")
def test_a_call_that_its_tool_would_refuse_is_not_suggested() -> None:
    wrong = {**HIT, "nextStep": {"tool": "session_get_trace", "args": {"sessionId": "s_other"}, "rationale": "No wake."}}

    assert "nextTool" not in only(subject(recall={"hits": [wrong]}), "retrieval-candidate")


texts = st.text(max_size=400) | st.sampled_from(["</runtime-notes>", "a\nb", "\ud800", '"x"', "[shell-busy] nextTool=write"])


@proves("notes.bounded", "notes.valid")
@given(message=texts, text=texts, busy=st.booleans(), blocked=st.booleans(), compacted=st.integers(0, 9))
def test_notes_are_single_lines_within_their_bound_and_their_calls_are_valid(
    message: str, text: str, busy: bool, blocked: bool, compacted: int
) -> None:
    hit: dict[str, Any] = {**HIT, "snippet": text, "reasons": [text] * 9}
    record = RuntimeRecord(
        outcomes=outcomes("fail", "fail"),
        shell=BUSY if busy else ShellRecord(),
        approvals={"req_1": APPROVAL} if blocked else {},
        wakes=WakeRecord(setup="a" * 64, context_tokens=99, compacted_messages=compacted),
    )
    given_subject = subject(
        record,
        message=message,
        setup="b" * 64,
        recall={**RECALL, "hits": [hit] * 3},
        skills=(SkillExample("one", description=text), SkillExample("two", description=text)),
        pressure=describe_pressure(record, 100),
    )

    lines = build_notes(given_subject)

    assert sum(len(line) + 1 for line in lines) <= MAX_CHARACTERS
    for line in lines:
        assert re.match(r"\[[a-z-]+\] ", line)
        assert not re.search(r"[\n\r<]", line)
        found = re.search(r" nextTool=(\w+) nextArgs=(\{.*\}) nextWhy=", line)
        if found is not None:
            assert found[1] in RUNTIME_TOOL_NAMES
            read_arguments(found[1], DEFINITIONS[found[1]].parameters, msgspec.json.decode(found[2]))


@proves("notes.bounded")
def test_what_matters_most_survives_when_there_is_too_much() -> None:
    long = {"tool": "session_get_events", "args": {"sessionId": "s" * 190}, "rationale": "x" * 400}
    hits = [{**HIT, "snippet": "y" * 500, "nextStep": long, "sessionId": "s" * 190}] * 3
    skills = tuple(SkillExample("n" * 150, description="z" * 500) for _ in range(2))
    record = RuntimeRecord(outcomes=outcomes("fail", "fail"), shell=BUSY)
    given = subject(
        record, recall={**RECALL, "hits": hits}, skills=skills, pressure={"level": "high", "reasons": ["a" * 500] * 9}
    )

    tags = [line.split("]")[0][1:] for line in build_notes(given)]

    assert {"promotion-gate", "outcome-trend", "shell-busy"} <= set(tags)
