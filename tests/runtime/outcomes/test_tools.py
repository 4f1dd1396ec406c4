"""The tools for outcomes through the service, with every commit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import UsageProblem
from fidelio.ledger.model import NewEvent
from fidelio.runtime import events as e
from fidelio.runtime.calls import Calls, Finished
from fidelio.runtime.outcomes.decisions import decide_outcome
from fidelio.runtime.outcomes.evaluation import read_verdict
from fidelio.runtime.outcomes.record import Criterion, CriterionResult, Evaluation, Outcome, OutcomesRecord
from fidelio.runtime.outcomes.verdicts import find_gate_step, read_grade
from fidelio.runtime.record import ApprovalRecord, RuntimeRecord, RuntimeRecords, fold
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.runtime.tools.model import CallOrigin
from fidelio.runtime.wakes.record import OpenCall, QueuedWake, WakeRecord
from fidelio.sandbox.model import SandboxState
from tests.runtime.outcomes.support import ALL, Grader, OutcomeBench
from tests.support import proves

EXISTS = {"text": "The file exists", "check": {"type": "file_exists", "path": "a.txt"}}


def start_command(command: str, box: str) -> NewEvent:
    body = {"command_id": command, "tool": "shell_exec", "command": "sleep 9", "cwd": "/workspace", "incarnation": box}
    return NewEvent(type=e.COMMAND_STARTED, body=body, actor="agent")


async def make_busy(bench: OutcomeBench, session: str) -> None:
    """A live sandbox whose shell runs a command."""
    bench.sandboxes.live[session] = SandboxState(session, "box_1", "bubblewrap", 1)
    await bench.append(
        session,
        NewEvent(type=e.SANDBOX_STARTED, body={"level": "bubblewrap", "incarnation": "box_1"}),
        start_command("cmd_1", "box_1"),
    )
    bench.sandboxes.replies["wait_persistent_shell"] = lambda _, __: {"commandId": "cmd_1", "status": "running"}


@proves("outcomes.definition", "outcomes.other-sessions")
async def test_an_agent_defines_reads_and_evaluates_its_outcome(bench: OutcomeBench) -> None:
    session = await bench.open()
    defined = await bench.call(session, "outcome_define", title="Ship", detail="Soon", successCriteria=[EXISTS])
    assert (defined["activeOutcome"]["author"], defined["replaced"]) == ("agent", None)
    (event,) = await bench.context.ledger.events(session, types=(e.OUTCOME_DEFINED,))
    assert event.id == defined["eventId"]

    read = await bench.call(session, "outcome_read")
    assert read["activeOutcome"]["successCriteria"] == [EXISTS]
    before = await bench.call(session, "outcome_evaluate")
    (await bench.workspace(session) / "a.txt").write_text("x")
    after = await bench.call(session, "outcome_evaluate")
    graded = await bench.call(session, "outcome_grade")
    history = await bench.call(session, "outcome_history", limit=1)

    assert (before["evaluation"]["status"], after["evaluation"]["status"]) == ("fail", "pass")
    assert (before["evaluation"]["trend"], after["evaluation"]["trend"]) == ("first_iteration", "improving")
    assert (before["grade"]["status"], graded["grade"]["status"]) == ("in_progress", "done_candidate")
    assert (graded["grade"]["matchedCriteria"], graded["grade"]["totalCriteria"]) == (1, 1)
    assert (history["count"], len(history["evaluations"]), history["latestIteration"]) == (2, 1, 1)


@proves("outcomes.authors")
async def test_a_persons_outcome_is_neither_replaced_nor_hidden_by_an_agents(bench: OutcomeBench) -> None:
    session = await bench.open()
    await bench.define(session, "Ship", EXISTS)
    refused = await bench.refuse(session, "outcome_define", title=" ship ", successCriteria=["easy"])
    assert "defined by a person" in refused["error"]["message"]

    (await bench.workspace(session) / "b.txt").write_text("x")
    easy = {"text": "easy", "check": {"type": "file_exists", "path": "b.txt"}}
    await bench.call(session, "outcome_define", title="Another", successCriteria=[easy])
    found = await bench.call(session, "outcome_evaluate")
    assert found["activeOutcome"]["title"] == "Another"
    assert (found["evaluation"]["outcomeTitle"], found["evaluation"]["status"]) == ("Ship", "fail")
    assert [each["status"] for each in found["evaluations"]] == ["pass"]


@proves("outcomes.other-sessions")
async def test_an_outcome_of_another_session_is_read_and_never_written_or_evaluated(bench: OutcomeBench) -> None:
    one, two = await bench.open("one"), await bench.open("two")
    await bench.define(two, "Ship", EXISTS)
    before = (await bench.record(two)).seq
    refused = await bench.refuse(one, "outcome_define", sessionId=two, title="Mine")
    seen = await bench.call(one, "outcome_evaluate", sessionId=two)

    assert refused["error"]["code"] == "other_session"
    assert (seen["sessionId"], seen["evaluation"]["status"]) == (two, "not_ready")
    assert seen["evaluation"]["nextSuggestedTool"]["args"] == {"sessionId": two}
    assert (await bench.record(two)).seq == before
    assert (await bench.call(one, "outcome_history", sessionId=two))["count"] == 0
    assert (await bench.refuse(one, "outcome_read", sessionId="s_other"))["error"]["code"] == "session_not_found"


@proves("outcomes.suggestions", "outcomes.verdict-order")
async def test_a_busy_shell_is_not_ready_points_at_shell_wait_and_starts_nothing(bench: OutcomeBench) -> None:
    session, other = await bench.open(), await bench.open("other")
    (await bench.workspace(session) / "a.txt").write_text("x")
    await bench.define(session, "Ship", EXISTS)
    await make_busy(bench, session)
    found = (await bench.call(session, "outcome_evaluate"))["evaluation"]

    assert (found["status"], found["promotionReady"]) == ("not_ready", False)
    assert found["nextSuggestedTool"]["tool"] == "shell_wait"
    assert found["nextSuggestedTool"]["args"]["commandId"] == "cmd_1"
    assert [spec for spec in bench.sandboxes.calls if ":check" in spec[0]] == []
    # Read live for another session, too.
    assert (await bench.call(other, "outcome_evaluate", sessionId=session))["evaluation"]["status"] == "not_ready"

    bench.sandboxes.replies["wait_persistent_shell"] = lambda _, __: {
        "commandId": "cmd_1",
        "status": "completed",
        "exitCode": 0,
    }
    assert (await bench.call(session, "outcome_evaluate"))["evaluation"]["status"] == "pass"


@proves("outcomes.grade")
async def test_tools_that_only_read_run_neither_a_check_nor_a_sandbox(bench: OutcomeBench) -> None:
    session = await bench.open()
    await bench.define(session, "Ship", EXISTS, "It is nice")
    for tool in ("outcome_read", "outcome_grade", "outcome_history"):
        await bench.call(session, tool)
    await bench.call(session, "permissions_check", toolName="shell_run")

    assert bench.sandboxes.calls == []
    assert await bench.context.ledger.events(session, types=(e.EVALUATION_ENDED,)) == ()


@proves("outcomes.grader", "outcomes.history")
async def test_an_evaluation_of_a_wake_uses_its_grader_and_leaves_one_entry_for_the_wake(bench: OutcomeBench) -> None:
    session = await bench.open()
    await bench.define(session, "Ship", "The report exists")
    await bench.call(session, "write", path="report.md", content="x\n")
    grader, calls = Grader(), Calls(bench.context)
    for number in range(2):
        use = {"id": f"toolu_{number}", "name": "outcome_evaluate", "input": {"text": "{}"}, "wake_id": "wake_1"}
        await bench.append(session, NewEvent(type=e.TOOL_USE, body=use, actor="agent"))
        origin = CallOrigin(wake="wake_1", tool_use=f"toolu_{number}", grade=grader)
        done = await calls.carry_out(session, "outcome_evaluate", {}, tools=ALL, origin=origin)
        assert isinstance(done, Finished)
        assert done.output["evaluation"]["status"] == "pass"
    await bench.evaluate(session, "wake_1", grader)

    history = await bench.call(session, "outcome_history")
    assert (history["count"], history["latestIteration"]) == (1, 0)
    assert history["evaluations"][0]["wakeId"] == "wake_1"
    assert len(grader.requests) == 3


@proves("outcomes.decisions")
async def test_a_person_decides_an_outcome_until_it_is_replaced(bench: OutcomeBench) -> None:
    session = await bench.open()
    outcome = await bench.define(session, "Ship", EXISTS)
    await decide_outcome(bench.context, session, outcome, "pass", by="anna", note="Looked at it.")
    found = (await bench.call(session, "outcome_evaluate"))["evaluation"]
    (event,) = await bench.context.ledger.events(session, types=(e.OUTCOME_DECIDED,))

    assert (found["status"], found["decidedBy"], event.actor) == ("pass", "anna", "anna")
    await bench.define(session, "Ship", EXISTS)
    assert (await bench.call(session, "outcome_evaluate"))["evaluation"]["status"] == "fail"
    with pytest.raises(UsageProblem, match="no outcome"):
        await decide_outcome(bench.context, session, outcome, "pass", by="anna")


@proves("outcomes.iterations")
async def test_a_persons_outcome_goes_on_until_its_evaluations_are_used_up(bench: OutcomeBench) -> None:
    session = await bench.open()
    await bench.define(session, "Ship", EXISTS, maxIterations=2)
    later = NewEvent(type=e.WAKE_QUEUED, body={"id": "q_1", "due": 9, "reason": "later"})
    await bench.append(session, later)
    queued = await bench.evaluate(session, "wake_1")
    await bench.append(session, NewEvent(type=e.WAKES_CANCELLED, body={"ids": ["q_1"]}))
    first = await bench.evaluate(session, "wake_2")
    last = await bench.evaluate(session, "wake_3")
    ended = await bench.context.ledger.events(session, types=(e.EVALUATION_ENDED,))

    assert [queued.goes_on, first.goes_on, last.goes_on] == [False, True, False]
    assert [event.body["iteration"] for event in ended] == [0, 0, 1]
    assert [event.body["result"] for event in ended] == ["needs_revision", "needs_revision", "max_iterations_reached"]
    (await bench.workspace(session) / "a.txt").write_text("x")
    await bench.evaluate(session, "wake_4")
    final = (await bench.context.ledger.events(session, types=(e.EVALUATION_ENDED,)))[-1]
    started = (await bench.context.ledger.events(session, types=(e.EVALUATION_STARTED,)))[-1]
    assert (final.body["result"], final.body["outcome_evaluation_start_id"]) == ("satisfied", started.id)


@proves("outcomes.history")
async def test_the_verdicts_of_a_session_replay_from_its_log(bench: OutcomeBench) -> None:
    session = await bench.open()
    await bench.define(session, "Ship", EXISTS, "It is nice")
    await bench.call(session, "write", path="a.txt", content="x\n")
    await bench.evaluate(session, "wake_1", Grader(lambda _, __: {"verdict": "not_met", "citations": [], "reason": "no"}))
    await bench.evaluate(session, "wake_2", Grader())
    record = await bench.record(session)
    replayed = fold(RuntimeRecord(), await bench.context.ledger.events(session))

    assert replayed.outcomes == record.outcomes
    assert RuntimeRecords().read(msgspec.json.encode(replayed).decode()).outcomes == record.outcomes
    assert read_verdict(replayed, shell_busy=False, tools=ALL)["status"] == "pass"
    assert [entry["evaluation"]["trend"] for entry in (await bench.call(session, "outcome_history"))["evaluations"]] == [
        "first_iteration",
        "improving",
    ]


@proves("outcomes.verdict-order")
async def test_while_a_session_waits_for_a_person_nothing_is_evaluated(bench: OutcomeBench) -> None:
    session = await bench.open()
    await bench.define(session, "Ship", EXISTS)
    await bench.ask(session, "shell_run", command="rm -r /workspace/x")
    run = await bench.evaluate(session)

    assert (run.verdict["status"], run.events, run.goes_on) == ("blocked", (), False)
    assert run.verdict["nextSuggestedTool"] is None
    seen = (await bench.call(session, "outcome_evaluate"))["evaluation"]
    assert seen["nextSuggestedTool"]["tool"] == "permissions_check"


RESULT = st.builds(CriterionResult, st.sampled_from(["met", "not_met", "unverified"]), st.sampled_from(["check", "grader"]))
RECORDS = st.builds(
    RuntimeRecord,
    approvals=st.sampled_from(
        [
            {},
            {"r": ApprovalRecord("r", "d", "shell_run", 9, command="cat notes.md")},
            {"r": ApprovalRecord("r", "d", "shell_run", 9, command="make")},
            {"r": ApprovalRecord("r", "d", "memory_promote_note", 9)},
        ]
    ),
    wakes=st.builds(
        WakeRecord,
        open_calls=st.sampled_from([(), (OpenCall("u", "ask", 1, "custom"),)]),
        queued=st.sampled_from([(), (QueuedWake("q", 9, "later"),)]),
    ),
    outcomes=st.builds(
        OutcomesRecord,
        outcomes=st.lists(
            st.builds(
                Outcome,
                id=st.just("o"),
                title=st.just("t"),
                criteria=st.just((Criterion("c"),)),
                author=st.sampled_from(["person", "agent"]),
                evaluations=st.lists(
                    st.builds(
                        Evaluation,
                        wake=st.sampled_from(["", "wake_1"]),
                        time=st.just(1),
                        iteration=st.integers(0, 3),
                        status=st.sampled_from(["fail", "pass", "uncertain"]),
                        trend=st.sampled_from(["first_iteration", "stable", "regressing"]),
                        results=st.lists(RESULT, min_size=1, max_size=1).map(tuple),
                    ),
                    max_size=3,
                ).map(tuple),
            ),
            max_size=2,
        ).map(tuple),
    ),
)


def validate(suggestion: dict[str, Any] | None, tools: frozenset[str]) -> None:
    if suggestion is not None:
        assert suggestion["tool"] in tools
        msgspec.convert(suggestion["args"], DEFINITIONS[suggestion["tool"]].parameters)


@proves("outcomes.suggestions")
@given(RECORDS, st.booleans(), st.sampled_from(["", "s_other"]), st.frozensets(st.sampled_from(sorted(ALL))) | st.just(ALL))
def test_every_suggestion_is_a_valid_call_of_a_tool_that_the_caller_has(
    record: RuntimeRecord, is_busy: bool, session: str, tools: frozenset[str]
) -> None:
    verdict = read_verdict(record, shell_busy=is_busy, tools=tools, session=session)

    validate(verdict["nextSuggestedTool"], tools)
    validate(find_gate_step(verdict, tools), tools)
    validate(read_grade(record, shell_busy=is_busy, tools=tools, session=session)["nextSuggestedTool"], tools)
