"""How an activity is cut into stretches."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fidelio.conductor.prompts import LONGEST_VALUE, part_of
from fidelio.conductor.segments import Stretch, is_led, stretches
from fidelio.definitions.models import Workflow
from fidelio.engine.record import LOOP_ADVANCED, STEP_COMPLETED, ActivityVisit, EventDraft, Record, fold_drafts
from tests.conductor.orchestra import activity
from tests.support import proves

AT_SAIL = Record(workflow="ferry", here=ActivityVisit(activity="sail", visit=1), visits=1)
STARTS = [{"workflow": "crossing"}]


def ferry(**more: Any) -> Workflow:
    head = {"id": "ferry", "version": "1.0.0", "title": "Ferry", "initialActivity": "sail"}
    return Workflow.model_validate({**head, "activities": [activity("sail", **more), activity("rest")]})


def steps(starting: list[bool]) -> list[dict[str, Any]]:
    return [{"id": f"s{n}", "name": f"S{n}", "triggers": STARTS if one else []} for n, one in enumerate(starting)]


def in_pass(number: int, items: list[Any]) -> Record:
    body = {"activity": "sail", "loop": "tour", "iteration": number, "items": items, "at": 1}
    return fold_drafts(AT_SAIL, [EventDraft(LOOP_ADVANCED, body)], 0)


@proves("conductor.stretches")
@given(st.lists(st.booleans(), max_size=12))
def test_stretches_hold_every_step_once_and_end_with_those_that_start_something(starting: list[bool]) -> None:
    found = stretches(ferry(steps=steps(starting)), AT_SAIL)

    assert [name for one in found for name in one.names] == [f"s{n}" for n in range(len(starting))]
    assert all(not step.triggers for one in found for step in one.steps[:-1])
    assert all(one.steps[-1].triggers for one in found[:-1])
    assert len({one.key for one in found}) == len(found)


@proves("conductor.stretches")
@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_a_stretch_keeps_its_name_while_its_steps_are_done(starting: list[bool], data: st.DataObject) -> None:
    workflow = ferry(steps=steps(starting))
    done = data.draw(st.integers(0, len(starting) - 1))
    before = {name: one.key for one in stretches(workflow, AT_SAIL) for name in one.names}
    drafts = [EventDraft(STEP_COMPLETED, {"activity": "sail", "step": f"s{n}", "at": n + 1, "loop": ""}) for n in range(done)]
    after = {name: one.key for one in stretches(workflow, fold_drafts(AT_SAIL, drafts, 0)) for name in one.names}

    assert after == {name: before[name] for name in list(before)[done:]}


@proves("conductor.stretches")
def test_every_pass_names_its_stretches_anew() -> None:
    loop = {"id": "tour", "name": "Tour", "type": "forEach", "over": "x", "variable": "island", "steps": steps([True, False])}
    workflow = ferry(loops=[loop])
    keys = [[one.key for one in stretches(workflow, in_pass(number, ["a", "b"]))] for number in (1, 2)]

    assert keys == [["1-1-0", "1-1-1"], ["1-2-0", "1-2-1"]]


@proves("conductor.stretches")
def test_what_starts_nothing_and_goes_through_nothing_is_one_workers_turn() -> None:
    plain = {"id": "tour", "name": "Tour", "type": "forEach", "over": "x", "steps": steps([False])}

    assert not is_led(ferry(loops=[plain]), AT_SAIL)
    assert is_led(ferry(loops=[{**plain, "activities": ["rest"]}]), AT_SAIL)
    assert is_led(ferry(loops=[{**plain, "steps": steps([True])}]), AT_SAIL)
    assert is_led(ferry(triggers=STARTS), AT_SAIL)


@proves("conductor.loop-children")
def test_an_item_of_any_length_leaves_the_prompt_short() -> None:
    loop = {"id": "tour", "name": "Tour", "type": "forEach", "over": "x", "variable": "island", "steps": steps([True])}
    told = part_of(ferry(loops=[loop]), in_pass(1, ["x" * 10 * LONGEST_VALUE]), Stretch("1-1-0"), ())

    assert "island is" in told[0]
    assert len("\n".join(told)) < 2 * LONGEST_VALUE
