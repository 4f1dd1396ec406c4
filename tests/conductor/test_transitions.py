"""Choice of the next transition."""

from __future__ import annotations

from typing import Any

from fidelio.conductor.segments import ChosenTransition, UndecidedTransition, choose_transition
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
def test_the_first_transition_whose_condition_is_true_is_chosen() -> None:
    definition = workflow({"to": "left", "condition": when(True)}, {"to": "right", "isDefault": True}, variables=(WINDY,))
    blown = Record(workflow="crossing", here=AT_FIRST.here, visits=1, variables={"windy": True}, set_by={"windy": "agent:a"})
    chosen = choose_transition(definition, blown)
    assert isinstance(chosen, ChosenTransition)
    assert chosen.to == "left"
    assert chosen.claim


@proves("conductor.takes-the-way-that-holds")
def test_unset_variables_of_the_conditions_are_named() -> None:
    definition = workflow(
        {"to": "left", "condition": when(True)}, {"to": "right", "condition": when(False)}, variables=(WINDY,)
    )
    assert choose_transition(definition, AT_FIRST) == UndecidedTransition(("windy",))


@proves("conductor.takes-the-way-that-holds")
def test_a_session_that_has_not_begun_enters_the_first_activity() -> None:
    assert choose_transition(workflow({"to": "left"}), Record(workflow="crossing")) == ChosenTransition("first", None)


@proves("conductor.takes-the-way-that-holds")
def test_an_activity_without_transitions_ends_the_workflow() -> None:
    assert choose_transition(workflow(), AT_FIRST) == ChosenTransition("__terminal__", None)
