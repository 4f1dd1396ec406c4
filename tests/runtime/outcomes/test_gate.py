"""The gate in front of shared writes, with a person who allows the write itself."""

from __future__ import annotations

import pytest

from fidelio.errors import ToolRefused
from fidelio.runtime import events as e
from fidelio.runtime.outcomes.decisions import decide_outcome, override_gate
from fidelio.runtime.outcomes.evaluation import check_gate
from fidelio.runtime.outcomes.record import EFFECTFUL
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.tools.definitions import DEFINITIONS
from tests.runtime.outcomes.support import PROMOTE, OutcomeBench
from tests.support import proves

EXISTS = {"text": "The file exists", "check": {"type": "file_exists", "path": "a.md"}}
MISSING = {"text": "The other file exists", "check": {"type": "file_exists", "path": "b.md"}}


async def write_draft(bench: OutcomeBench) -> str:
    session = await bench.open()
    await bench.call(session, "write", path="a.md", content="hello\n")
    return session


@proves("outcomes.gate")
async def test_a_write_needs_every_outcome_to_have_passed(bench: OutcomeBench) -> None:
    session = await write_draft(bench)
    await bench.define(session, "One", EXISTS)
    await bench.define(session, "Two", MISSING)
    await bench.evaluate(session)
    refused = await bench.refuse(session, PROMOTE, sourcePath="a.md")

    assert refused["error"]["code"] == "outcome_gate"
    assert "'Two'" in refused["error"]["message"]
    assert refused["outcomeEvaluation"]["status"] == "fail"
    assert refused["nextOutcomeStep"]["tool"] in ("outcome_evaluate", "outcome_history", "session_get_trace")


@proves("outcomes.gate")
async def test_an_approved_write_passes_although_its_own_request_was_open(bench: OutcomeBench) -> None:
    session = await write_draft(bench)
    await bench.define(session, "One", EXISTS)
    await bench.evaluate(session)
    request = await bench.ask(session, PROMOTE, sourcePath="a.md")
    assert await bench.ask(session, PROMOTE, sourcePath="a.md") == request
    await bench.allow(request)
    done = await bench.call(session, PROMOTE, sourcePath="a.md")

    assert done["outcomeEvaluation"]["status"] == "pass"


@proves("outcomes.gate")
async def test_another_open_request_blocks_the_write_until_it_is_answered(bench: OutcomeBench) -> None:
    session = await write_draft(bench)
    await bench.define(session, "One", EXISTS)
    await bench.evaluate(session)
    other = await bench.ask(session, "shell_run", command="make")
    refused = await bench.refuse(session, PROMOTE, sourcePath="a.md")
    assert (refused["outcomeEvaluation"]["status"], refused["error"]["retryable"]) == ("blocked", True)

    await bench.allow(other)
    await bench.ask(session, PROMOTE, sourcePath="a.md")


@proves("outcomes.gate")
async def test_a_verdict_that_is_lost_between_approval_and_write_stops_the_write(bench: OutcomeBench) -> None:
    session = await write_draft(bench)
    outcome = await bench.define(session, "One", EXISTS)
    await bench.evaluate(session)
    await bench.allow(await bench.ask(session, PROMOTE, sourcePath="a.md"))
    await decide_outcome(bench.context, session, outcome, "fail", by="anna")
    refused = await bench.refuse(session, PROMOTE, sourcePath="a.md")

    assert refused["error"]["code"] == "outcome_gate"
    assert await bench.context.ledger.events(session, types=(e.PROMOTED,)) == ()


@proves("outcomes.gate")
async def test_the_model_cannot_switch_the_gate_off_and_can_demand_it(bench: OutcomeBench) -> None:
    session = await write_draft(bench)
    for requires in (False, True):
        refused = await bench.refuse(session, PROMOTE, sourcePath="a.md", requireOutcomePass=requires)
        assert refused["error"]["code"] == "outcome_gate"
    # Without an outcome there is nothing to pass.
    await bench.ask(session, PROMOTE, sourcePath="a.md")


@proves("outcomes.gate")
async def test_a_persons_override_is_an_event_and_holds_for_one_write(bench: OutcomeBench) -> None:
    session = await write_draft(bench)
    await bench.define(session, "One", MISSING)
    await bench.evaluate(session)
    await override_gate(bench.context, session, by="person:anna", note="Urgent.")
    request = await bench.ask(session, PROMOTE, sourcePath="a.md")
    assert "person:anna has switched the check of the outcome off" in await bench.question(request)
    await bench.allow(request)
    await bench.call(session, PROMOTE, sourcePath="a.md")

    (event,) = await bench.context.ledger.events(session, types=(e.GATE_OVERRIDDEN,))
    assert event.actor == "person:anna"
    refused = await bench.refuse(session, PROMOTE, sourcePath="a.md", overwrite=True)
    assert refused["error"]["code"] == "outcome_gate"


@proves("outcomes.gate-question")
async def test_the_request_shows_each_outcome_its_author_and_when_none_is_a_persons(bench: OutcomeBench) -> None:
    session = await write_draft(bench)
    none = await bench.question(await bench.ask(session, PROMOTE, sourcePath="a.md"))
    assert "No outcome is defined for this session" in none

    await bench.call(session, "outcome_define", title="Mine\nDirectory: /", successCriteria=[EXISTS])
    request = next(iter((await bench.record(session)).approvals))
    await bench.allow(request)
    await bench.call(session, "outcome_evaluate")
    own = await bench.question(await bench.ask(session, PROMOTE, sourcePath="a.md", targetPath="c.md"))
    assert "Outcome 'Mine Directory: /', defined by the agent itself: pass." in own
    assert "No person has defined an outcome" in own

    other = await bench.open("other")
    await bench.call(other, "write", path="a.md", content="hello\n")
    await bench.define(other, "Theirs", EXISTS)
    await bench.evaluate(other)
    shown = await bench.question(await bench.ask(other, PROMOTE, sourcePath="a.md"))
    assert "Outcome 'Theirs', defined by a person: pass." in shown
    assert "No person has defined" not in shown


@proves("outcomes.gate")
@pytest.mark.parametrize("tool", [PROMOTE, "resources_restore_version", "memory_promote_note"])
async def test_the_three_gated_tools_say_so_with_and_without_an_outcome(bench: OutcomeBench, tool: str) -> None:
    session = await bench.open()
    before = await bench.call(session, "permissions_check", toolName=tool)
    await bench.define(session, "One", MISSING)
    await bench.evaluate(session)
    after = await bench.call(session, "permissions_check", toolName=tool)

    assert (before["requiresOutcomePass"], after["requiresOutcomePass"]) == (True, True)
    assert (before["outcomeEvaluation"]["status"], after["outcomeEvaluation"]["status"]) == ("missing_outcome", "fail")
    assert after["nextStep"] == after["nextOutcomeStep"] is not None


@proves("outcomes.gate")
def test_the_gate_is_open_without_an_outcome_unless_it_is_demanded() -> None:
    check_gate(RuntimeRecord(), shell_busy=True, request="", requires=None)
    with pytest.raises(ToolRefused, match="missing_outcome"):
        check_gate(RuntimeRecord(), shell_busy=False, request="", requires=True)


@proves("outcomes.void")
async def test_a_pass_is_void_once_a_call_has_changed_something_after_it(bench: OutcomeBench) -> None:
    session = await bench.open()
    check = {"type": "file_matches", "path": "a.md", "pattern": "^total"}
    await bench.define(session, "Report", {"text": "It has a total", "check": check})
    await bench.call(session, "write", path="a.md", content="total 3\n")
    assert (await bench.call(session, "outcome_evaluate"))["evaluation"]["status"] == "pass"
    await bench.call(session, "read", path="a.md")
    await bench.refuse(session, "write", path="/etc/a.md", content="nothing\n")
    assert (await bench.call(session, "permissions_describe"))["outcomeEvaluation"]["status"] == "pass"
    await bench.call(session, "write", path="a.md", content="nothing\n")

    refused = await bench.refuse(session, PROMOTE, sourcePath="a.md")
    assert refused["error"]["code"] == "outcome_gate"
    verdict = refused["outcomeEvaluation"]
    assert (verdict["status"], verdict["promotionReady"]) == ("not_ready", False)
    assert "changed after the last evaluation" in verdict["summary"]
    assert refused["nextOutcomeStep"]["tool"] == "outcome_evaluate"
    assert (await bench.call(session, "outcome_evaluate"))["evaluation"]["status"] == "fail"


@proves("outcomes.void")
def test_every_tool_that_may_change_files_makes_an_evaluation_void() -> None:
    changing = {
        name
        for name, tool in DEFINITIONS.items()
        if not tool.read_only and (tool.group in ("files", "shell", "sandbox", "resources") or tool.is_gated)
    }

    assert changing == EFFECTFUL
