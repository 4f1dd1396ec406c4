"""Where conditions stand in an activity, which names they may use, and which values have which type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fidelio.definitions.flow import steps_of
from fidelio.definitions.lint.subject import ActivityPart, Subject
from fidelio.definitions.models import Action, Activity, And, Condition, Loop, Not, Or
from fidelio.definitions.models.base import Path


@dataclass(frozen=True, slots=True)
class Placed:
    """A condition, where it stands, and whose it is, in words."""

    condition: Condition
    path: Path
    owner: str


def conditions_of(activity: Activity) -> Iterator[Placed]:
    """Every condition in the activity, kind by kind."""
    for index, transition in enumerate(activity.transitions):
        yield from _placed(transition.condition, ("transitions", index), f"the transition to {transition.to}")
    for index, checkpoint in enumerate(activity.checkpoints):
        yield from _placed(checkpoint.condition, ("checkpoints", index), f"checkpoint {checkpoint.id}")
    for at, decision in enumerate(activity.decisions):
        for index, branch in enumerate(decision.branches):
            yield from _placed(branch.condition, ("decisions", at, "branches", index), f"branch {branch.id}")
    for index, loop in enumerate(activity.loops):
        yield from _of_loop(loop, ("loops", index))
    for step, path in steps_of(activity):
        yield from _placed(step.condition, path, f"step {step.id}")
    for action, path in actions_of(activity):
        yield from _placed(action.condition, path, f"the action {action.action}")


def _of_loop(loop: Loop, path: Path) -> Iterator[Placed]:
    yield from _placed(loop.condition, path, f"loop {loop.id}")
    if loop.break_condition is not None:
        yield Placed(loop.break_condition, (*path, "breakCondition"), f"loop {loop.id}")


def _placed(condition: Condition | None, path: Path, owner: str) -> Iterator[Placed]:
    if condition is not None:
        yield Placed(condition, (*path, "condition"), owner)


def actions_of(activity: Activity) -> Iterator[tuple[Action, Path]]:
    yield from _indexed(activity.entry_actions, ("entryActions",))
    yield from _indexed(activity.exit_actions, ("exitActions",))
    for step, path in steps_of(activity):
        yield from _indexed(step.actions, (*path, "actions"))


def _indexed(actions: Iterable[Action], path: Path) -> Iterator[tuple[Action, Path]]:
    yield from ((action, (*path, index)) for index, action in enumerate(actions))


def parts_of(placed: Placed) -> Iterator[tuple[Condition, Path]]:
    """The condition and everything inside it, the whole before its parts."""
    yield from _parts(placed.condition, placed.path)


def _parts(condition: Condition, path: Path) -> Iterator[tuple[Condition, Path]]:
    yield condition, path
    if isinstance(condition, Not):
        yield from _parts(condition.condition, (*path, "condition"))
    elif isinstance(condition, And | Or):
        for index, part in enumerate(condition.conditions):
            yield from _parts(part, (*path, "conditions", index))


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that an activity may use: the variables of the workflow, and the items of its own loops."""

    types: dict[str, str]
    items: frozenset[str]

    @property
    def names(self) -> list[str]:
        return sorted({*self.types, *self.items})

    def knows(self, name: str) -> bool:
        """Dots lead into objects and lists, unless a variable bears the whole name."""
        first = name.partition(".")[0]
        return name in self.types or first in self.types or first in self.items


def scope_of(subject: Subject, part: ActivityPart) -> Scope:
    items = frozenset(loop.variable for loop in part.activity.loops if loop.variable)
    return Scope(declared_in(subject).types, items)


def declared_in(subject: Subject) -> Scope:
    """The names that stand for something in the whole workflow."""
    return Scope({variable.name: str(variable.type) for variable in subject.workflow.variables}, frozenset())


def declared_type(scope: Scope, name: str) -> str | None:
    """None for what is inside an object, for the item of a loop, and for what nobody declared."""
    return None if name in scope.items else scope.types.get(name)


def fits(value: Any, kind: str) -> bool:
    """Whether a variable of this type can have the value. Nothing at all is a value of every type."""
    match kind:
        case _ if value is None:
            return True
        case "boolean":
            return isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list | tuple)
        case "object":
            return isinstance(value, dict)
        case _:
            return isinstance(value, str)
