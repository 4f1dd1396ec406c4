"""The bundled workflows as the tests look at them: every text that refers to something, with the place it stands in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

from fidelio.definitions.conditions import list_variables
from fidelio.definitions.flow import list_steps, list_triggers
from fidelio.definitions.library import Library, Root
from fidelio.definitions.models import Action, Activity, Condition, Step, Workflow
from fidelio.definitions.models.components import Skill

BUNDLED = Path(str(files("fidelio"))) / "bundled"
# `hello` is a first taste, written to be short; the other three show how a real workflow is written.
TAUGHT = ("meta", "work-package", "work-packages")
ALL = ("hello", *TAUGHT)

_PLACEHOLDER = re.compile(r"\{([a-z_]+)(?:\.[a-z_]+)*\}")


@cache
def library() -> Library:
    return Library([Root(BUNDLED, "bundled")])


def workflow(name: str) -> Workflow:
    return library().workflow(name)


def skills(name: str) -> dict[str, Skill]:
    found = (library().skill(part.id, workflow=name).definition for part in library().components("skills", name))
    return {skill.id: skill for skill in found}


def steps(activity: Activity) -> list[Step]:
    return [step for step, _ in list_steps(activity)]


def texts(name: str, *folders: str) -> dict[str, str]:
    """The files of a workflow as they are written, by their path in it; the manifest is in the folder `.`."""
    found = (path for folder in folders for path in sorted((BUNDLED / name / folder).glob("*.*")))
    return {str(path.relative_to(BUNDLED / name)): path.read_text("utf-8") for path in found}


def placeholders(text: str) -> set[str]:
    return set(_PLACEHOLDER.findall(text))


def passed_on(parent: Workflow) -> set[str]:
    return {name for a in parent.activities for trigger, _ in list_triggers(a) for name in trigger.pass_context}


def actions(activity: Activity) -> Iterator[Action]:
    yield from (*activity.entry_actions, *activity.exit_actions)
    for step in steps(activity):
        yield from step.actions


def conditions(activity: Activity) -> Iterator[Condition]:
    for step in steps(activity):
        yield from _given(step.condition)
    for loop in activity.loops:
        yield from _given(loop.condition, loop.break_condition)
    for checkpoint in activity.checkpoints:
        yield from _given(checkpoint.condition)
    for transition in activity.transitions:
        yield from _given(transition.condition)
    for decision in activity.decisions:
        yield from _given(*(branch.condition for branch in decision.branches))


def _given(*maybe: Condition | None) -> Iterator[Condition]:
    return (condition for condition in maybe if condition is not None)


def asked_for(activity: Activity) -> set[str]:
    """The variables that the activity's conditions and loops look at."""
    names = (name for condition in conditions(activity) for name in list_variables(condition))
    return {name.split(".")[0] for name in names} | {loop.over for loop in activity.loops if loop.over}
