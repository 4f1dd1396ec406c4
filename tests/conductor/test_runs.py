"""Runs of a workflow with scripted workers."""

from __future__ import annotations

import asyncio

import pytest

from fidelio.conductor.context import ProgressEvent
from fidelio.errors import BlueprintNotFound, ConductorFailure
from fidelio.inbox import Inbox
from tests.conductor.run_setup import CHOICE, RunSetup, activity, list_workers, report, write_workflow
from tests.support import proves

WINDY = {"name": "windy", "type": "boolean", "description": "Whether it blows."}


@proves("conductor.carries-out", "conductor.waits-for-people", "conductor.shows-progress")
async def test_hello_completes_and_waits_for_a_person(setup: RunSetup) -> None:
    seen: list[ProgressEvent] = []
    record = await setup.execute(setup.plan("hello"), seen, answers={"choose-tone": "brief"})
    assert record.status == "completed"
    assert record.completed[0] == "greet"
    kinds = [event.kind for event in seen]
    assert kinds[0] == "entered"
    assert "waiting" in kinds
    assert kinds[-1] == "completed"
    async with setup.app() as app:
        ledger = (await app.workflows()).unit.ledger
        session = seen[0].session
        (answered,) = await ledger.events(session, types=("request.answered",))
        assert answered.body["by"] == "person:tester"
        callers = {event.body["aid"] for event in await ledger.events(session, types=("tool.called",))}
        assert {"conductor", "worker-greet", "worker-farewell"} <= callers


@proves("conductor.carries-out")
async def test_every_activity_has_a_worker_of_its_own_with_a_token_of_that_activity(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "pair", activity("one", transitions=[{"to": "two"}]), activity("two"))
    seen: list[ProgressEvent] = []
    await setup.execute(setup.plan("pair"), seen)
    session = seen[0].session
    async with setup.app() as app:
        service = await app.agents()
        unit = (await app.workflows()).unit
        workers = await list_workers(app, session)
        assert [worker.name for worker in workers] == [f"{session}-1-one", f"{session}-2-two"]
        for worker, place in zip(workers, ("one", "two"), strict=True):
            queued = next(event for event in await service.events(worker.id) if event.type == "run.queued")
            token = queued.body["prompt"]["text"].partition("session_token: ")[2].split()[0]
            assert unit.open_token(token).act == place


@proves("conductor.tells-what-is-missing")
async def test_an_unfinished_worker_is_resumed_with_what_is_missing(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "single", activity("one"))
    setup.write_agent("forgetful", "I am done.", report(), report("one-step"))
    seen: list[ProgressEvent] = []
    record = await setup.execute(setup.plan("single", agent="forgetful"), seen)
    assert record.status == "completed"
    async with setup.app() as app:
        (worker,) = await list_workers(app, seen[0].session)
        queued = [event for event in await (await app.agents()).events(worker.id) if event.type == "run.queued"]
        prompts = [event.body["prompt"]["text"] for event in queued]
        assert "no JSON object" in prompts[1]
        assert "one-step" in prompts[2]


@proves("conductor.tells-what-is-missing", "conductor.goes-on")
async def test_a_worker_that_never_finishes_fails_the_run_and_gets_new_tries_later(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "single", activity("one"))
    setup.write_agent("lazy", "No.")
    async with setup.app() as app:
        conductor = await app.conductor(lambda _: None)
        session = await conductor.start(setup.plan("single", agent="lazy", tries=2))
        with pytest.raises(ConductorFailure, match="did not finish one: Your last message has no JSON object"):
            await conductor.run(session)
        (worker,) = await list_workers(app, session)
        assert worker.run.number == 2
        (failed,) = await (await app.workflows()).unit.ledger.events(session, types=("conductor.failed",))
        assert "no JSON object" in failed.body["reason"]
        setup.write_agent("lazy", "No.", "No.", report("one-step"))
        assert (await conductor.run(session)).status == "completed"


@proves("conductor.takes-the-way-that-holds", "conductor.tells-what-is-missing")
async def test_a_variable_that_decides_the_transition_is_requested(setup: RunSetup) -> None:
    ways = [{"to": "shelter", "condition": CHOICE}, {"to": "walk", "condition": {**CHOICE, "value": False}}]
    write_workflow(
        setup.workflows,
        "outing",
        activity("look", transitions=ways),
        activity("walk"),
        activity("shelter"),
        variables=(WINDY,),
    )
    setup.write_agent("scout", report("look-step"), report("look-step", windy=True))
    setup.write_agent("host", report("shelter-step"))
    plan = setup.plan("outing", activity_agents={"look": "scout", "shelter": "host"})
    record = await setup.execute(plan)
    assert list(record.completed) == ["look", "shelter"]
    assert record.variables == {"windy": True}


@proves("conductor.checks-plans")
async def test_a_missing_blueprint_is_refused_before_a_session_exists(setup: RunSetup) -> None:
    async with setup.app() as app:
        conductor = await app.conductor(lambda _: None)
        with pytest.raises(BlueprintNotFound, match="nobody"):
            await conductor.start(setup.plan("hello", activity_agents={"greet": "nobody"}))
        assert not (await (await app.workflows()).unit.ledger.sessions()).items


@proves("conductor.carries-out")
async def test_inputs_are_set_before_the_first_activity(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "single", activity("one"), variables=(WINDY,))
    record = await setup.execute(setup.plan("single", inputs={"windy": True}))
    assert record.variables == {"windy": True}
    assert record.set_by == {"windy": "agent:conductor"}


@proves("conductor.triggers")
async def test_a_triggered_workflow_is_completed_before_the_activity_is_left(setup: RunSetup) -> None:
    trigger = {"workflow": "errand", "passContext": ["windy"]}
    write_workflow(
        setup.workflows,
        "outing",
        activity("prepare", triggers=[trigger], transitions=[{"to": "go"}]),
        activity("go"),
        variables=(WINDY,),
    )
    write_workflow(setup.workflows, "errand", activity("fetch"), variables=(WINDY,))
    setup.write_agent("fetcher", report("fetch-step", windy=True))
    setup.write_agent("packer", report("prepare-step"))
    seen: list[ProgressEvent] = []
    plan = setup.plan("outing", activity_agents={"prepare": "packer"}, agent="robot", inputs={"windy": False})
    record = await setup.execute(plan, seen)
    assert record.status == "completed"
    left = [(event.workflow, event.activity) for event in seen if event.kind == "left"]
    assert left == [("errand", "fetch"), ("outing", "prepare"), ("outing", "go")]


@proves("conductor.goes-on")
async def test_a_run_that_was_stopped_resumes_without_starting_a_second_worker(setup: RunSetup) -> None:
    seen: list[ProgressEvent] = []
    async with setup.app() as app:
        conductor = await app.conductor(seen.append)
        session = await conductor.start(setup.plan("hello"))
        service = await app.agents()
        running = asyncio.create_task(conductor.run(session))
        inbox = Inbox((await app.workflows()).unit.ledger)
        request = await anext(aiter(inbox.follow(session=session)))
        (worker,) = await list_workers(app, session)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await inbox.answer(request.id, request.options[-1]["id"], by="person:tester", channel="cli")
        assert (await conductor.run(session)).status == "completed"
        assert (await service.find(worker.id)).run.number == 1
