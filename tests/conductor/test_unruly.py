"""Workers that do what they were told not to do, runs that go nowhere, and who pays for it."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import pytest

from fidelio.conductor import limits as patience
from fidelio.conductor.context import Happening
from fidelio.errors import ConductorFailure, UsageProblem
from fidelio.inbox import Inbox
from tests.conductor.orchestra import Orchestra, activity, report, workers_of, write_workflow
from tests.support import proves

FIND = {"find": {"token": "session_token: (\\S+)"}}
YIELD = {
    "call": {
        "tool": "yield_checkpoint",
        "arguments": {"session_token": "{saved.token}", "checkpoint_id": "ask"},
        "save": {"handle": "json.checkpoint_handle"},
    }
}
OPTIONS = [{"id": "yes", "label": "Yes"}, {"id": "no", "label": "No"}]


def asking(**more: Any) -> dict[str, Any]:
    question = {"id": "ask", "name": "Ask", "message": "Shall I?", "options": OPTIONS, **more}
    return activity("one", checkpoints=[question], steps=[{"id": "one-step", "name": "Do", "checkpoint": "ask"}])


@proves("conductor.tells-what-is-missing")
async def test_a_worker_that_takes_no_note_of_the_answer_is_not_called_for_ever(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "single", asking())
    orchestra.blueprint("forgetful", {"turns": [[FIND, YIELD, {"result": "I wait."}], [{"result": "What was it?"}]]})
    with pytest.raises(ConductorFailure, match="did not finish one"):
        await orchestra.play(orchestra.plan("single", agent="forgetful"), answers={"ask": "yes"})


@proves("conductor.workers-keep-to-their-part")
async def test_a_worker_cannot_answer_its_own_question(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "single", asking())
    answer = {"tool": "respond_checkpoint", "arguments": {"checkpoint_handle": "{saved.handle}", "option_id": "yes"}}
    turn = [FIND, YIELD, {"call": {**answer, "may_fail": True}}, {"result": report("one-step")}]
    orchestra.blueprint("eager", {"turns": [turn, [{"result": report("one-step")}]]})
    seen: list[Happening] = []
    record = await orchestra.play(orchestra.plan("single", agent="eager"), seen, answers={"ask": "no"})
    assert record.status == "completed"
    async with orchestra.house() as house:
        (answered,) = await (await house.workflows()).unit.ledger.events(seen[0].session, types=("request.answered",))
        assert (answered.body["option"], answered.body["by"]) == ("no", "person:tester")


@proves("conductor.workers-keep-to-their-part")
async def test_a_worker_cannot_move_the_session(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "pair", activity("one", transitions=[{"to": "two"}]), activity("two"))
    move = {"tool": "next_activity", "arguments": {"session_token": "{saved.token}", "activity_id": "__terminal__"}}
    orchestra.blueprint("mover", {"turns": [[FIND, {"call": {**move, "may_fail": True}}, {"result": report("one-step")}]]})
    record = await orchestra.play(orchestra.plan("pair", activity_agents={"one": "mover"}))
    assert list(record.completed) == ["one", "two"]


@proves("conductor.waits-for-people")
async def test_a_question_that_does_not_insist_is_answered_with_its_default_in_time(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "single", asking(blocking=False, defaultOption="no", autoAdvanceMs=300))
    orchestra.blueprint("patient", {"turns": [[FIND, YIELD, {"result": "I wait."}], [{"result": report("one-step")}]]})
    seen: list[Happening] = []
    record = await orchestra.play(orchestra.plan("single", agent="patient"), seen)
    assert record.status == "completed"
    assert record.last is not None
    assert (record.last.option, record.last.channel) == ("no", "timer")


@proves("conductor.goes-on")
async def test_a_stopped_worker_is_called_again_when_the_run_goes_on(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "single", activity("one"))
    pause = {"pause": {"until": str(orchestra.project / "never"), "seconds": 50}}
    orchestra.blueprint("sleeper", {"turns": [[pause, {"result": "x"}], [{"result": report("one-step")}]]})
    async with orchestra.house() as house:
        conductor = await house.conductor(lambda _: None)
        session = await conductor.begin(orchestra.plan("single", agent="sleeper"))
        running = asyncio.create_task(conductor.carry_out(session))
        service = await house.agents()
        async for _ in service.context.ledger.follow(types=("run.starting",)):
            break
        (worker,) = await workers_of(house, session)
        await service.stop(worker.id, by="tester")
        with pytest.raises(ConductorFailure, match="was stopped"):
            await running
        assert (await conductor.carry_out(session)).status == "completed"


@proves("conductor.goes-on")
async def test_only_one_process_carries_a_run_out(orchestra: Orchestra) -> None:
    async with orchestra.house() as house:
        first, second = await house.conductor(lambda _: None), await house.conductor(lambda _: None)
        session = await first.begin(orchestra.plan("hello"))
        running = asyncio.create_task(first.carry_out(session))
        await anext(aiter(Inbox((await house.workflows()).unit.ledger).follow(session=session)))
        with pytest.raises(ConductorFailure, match="by another process"):
            await second.carry_out(session)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@proves("conductor.bounded")
async def test_a_workflow_that_goes_round_for_ever_is_ended(orchestra: Orchestra, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "MOST_ROUNDS", 4)
    write_workflow(
        orchestra.workflows, "round", activity("one", transitions=[{"to": "two"}]), activity("two", transitions=[{"to": "one"}])
    )
    with pytest.raises(ConductorFailure, match="goes round and round"):
        await orchestra.play(orchestra.plan("round"))


@proves("conductor.bounded")
async def test_a_workflow_that_starts_itself_is_ended(orchestra: Orchestra, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "DEEPEST", 2)
    write_workflow(orchestra.workflows, "self", activity("one", triggers=[{"workflow": "self"}]))
    with pytest.raises(ConductorFailure, match="levels deep"):
        await orchestra.play(orchestra.plan("self"))


@proves("conductor.triggers")
async def test_inputs_are_for_the_workflow_they_were_given_to(orchestra: Orchestra) -> None:
    language = {"name": "language", "type": "string", "description": "Which."}
    write_workflow(orchestra.workflows, "outer", activity("one", triggers=[{"workflow": "inner"}]), variables=(language,))
    write_workflow(orchestra.workflows, "inner", activity("two"))
    seen: list[Happening] = []
    await orchestra.play(orchestra.plan("outer", inputs={"language": "de"}), seen)
    inner = next(one.session for one in seen if one.workflow == "inner")
    async with orchestra.house() as house:
        desk = (await house.workflows()).unit
        assert (await desk.load_record(await desk.ledger.session(inner))).variables == {}


@proves("conductor.tells-what-is-missing")
async def test_whatever_stops_a_run_is_on_record(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "outer", activity("one", triggers=[{"workflow": "nowhere"}]))
    write_workflow(orchestra.workflows, "nowhere", activity("two"))
    async with orchestra.house() as house:
        conductor = await house.conductor(lambda _: None)
        session = await conductor.begin(orchestra.plan("outer"))
        shutil.rmtree(orchestra.workflows / "nowhere")
        with pytest.raises(ConductorFailure, match="nowhere"):
            await conductor.carry_out(session)
        (failed,) = await (await house.workflows()).unit.ledger.events(session, types=("conductor.failed",))
        assert "nowhere" in failed.body["reason"]


@proves("conductor.checks-plans")
async def test_what_cannot_begin_or_run_anywhere_is_refused_at_once(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "lost", activity("one"))
    page = orchestra.workflows / "lost" / "workflow.yaml"
    page.write_text(page.read_text().replace("initialActivity: one", "initialActivity: zero"))
    async with orchestra.house() as house:
        conductor = await house.conductor(lambda _: None)
        with pytest.raises(UsageProblem, match="no activity of it"):
            await conductor.begin(orchestra.plan("lost"))
        elsewhere = str(orchestra.place / "gone")
        with pytest.raises(UsageProblem, match="gone"):
            await conductor.begin(orchestra.plan("hello", project=elsewhere))
        assert not (await (await house.workflows()).unit.ledger.sessions()).items


@proves("conductor.carries-out")
async def test_any_name_of_an_activity_will_do(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "single", activity("one.and-only"))
    assert (await orchestra.play(orchestra.plan("single"))).status == "completed"
