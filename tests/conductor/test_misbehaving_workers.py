"""Workers that break their instructions, and runs that cannot continue."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import pytest

from fidelio.conductor import conductor
from fidelio.conductor.context import ProgressEvent
from fidelio.errors import ConductorFailure, UsageProblem
from fidelio.inbox import Inbox
from tests.conductor.run_setup import RunSetup, activity, list_workers, report, write_workflow
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
async def test_a_worker_that_ignores_the_answer_is_not_resumed_for_ever(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "single", asking())
    setup.write_blueprint("forgetful", {"turns": [[FIND, YIELD, {"result": "I wait."}], [{"result": "What was it?"}]]})
    with pytest.raises(ConductorFailure, match="did not finish one"):
        await setup.execute(setup.plan("single", agent="forgetful"), answers={"ask": "yes"})


@proves("conductor.workers-keep-to-their-part")
async def test_a_worker_cannot_answer_its_own_question(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "single", asking())
    answer = {"tool": "respond_checkpoint", "arguments": {"checkpoint_handle": "{saved.handle}", "option_id": "yes"}}
    turn = [FIND, YIELD, {"call": {**answer, "may_fail": True}}, {"result": report("one-step")}]
    setup.write_blueprint("eager", {"turns": [turn, [{"result": report("one-step")}]]})
    seen: list[ProgressEvent] = []
    record = await setup.execute(setup.plan("single", agent="eager"), seen, answers={"ask": "no"})
    assert record.status == "completed"
    async with setup.app() as app:
        (answered,) = await (await app.workflows()).unit.ledger.events(seen[0].session, types=("request.answered",))
        assert (answered.body["option"], answered.body["by"]) == ("no", "person:tester")


@proves("conductor.workers-keep-to-their-part")
async def test_a_worker_cannot_move_the_session(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "pair", activity("one", transitions=[{"to": "two"}]), activity("two"))
    move = {"tool": "next_activity", "arguments": {"session_token": "{saved.token}", "activity_id": "__terminal__"}}
    setup.write_blueprint("mover", {"turns": [[FIND, {"call": {**move, "may_fail": True}}, {"result": report("one-step")}]]})
    record = await setup.execute(setup.plan("pair", activity_agents={"one": "mover"}))
    assert list(record.completed) == ["one", "two"]


@proves("conductor.tells-what-is-missing", "engine.person-leaves")
async def test_a_worker_that_asks_nobody_does_not_finish_an_activity_with_a_question_for_a_person(setup: RunSetup) -> None:
    question = {"id": "ask", "name": "Ask", "message": "Shall I?", "options": OPTIONS, "answered_by": "person"}
    maybe = {"type": "simple", "variable": "risk", "operator": "==", "value": "high"}
    write_workflow(setup.workflows, "single", activity("one", checkpoints=[{**question, "condition": maybe}]))
    setup.write_blueprint("liar", {"turns": [[{"result": report("one-step")}]] * 4})
    with pytest.raises(ConductorFailure, match="only a person answers its checkpoint 'ask'"):
        await setup.execute(setup.plan("single", agent="liar"))


@proves("conductor.waits-for-people")
async def test_a_checkpoint_that_is_not_blocking_gets_its_default_after_its_time(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "single", asking(blocking=False, defaultOption="no", autoAdvanceMs=300))
    setup.write_blueprint("patient", {"turns": [[FIND, YIELD, {"result": "I wait."}], [{"result": report("one-step")}]]})
    seen: list[ProgressEvent] = []
    record = await setup.execute(setup.plan("single", agent="patient"), seen)
    assert record.status == "completed"
    assert record.last is not None
    assert (record.last.option, record.last.channel) == ("no", "timer")


@proves("conductor.goes-on")
async def test_a_stopped_worker_is_resumed_with_the_run(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "single", activity("one"))
    pause = {"pause": {"until": str(setup.project / "never"), "seconds": 50}}
    setup.write_blueprint("sleeper", {"turns": [[pause, {"result": "x"}], [{"result": report("one-step")}]]})
    async with setup.app() as app:
        conductor = await app.conductor(lambda _: None)
        session = await conductor.start(setup.plan("single", agent="sleeper"))
        running = asyncio.create_task(conductor.run(session))
        service = await app.agents()
        async for _ in service.context.ledger.follow(types=("run.starting",)):
            break
        (worker,) = await list_workers(app, session)
        await service.stop(worker.id, by="tester")
        with pytest.raises(ConductorFailure, match="was stopped"):
            await running
        assert (await conductor.run(session)).status == "completed"


@proves("conductor.goes-on")
async def test_a_run_is_conducted_by_a_single_process(setup: RunSetup) -> None:
    async with setup.app() as app:
        first, second = await app.conductor(lambda _: None), await app.conductor(lambda _: None)
        session = await first.start(setup.plan("hello"))
        running = asyncio.create_task(first.run(session))
        await anext(aiter(Inbox((await app.workflows()).unit.ledger).follow(session=session)))
        with pytest.raises(ConductorFailure, match="by another process"):
            await second.run(session)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@proves("conductor.bounded")
async def test_a_workflow_that_never_ends_is_stopped(setup: RunSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor, "MAX_REPETITIONS", 4)
    write_workflow(
        setup.workflows, "round", activity("one", transitions=[{"to": "two"}]), activity("two", transitions=[{"to": "one"}])
    )
    with pytest.raises(ConductorFailure, match="repeats without end"):
        await setup.execute(setup.plan("round"))


@proves("conductor.bounded")
async def test_a_workflow_that_starts_itself_is_stopped(setup: RunSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor, "MAX_DEPTH", 2)
    write_workflow(setup.workflows, "self", activity("one", triggers=[{"workflow": "self"}]))
    with pytest.raises(ConductorFailure, match="levels deep"):
        await setup.execute(setup.plan("self"))


@proves("conductor.triggers")
async def test_inputs_are_not_passed_to_child_workflows(setup: RunSetup) -> None:
    language = {"name": "language", "type": "string", "description": "Which."}
    write_workflow(setup.workflows, "outer", activity("one", triggers=[{"workflow": "inner"}]), variables=(language,))
    write_workflow(setup.workflows, "inner", activity("two"))
    seen: list[ProgressEvent] = []
    await setup.execute(setup.plan("outer", inputs={"language": "de"}), seen)
    inner = next(event.session for event in seen if event.workflow == "inner")
    async with setup.app() as app:
        unit = (await app.workflows()).unit
        assert (await unit.load_record(await unit.ledger.session(inner))).variables == {}


@proves("conductor.tells-what-is-missing")
async def test_the_reason_of_a_failure_is_recorded(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "outer", activity("one", triggers=[{"workflow": "nowhere"}]))
    write_workflow(setup.workflows, "nowhere", activity("two"))
    async with setup.app() as app:
        conductor = await app.conductor(lambda _: None)
        session = await conductor.start(setup.plan("outer"))
        shutil.rmtree(setup.workflows / "nowhere")
        with pytest.raises(ConductorFailure, match="nowhere"):
            await conductor.run(session)
        (failed,) = await (await app.workflows()).unit.ledger.events(session, types=("conductor.failed",))
        assert "nowhere" in failed.body["reason"]


@proves("conductor.checks-plans")
async def test_a_workflow_without_a_first_activity_and_a_missing_project_are_refused(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "lost", activity("one"))
    page = setup.workflows / "lost" / "workflow.yaml"
    page.write_text(page.read_text().replace("initialActivity: one", "initialActivity: zero"))
    async with setup.app() as app:
        conductor = await app.conductor(lambda _: None)
        with pytest.raises(UsageProblem, match="no activity of it"):
            await conductor.start(setup.plan("lost"))
        elsewhere = str(setup.root / "gone")
        with pytest.raises(UsageProblem, match="gone"):
            await conductor.start(setup.plan("hello", project=elsewhere))
        assert not (await (await app.workflows()).unit.ledger.sessions()).items


@proves("conductor.carries-out")
async def test_an_activity_id_may_have_any_characters(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "single", activity("one.and-only"))
    assert (await setup.execute(setup.plan("single"))).status == "completed"
