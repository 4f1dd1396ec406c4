"""Places while people think."""

from __future__ import annotations

import asyncio

from fidelio.orchestrator.executors.contract import AgentQuestion, Reporter, Turn, TurnResult
from fidelio.settings import AgentLimits
from tests.orchestrator.adoption import NOBODY, Adoptable
from tests.orchestrator.fakes import House, Stage, finished, start, until
from tests.support import proves

ONE = AgentLimits(per_project=1, total=1)
HOW = AgentQuestion(key="how", kind="question", text="How loud?")


async def asking(turn: Turn, tell: Reporter) -> TurnResult:
    await tell.report_process(NOBODY)
    return TurnResult(text=(await tell.ask(HOW)).text)


async def singing(turn: Turn, tell: Reporter) -> TurnResult:
    return await asking(turn, tell) if turn.prompt == "Ask." else TurnResult(text="la")


@proves("families.people-take-no-place")
async def test_a_session_that_waits_for_a_person_keeps_nobody_from_beginning(house: House) -> None:
    house.limits = ONE
    house.actor.part = singing
    service = house.service()
    async with house.host(service):
        for name in ("first", "second"):
            await start(service, name, "Ask.")
        await start(service, "third", "Sing.")
        assert (await finished(service, "third"))[0].run.state == "succeeded"
        for name in ("first", "second"):
            await until(service, name, lambda session: session.question is not None)
            await service.answer(name, text="Softly.", by="me", channel="cli")
        assert [one.run.state for one in await finished(service, "first", "second")] == ["succeeded"] * 2


@proves("families.people-take-no-place")
async def test_a_session_that_goes_on_has_a_place_again(house: House) -> None:
    house.limits = ONE
    service = house.service()
    stage = Stage()

    async def part(turn: Turn, tell: Reporter) -> TurnResult:
        if turn.prompt == "Ask.":
            await tell.ask(HOW)
            return await stage.part(turn, tell)
        return TurnResult(text="la")

    house.actor.part = part
    async with house.host(service):
        await start(service, "first", "Ask.")
        await until(service, "first", lambda session: session.question is not None)
        await service.answer("first", text="Softly.", by="me", channel="cli")
        async with asyncio.timeout(20):
            await stage.entered.wait()
        await start(service, "second", "Sing.")
        (waiting,) = await service.wait(["second"], seconds=0.3)
        assert waiting.run.state == "queued"
        stage.go_on.set()
        await start(service, "third", "Sing.")
        assert {one.run.state for one in await finished(service, "first", "second", "third")} == {"succeeded"}


@proves("families.people-take-no-place")
async def test_an_adopted_session_that_waits_for_a_person_takes_no_place(house: House) -> None:
    house.limits = ONE
    adopted = asyncio.Event()

    async def again(turn: Turn, tell: Reporter) -> TurnResult:
        adopted.set()
        return await asking(turn, tell)

    house.actor = Adoptable(part=singing, again=again)
    service = house.service()
    async with house.host(service):
        await start(service, "first", "Ask.")
        await until(service, "first", lambda session: session.question is not None)
    async with house.host(service):
        async with asyncio.timeout(20):
            await adopted.wait()
        await start(service, "second", "Sing.")
        assert (await finished(service, "second"))[0].run.state == "succeeded"
        assert (await service.find("first")).run.state == "waiting"
