"""Questions to people: in the inbox from the moment they are reached, and answered by nobody else where that is demanded."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from mcp import Client
from mcp_types import ElicitResult

from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.settings import Settings, load_settings
from tests.dialects.conftest import Opens
from tests.dialects.navigator.conftest import Guide
from tests.dialects.test_elicitation import both_eras, call, client
from tests.support import proves

GATE = """
id: gate
version: 1.0.0
title: A gate
variables: [{name: cold, type: boolean}]
initialActivity: bar
activities:
  - id: bar
    version: 1.0.0
    name: Bar
    checkpoints:
      - id: sure
        name: Sure?
        message: Are you sure?
        answered_by: person
        condition: {type: simple, variable: cold, operator: "==", value: true}
        options: [{id: yes, label: "Yes"}, {id: no, label: "No"}]
      - id: slow
        name: Slow?
        message: Shall we wait?
        blocking: false
        defaultOption: wait
        autoAdvanceMs: 10
        options: [{id: wait, label: Wait}, {id: rush, label: Rush}]
"""


async def answer(settings: Settings, option: str) -> str:
    async with await open_ledger(settings.ledger) as ledger:
        (request,) = (await Inbox(ledger).list_requests()).items
        await Inbox(ledger).answer(request.id, option, by="person:test", channel="cli")
    return request.id


@proves("navigator.inbox")
async def test_a_question_that_is_reached_is_in_the_inbox_and_an_answer_from_there_counts(
    memory: Opens, settings: Settings
) -> None:
    async with memory() as play:
        guide = await Guide(play).start("tour")
        await guide.step("list", "shine")
        asked = guide.last["checkpoint"]["request_id"]

        assert await answer(settings, "small") == asked
        await guide.look()
        assert guide.required == [("complete_step", "ask")]
        assert (await guide.do("respond_to_checkpoint", checkpoint_id="size", option_id="big")).code == (
            "CHECKPOINT_ALREADY_RESPONDED"
        )


@proves("navigator.person")
async def test_a_relayed_answer_is_not_taken_where_a_person_is_demanded(memory: Opens, settings: Settings) -> None:
    async with memory() as play:
        guide = await Guide(play).start("ward")
        await guide.say("slow", "wait")
        await guide.say("cold", "nay")
        assert guide.last["checkpoint"]["answered_by"] == "person"
        assert guide.optional[0] == ("complete_step", "knock")

        refused = await play(
            "nav_action", state=guide.state, action="respond_to_checkpoint", checkpoint_id="open", option_id="come"
        )
        assert refused.is_error
        assert "has to be answered by a person" in refused.text
        assert "fidelio answer" in refused.text
        assert json.loads(refused.text)["error"]["code"] == "CHECKPOINT_PERSON"
        assert json.loads(refused.text)["status"] == "blocked"
        await answer(settings, "later")
        assert (await guide.look()).required == [("complete_step", "enter")]


@proves("navigator.person")
async def test_a_server_may_want_people_for_everything(memory: Opens, settings: Settings) -> None:
    async with memory(person=True) as play:
        guide = await Guide(play).start("tour")
        await guide.step("list", "shine")
        assert guide.last["checkpoint"]["answered_by"] == "person"
        refused = await play(
            "nav_action", state=guide.state, action="respond_to_checkpoint", checkpoint_id="size", option_id="big"
        )
        assert "by a person" in refused.text


@proves("navigator.checkpoints")
async def test_a_question_that_may_not_apply_is_dismissed_and_one_whose_time_is_over_takes_its_default(memory: Opens) -> None:
    async with memory() as play:
        guide = await Guide(play).start("ward")
        early = await guide.do("respond_to_checkpoint", checkpoint_id="slow", condition_not_met=True)
        assert "no condition" in early.last["message"]
        async with asyncio.timeout(10):
            while ("respond_to_checkpoint", "slow") not in guide.optional:
                await guide.look()
        guide.expect(await guide.do("respond_to_checkpoint", checkpoint_id="slow", auto_advance=True))

        assert guide.last["checkpoint"]["id"] == "cold"
        assert {"action": "respond_to_checkpoint", "checkpoint": "cold", "condition_not_met": True} in (
            guide.last["availableActions"]["optional"]
        )
        blocking = await guide.do("respond_to_checkpoint", checkpoint_id="cold", auto_advance=True)
        assert "blocking" in blocking.last["message"]
        guide.expect(await guide.do("respond_to_checkpoint", checkpoint_id="cold", condition_not_met=True))


@proves("navigator.person", "navigator.offers")
async def test_what_only_a_person_may_answer_is_marked_and_cannot_be_waved_away(memory: Opens, library: Path) -> None:
    (library / "gate.yaml").write_text(GATE.lstrip())
    async with memory() as play:
        guide = await Guide(play).start("gate")
        (asked,) = guide.last["availableActions"]["required"]
        assert asked["answered_by"] == "person"
        assert guide.optional == []
        assert "by a person" in guide.blocked["respond_to_checkpoint", "sure"]
        refused = await guide.do("respond_to_checkpoint", checkpoint_id="sure", condition_not_met=True)
        assert refused.code == "CHECKPOINT_PERSON"

        known = await Guide(play).start("gate", cold=False)
        assert known.last["checkpoint"]["id"] == "slow"


@proves("navigator.person", "navigator.offers")
async def test_a_default_is_not_offered_where_the_server_wants_people(memory: Opens, library: Path) -> None:
    (library / "gate.yaml").write_text(GATE.lstrip())
    async with memory(person=True) as play:
        guide = await Guide(play).start("gate", cold=False)
        async with asyncio.timeout(10):
            while "ms have to run out" in guide.blocked["respond_to_checkpoint", "slow"]:
                await guide.look()
        assert guide.optional == []
        refused = await guide.do("respond_to_checkpoint", checkpoint_id="slow", auto_advance=True)
        assert refused.code == "CHECKPOINT_PERSON"


@proves("navigator.checkpoints")
async def test_an_answer_that_comes_too_fast_is_not_taken(memory: Opens, settings: Settings) -> None:
    slow = load_settings(environ={"FIDELIO_HOME": str(settings.home.path), "FIDELIO_MIN_RESPONSE_SECONDS": "60"})
    async with memory(house_settings=slow) as play:
        for steps in (["list"], ["list", "shine"]):
            guide = await Guide(play).start("tour")
            await guide.step(*steps)
            assert 0 < guide.last["availableActions"]["required"][0]["wait_ms"] <= 60_000
            refused = await guide.do("respond_to_checkpoint", checkpoint_id="size", option_id="big")
            assert refused.code == "CHECKPOINT_TOO_FAST"
            assert "too fast" in refused.last["message"]


async def at_the_door(connected: Client) -> str:
    _, reply = await call(connected, "nav_start", workflow_id="ward")
    for checkpoint, option in (("slow", "wait"), ("cold", "nay")):
        _, reply = await respond(connected, reply["state"], checkpoint, option)
    return str(reply["state"])


async def respond(connected: Client, state: str, checkpoint: str, option: str) -> tuple[bool, Any]:
    answer = {"action": "respond_to_checkpoint", "checkpoint_id": checkpoint, "option_id": option}
    return await call(connected, "nav_action", state=state, **answer)


@proves("navigator.person")
@both_eras
async def test_the_clients_user_is_asked_and_what_they_say_counts(settings: Settings, library: Path, era: str) -> None:
    says = ElicitResult(action="accept", content={"answer": "later"})
    async with client(settings, library, era, says, dialect="navigator") as connected:
        state = await at_the_door(connected)
        failed, answered = await respond(connected, state, "open", "come")
        refused, said = await respond(connected, state, "open", "come")
    async with await open_ledger(settings.ledger) as ledger:
        event = (await ledger.events(types=["request.answered"]))[-1]
        calls = [(one.body["name"], one.body["s"]) for one in await ledger.events(types=["tool.called"])]

    assert not failed
    assert refused
    assert "answered already" in said
    assert calls == [("nav_start", "ok"), *[("nav_action", "ok")] * 3, ("nav_action", "error")]
    assert answered["message"] == "Checkpoint 'open' is answered: later"
    assert (event.body["option"], event.body["channel"]) == ("later", "elicited")


@proves("navigator.person")
@both_eras
async def test_when_the_user_declines_the_question_still_waits(settings: Settings, library: Path, era: str) -> None:
    async with client(settings, library, era, ElicitResult(action="decline"), dialect="navigator") as connected:
        state = await at_the_door(connected)
        failed, said = await respond(connected, state, "open", "come")
        _, looked = await call(connected, "nav_situation", state=state)

    assert failed
    assert "fidelio answer" in said
    assert looked["status"] == "blocked"
