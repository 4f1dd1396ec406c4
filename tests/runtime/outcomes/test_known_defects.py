"""Defects that agent runtimes are known to have with outcomes. None of them may come back."""

from __future__ import annotations

import msgspec

from fidelio.runtime.tools.definitions import DEFINITIONS
from tests.runtime.outcomes.support import PROMOTE, Grader, OutcomeBench
from tests.support import proves

CRITERIA = ("The report names a total", "The report is signed")


@proves("outcomes.no-self-fulfilment")
async def test_self_fulfilling_verdict_an_agent_that_did_nothing_does_not_pass_by_its_own_words(bench: OutcomeBench) -> None:
    session = await bench.open()
    await bench.define(session, "Report", *CRITERIA)
    # Everything that an agent can say: a message, its memory, and a file that repeats the criteria.
    await bench.send_message(session, f"Done: {'. '.join(CRITERIA)}.")
    await bench.call(session, "memory_write", target="session_state", content="\n".join(CRITERIA))
    grader = Grader()
    run = await bench.evaluate(session, grader=grader)

    assert (run.verdict["status"], run.verdict["promotionReady"]) == ("not_ready", False)
    assert grader.requests == []
    assert (await bench.call(session, "outcome_grade"))["grade"]["matchedCriteria"] == 0


@proves("outcomes.gate")
async def test_gate_cannot_pass_the_default_gate_opens_for_a_passed_outcome_inside_a_gated_call(bench: OutcomeBench) -> None:
    session = await bench.open()
    check = {"type": "file_matches", "path": "a.md", "pattern": "hello"}
    await bench.define(session, "Greeting", {"text": "It greets", "check": check})
    await bench.call(session, "write", path="a.md", content="hello\n")
    await bench.evaluate(session)
    await bench.allow(await bench.ask(session, PROMOTE, sourcePath="a.md"))

    assert (await bench.call(session, PROMOTE, sourcePath="a.md"))["versionId"]


@proves("outcomes.gate")
async def test_caller_switches_the_gate_off_the_argument_false_is_refused(bench: OutcomeBench) -> None:
    session = await bench.open()
    await bench.call(session, "write", path="a.md", content="hello\n")

    refused = await bench.refuse(session, PROMOTE, sourcePath="a.md", requireOutcomePass=False)
    assert refused["error"]["code"] == "outcome_gate"


@proves("outcomes.history")
async def test_trend_self_compares_an_observer_after_one_wake_sees_the_first_iteration(bench: OutcomeBench) -> None:
    session, other = await bench.open(), await bench.open("other")
    await bench.define(session, "Report", {"text": "c", "check": {"type": "file_exists", "path": "a.md"}})
    await bench.evaluate(session, "wake_1")
    seen = await bench.call(other, "outcome_evaluate", sessionId=session)
    assert seen["evaluation"]["trend"] == "first_iteration"

    # Inside of the next wake, before anything was evaluated, a former verdict is neither stable nor regressing.
    graded = await bench.call(session, "permissions_describe")
    assert graded["outcomeEvaluation"]["trend"] == "first_iteration"
    await bench.evaluate(session, "wake_2")
    assert (await bench.call(other, "outcome_evaluate", sessionId=session))["evaluation"]["trend"] == "stable"


@proves("outcomes.suggestions")
async def test_invalid_suggestion_the_suggested_trace_names_its_wake(bench: OutcomeBench) -> None:
    session = await bench.open()
    await bench.define(session, "Report", {"text": "c", "check": {"type": "file_exists", "path": "a.md"}})
    run = await bench.evaluate(session, "wake_1", tools=frozenset(DEFINITIONS))
    step = run.verdict["nextSuggestedTool"]

    assert (step["tool"], step["args"]) == ("session_get_trace", {"wakeId": "wake_1"})
    msgspec.convert(step["args"], DEFINITIONS["session_get_trace"].parameters)


@proves("outcomes.other-sessions")
async def test_cross_session_write_an_outcome_of_another_session_cannot_be_defined(bench: OutcomeBench) -> None:
    one, two = await bench.open("one"), await bench.open("two")

    refused = await bench.refuse(one, "outcome_define", sessionId=two, title="Mine")
    assert refused["error"]["code"] == "other_session"
    assert (await bench.record(two)).outcomes.outcomes == ()
