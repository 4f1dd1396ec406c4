"""Which way a workflow goes on."""

from __future__ import annotations

from typing import Any

from fidelio.conductor.choices import Onward, Undecided, choose
from fidelio.definitions.models import Workflow
from fidelio.engine.record import ActivityVisit, Record
from tests.support import proves


def workflow(*transitions: dict[str, Any], variables: tuple[dict[str, Any], ...] = ()) -> Workflow:
    activities = [
        {"id": "first", "version": "1.0.0", "name": "First", "transitions": list(transitions)},
        *({"id": name, "version": "1.0.0", "name": name} for name in ("left", "right")),
    ]
    head = {"id": "crossing", "version": "1.0.0", "title": "Crossing", "initialActivity": "first"}
    return Workflow.model_validate({**head, "variables": list(variables), "activities": activities})


def when(value: bool) -> dict[str, Any]:
    return {"type": "simple", "variable": "windy", "operator": "==", "value": value}


WINDY = {"name": "windy", "type": "boolean", "description": "Whether it blows."}
AT_FIRST = Record(workflow="crossing", here=ActivityVisit(activity="first", visit=1), visits=1)


@proves("conductor.takes-the-way-that-holds")
def test_the_first_way_that_holds_is_taken_with_its_condition() -> None:
    definition = workflow({"to": "left", "condition": when(True)}, {"to": "right", "isDefault": True}, variables=(WINDY,))
    blown = Record(workflow="crossing", here=AT_FIRST.here, visits=1, variables={"windy": True}, set_by={"windy": "agent:a"})
    chosen = choose(definition, blown)
    assert isinstance(chosen, Onward)
    assert chosen.to == "left"
    assert chosen.claim


@proves("conductor.takes-the-way-that-holds")
def test_what_nobody_has_said_is_asked_for_by_name() -> None:
    definition = workflow(
        {"to": "left", "condition": when(True)}, {"to": "right", "condition": when(False)}, variables=(WINDY,)
    )
    assert choose(definition, AT_FIRST) == Undecided(("windy",))


@proves("conductor.takes-the-way-that-holds")
def test_a_session_that_has_not_begun_enters_the_first_activity() -> None:
    assert choose(workflow({"to": "left"}), Record(workflow="crossing")) == Onward("first", None)


@proves("conductor.takes-the-way-that-holds")
def test_where_nothing_leads_on_the_workflow_ends() -> None:
    assert choose(workflow(), AT_FIRST) == Onward("__terminal__", None)
