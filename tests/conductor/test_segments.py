"""Division of an activity into segments."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fidelio.conductor.prompts import MAX_VALUE_LENGTH, describe_segment
from fidelio.conductor.segments import ActivitySegment, is_segmented, list_segments
from fidelio.definitions.models import Workflow
from fidelio.engine.record import LOOP_ADVANCED, STEP_COMPLETED, ActivityVisit, EventDraft, Record, fold_drafts
from tests.conductor.run_setup import activity
from tests.support import proves

AT_SAIL = Record(workflow="ferry", here=ActivityVisit(activity="sail", visit=1), visits=1)
STARTS = [{"workflow": "crossing"}]


def ferry(**more: Any) -> Workflow:
    head = {"id": "ferry", "version": "1.0.0", "title": "Ferry", "initialActivity": "sail"}
    return Workflow.model_validate({**head, "activities": [activity("sail", **more), activity("rest")]})


def steps(starting: list[bool]) -> list[dict[str, Any]]:
    return [{"id": f"s{n}", "name": f"S{n}", "triggers": STARTS if starts else []} for n, starts in enumerate(starting)]


def in_iteration(number: int, items: list[Any]) -> Record:
    body = {"activity": "sail", "loop": "tour", "iteration": number, "items": items, "at": 1}
    return fold_drafts(AT_SAIL, [EventDraft(LOOP_ADVANCED, body)], 0)


@proves("conductor.stretches")
@given(st.lists(st.booleans(), max_size=12))
def test_segments_hold_every_step_once_and_end_with_those_that_start_workflows(starting: list[bool]) -> None:
    found = list_segments(ferry(steps=steps(starting)), AT_SAIL)

    assert [name for segment in found for name in segment.step_ids] == [f"s{n}" for n in range(len(starting))]
    assert all(not step.triggers for segment in found for step in segment.steps[:-1])
    assert all(segment.steps[-1].triggers for segment in found[:-1])
    assert len({segment.key for segment in found}) == len(found)


@proves("conductor.stretches")
@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_a_segment_keeps_its_key_while_its_steps_are_done(starting: list[bool], data: st.DataObject) -> None:
    workflow = ferry(steps=steps(starting))
    done = data.draw(st.integers(0, len(starting) - 1))
    before = {name: segment.key for segment in list_segments(workflow, AT_SAIL) for name in segment.step_ids}
    drafts = [EventDraft(STEP_COMPLETED, {"activity": "sail", "step": f"s{n}", "at": n + 1, "loop": ""}) for n in range(done)]
    later = fold_drafts(AT_SAIL, drafts, 0)
    after = {name: segment.key for segment in list_segments(workflow, later) for name in segment.step_ids}

    assert after == {name: before[name] for name in list(before)[done:]}


@proves("conductor.stretches")
def test_every_iteration_has_its_own_segment_keys() -> None:
    loop = {"id": "tour", "name": "Tour", "type": "forEach", "over": "x", "variable": "island", "steps": steps([True, False])}
    workflow = ferry(loops=[loop])
    keys = [[segment.key for segment in list_segments(workflow, in_iteration(number, ["a", "b"]))] for number in (1, 2)]

    assert keys == [["1-1-0", "1-1-1"], ["1-2-0", "1-2-1"]]


@proves("conductor.stretches")
def test_an_activity_without_triggers_and_loop_activities_has_no_segments() -> None:
    plain = {"id": "tour", "name": "Tour", "type": "forEach", "over": "x", "steps": steps([False])}

    assert not is_segmented(ferry(loops=[plain]), AT_SAIL)
    assert is_segmented(ferry(loops=[{**plain, "activities": ["rest"]}]), AT_SAIL)
    assert is_segmented(ferry(loops=[{**plain, "steps": steps([True])}]), AT_SAIL)
    assert is_segmented(ferry(triggers=STARTS), AT_SAIL)


@proves("conductor.loop-children")
def test_an_item_of_any_length_leaves_the_prompt_short() -> None:
    loop = {"id": "tour", "name": "Tour", "type": "forEach", "over": "x", "variable": "island", "steps": steps([True])}
    lines = describe_segment(ferry(loops=[loop]), in_iteration(1, ["x" * 10 * MAX_VALUE_LENGTH]), ActivitySegment("1-1-0"), ())

    assert "island is" in lines[0]
    assert len("\n".join(lines)) < 2 * MAX_VALUE_LENGTH
