"""A workflow, carried out by workers without a mind."""

from __future__ import annotations

import asyncio

import pytest

from fidelio.conductor.context import Happening
from fidelio.errors import BlueprintNotFound, ConductorFailure
from fidelio.inbox import Inbox
from tests.conductor.orchestra import CHOICE, Orchestra, activity, report, workers_of, write_workflow
from tests.support import proves

WINDY = {"name": "windy", "type": "boolean", "description": "Whether it blows."}


@proves("conductor.carries-out", "conductor.waits-for-people", "conductor.shows-progress")
async def test_hello_is_carried_out_and_stops_for_a_person(orchestra: Orchestra) -> None:
    seen: list[Happening] = []
    record = await orchestra.play(orchestra.plan("hello"), seen, answers={"choose-tone": "brief"})
    assert record.status == "completed"
    assert record.completed[0] == "greet"
    kinds = [one.kind for one in seen]
    assert kinds[0] == "entered"
    assert "waiting" in kinds
    assert kinds[-1] == "completed"
    async with orchestra.house() as house:
        ledger = (await house.workflows()).unit.ledger
        session = seen[0].session
        (answered,) = await ledger.events(session, types=("request.answered",))
        assert answered.body["by"] == "person:tester"
        callers = {event.body["aid"] for event in await ledger.events(session, types=("tool.called",))}
        assert {"conductor", "worker-greet", "worker-farewell"} <= callers


@proves("conductor.carries-out")
async def test_every_activity_has_a_worker_of_its_own_with_a_token_of_that_activity(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "pair", activity("one", transitions=[{"to": "two"}]), activity("two"))
    seen: list[Happening] = []
    await orchestra.play(orchestra.plan("pair"), seen)
    session = seen[0].session
    async with orchestra.house() as house:
        service = await house.agents()
        desk = (await house.workflows()).unit
        workers = await workers_of(house, session)
        assert [one.name for one in workers] == [f"{session}-1-one", f"{session}-2-two"]
        for worker, place in zip(workers, ("one", "two"), strict=True):
            queued = next(one for one in await service.events(worker.id) if one.type == "run.queued")
            token = queued.body["prompt"]["text"].partition("session_token: ")[2].split()[0]
            assert desk.open_token(token).act == place


@proves("conductor.tells-what-is-missing")
async def test_a_worker_that_ends_without_finishing_is_told_what_is_missing(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "single", activity("one"))
    orchestra.says("forgetful", "I am done.", report(), report("one-step"))
    seen: list[Happening] = []
    record = await orchestra.play(orchestra.plan("single", agent="forgetful"), seen)
    assert record.status == "completed"
    async with orchestra.house() as house:
        (worker,) = await workers_of(house, seen[0].session)
        queued = [one for one in await (await house.agents()).events(worker.id) if one.type == "run.queued"]
        prompts = [one.body["prompt"]["text"] for one in queued]
        assert "no JSON object" in prompts[1]
        assert "one-step" in prompts[2]


@proves("conductor.tells-what-is-missing", "conductor.goes-on")
async def test_a_worker_that_never_finishes_fails_the_run_and_gets_another_chance_later(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "single", activity("one"))
    orchestra.says("lazy", "No.")
    async with orchestra.house() as house:
        conductor = await house.conductor(lambda _: None)
        session = await conductor.begin(orchestra.plan("single", agent="lazy", tries=2))
        with pytest.raises(ConductorFailure, match="did not finish one: Your last message has no JSON object"):
            await conductor.carry_out(session)
        (worker,) = await workers_of(house, session)
        assert worker.run.number == 2
        (failed,) = await (await house.workflows()).unit.ledger.events(session, types=("conductor.failed",))
        assert "no JSON object" in failed.body["reason"]
        orchestra.says("lazy", "No.", "No.", report("one-step"))
        assert (await conductor.carry_out(session)).status == "completed"


@proves("conductor.takes-the-way-that-holds", "conductor.tells-what-is-missing")
async def test_a_variable_that_decides_is_asked_for_and_decides(orchestra: Orchestra) -> None:
    ways = [{"to": "shelter", "condition": CHOICE}, {"to": "walk", "condition": {**CHOICE, "value": False}}]
    write_workflow(
        orchestra.workflows,
        "outing",
        activity("look", transitions=ways),
        activity("walk"),
        activity("shelter"),
        variables=(WINDY,),
    )
    orchestra.says("scout", report("look-step"), report("look-step", windy=True))
    orchestra.says("host", report("shelter-step"))
    plan = orchestra.plan("outing", activity_agents={"look": "scout", "shelter": "host"})
    record = await orchestra.play(plan)
    assert list(record.completed) == ["look", "shelter"]
    assert record.variables == {"windy": True}


@proves("conductor.checks-plans")
async def test_a_blueprint_that_is_not_there_is_refused_before_anything_begins(orchestra: Orchestra) -> None:
    async with orchestra.house() as house:
        conductor = await house.conductor(lambda _: None)
        with pytest.raises(BlueprintNotFound, match="nobody"):
            await conductor.begin(orchestra.plan("hello", activity_agents={"greet": "nobody"}))
        assert not (await (await house.workflows()).unit.ledger.sessions()).items


@proves("conductor.carries-out")
async def test_inputs_are_set_before_the_first_activity(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "single", activity("one"), variables=(WINDY,))
    record = await orchestra.play(orchestra.plan("single", inputs={"windy": True}))
    assert record.variables == {"windy": True}
    assert record.set_by == {"windy": "agent:conductor"}


@proves("conductor.triggers")
async def test_a_workflow_that_an_activity_triggers_is_carried_out_before_the_activity_is_left(orchestra: Orchestra) -> None:
    trigger = {"workflow": "errand", "passContext": ["windy"]}
    write_workflow(
        orchestra.workflows,
        "outing",
        activity("prepare", triggers=[trigger], transitions=[{"to": "go"}]),
        activity("go"),
        variables=(WINDY,),
    )
    write_workflow(orchestra.workflows, "errand", activity("fetch"), variables=(WINDY,))
    orchestra.says("fetcher", report("fetch-step", windy=True))
    orchestra.says("packer", report("prepare-step"))
    seen: list[Happening] = []
    plan = orchestra.plan("outing", activity_agents={"prepare": "packer"}, agent="robot", inputs={"windy": False})
    record = await orchestra.play(plan, seen)
    assert record.status == "completed"
    left = [(one.workflow, one.activity) for one in seen if one.kind == "left"]
    assert left == [("errand", "fetch"), ("outing", "prepare"), ("outing", "go")]


@proves("conductor.goes-on")
async def test_a_run_that_was_stopped_goes_on_without_starting_a_worker_again(orchestra: Orchestra) -> None:
    seen: list[Happening] = []
    async with orchestra.house() as house:
        conductor = await house.conductor(seen.append)
        session = await conductor.begin(orchestra.plan("hello"))
        service = await house.agents()
        running = asyncio.create_task(conductor.carry_out(session))
        inbox = Inbox((await house.workflows()).unit.ledger)
        request = await anext(aiter(inbox.follow(session=session)))
        (worker,) = await workers_of(house, session)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await inbox.answer(request.id, request.options[-1]["id"], by="person:tester", channel="cli")
        assert (await conductor.carry_out(session)).status == "completed"
        assert (await service.find(worker.id)).run.number == 1
