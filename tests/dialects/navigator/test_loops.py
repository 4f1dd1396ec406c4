"""Loops: items that are reported or given, passes, breaks, and loops in loops."""

from __future__ import annotations

from typing import Any

from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from tests.dialects.conftest import Opens
from tests.dialects.navigator.conftest import Guide
from tests.support import proves


async def at_the_visit(guide: Guide, **variables: Any) -> Guide:
    await guide.start("tour", **variables)
    await guide.step("list")
    await guide.say("size", "big")
    await guide.step("ask", "fold")
    return await guide.go("visit")


@proves("navigator.loops", "navigator.checkpoints")
async def test_a_loop_goes_over_what_was_reported_and_asks_in_every_pass(guide: Guide) -> None:
    await at_the_visit(guide, stops=["harbour", "tower"])
    assert guide.required == [("advance_loop", "each")]

    for number, stop in enumerate(["harbour", "tower"], start=1):
        await guide.advance("each")
        assert guide.last["message"] == f"Loop 'each': pass {number} of 2"
        assert guide.last["position"]["loop"] == {
            "id": "each",
            "name": "Each stop",
            "iteration": number,
            "total": 2,
            "item": stop,
        }
        assert guide.last["position"]["step"] == {"id": "look", "index": 1, "name": "Look around"}
        await guide.step("look")
        assert guide.last["checkpoint"]["message"] == f"How was {stop}?"
        await guide.say("rate", "good")
        await guide.step("note")

    assert guide.required == [("transition", "home")]
    assert (await guide.do("advance_loop", loop_id="each")).code == "LOOP_NOT_NEXT"


@proves("navigator.loops")
async def test_items_that_nobody_reported_are_given_with_the_first_pass(guide: Guide) -> None:
    await at_the_visit(guide)
    (offered,) = [one for one in guide.last["availableActions"]["optional"] if one["action"] == "advance_loop"]
    assert offered == {"action": "advance_loop", "loop": "each", "name": "Each stop", "iteration": 1, "needs": "loop_items"}
    assert guide.required == [("transition", "home")]
    assert (await guide.do("advance_loop", loop_id="each")).code == "LOOP_ITEMS_REQUIRED"
    assert (await guide.do("advance_loop", loop_id="zzz", loop_items=["a"])).code == "LOOP_NOT_FOUND"

    await guide.advance("each", "mill", "well", "wall")
    assert guide.last["position"]["loop"]["total"] == 3
    assert guide.last["position"]["loop"]["item"] == "mill"


@proves("navigator.loops")
async def test_a_break_condition_ends_the_loop_after_its_pass(guide: Guide) -> None:
    await at_the_visit(guide, stops=["harbour", "tower"])
    await guide.advance("each")
    await guide.step("look")
    await guide.say("rate", "enough")
    assert guide.required == [("complete_step", "note")]
    await guide.step("note")

    assert guide.required == [("transition", "home")]


@proves("navigator.loops")
async def test_loops_nest_through_activities(memory: Opens) -> None:
    async with memory() as play:
        guide = await Guide(play).start("ring")
        await guide.advance("days", "monday")
        assert guide.required == [("transition", "inner")]
        await guide.go("inner")
        assert guide.last["position"]["loop"]["id"] == "days"

        await guide.advance("hours")
        place = guide.last["position"]["loop"]
        assert (place["id"], place["iteration"], place["total"]) == ("hours", 1, None)
        assert [(one["id"], one["item"]) for one in place["within"]] == [("days", "monday")]
        await guide.step("tick", variables={"more": False})
        assert guide.required == [("transition", "outer")]
        await guide.go("outer")
        assert guide.required == [("transition", "__terminal__")]


@proves("navigator.checkpoints")
async def test_coming_back_to_an_activity_asks_anew(memory: Opens) -> None:
    async with memory() as play:
        guide = await Guide(play).start("camp")
        await guide.go("swim")
        await guide.step("dive")
        assert (await guide.do("complete_step", step_id="dive")).code == "STEP_ALREADY_COMPLETE"
        await guide.go("__terminal__")


@proves("navigator.loop-items")
async def test_items_that_the_record_knows_are_not_replaced_by_others(guide: Guide) -> None:
    await at_the_visit(guide, stops=["harbour", "tower"])
    refused = await guide.do("advance_loop", loop_id="each", loop_items=["moon"])
    assert refused.code == "LOOP_ITEMS_KNOWN"
    assert "report stops in `variables`" in refused.last["message"]

    await guide.advance("each", "harbour", "tower")
    await guide.step("look")
    await guide.say("rate", "good")
    await guide.step("note")
    assert (await guide.do("advance_loop", loop_id="each", loop_items=["moon"])).code == "LOOP_ITEMS_KNOWN"
    await guide.advance("each")
    assert guide.last["position"]["loop"]["item"] == "tower"


@proves("navigator.loop-items", "navigator.trace")
async def test_a_list_that_is_longer_than_the_maximum_is_cut_with_a_warning_that_is_on_record(
    memory: Opens, settings: Settings
) -> None:
    async with memory() as play:
        guide = await at_the_visit(Guide(play), stops=list(range(150)))
        await guide.advance("each")

        (warning,) = guide.last["warnings"]
        assert "the first 100 of 150 items: its maxIterations is 100" in warning
    async with await open_ledger(settings.ledger) as ledger:
        called = (await ledger.events(types=["tool.called"]))[-1]
        advanced = (await ledger.events(types=["loop.advanced"]))[-1]
    assert called.body["vw"] == [warning]
    assert (len(advanced.body["items"]), advanced.body["left_out"]) == (100, 50)
