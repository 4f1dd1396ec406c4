"""Conditions and actions of an activity with their paths, names in scope, and types of values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fidelio.definitions.conditions import name_type
from fidelio.definitions.flow import list_steps
from fidelio.definitions.lint.subject import ActivitySubject, LintSubject
from fidelio.definitions.models import Action, Activity, And, Condition, Loop, Not, Or, Simple
from fidelio.definitions.models.base import Path


@dataclass(frozen=True, slots=True)
class LocatedCondition:
    """A condition, its path, and a description of its owner."""

    condition: Condition
    path: Path
    owner: str


def list_conditions(activity: Activity) -> Iterator[LocatedCondition]:
    """Every condition in the activity, kind by kind."""
    for index, transition in enumerate(activity.transitions):
        yield from _locate(transition.condition, ("transitions", index), f"the transition to {transition.to}")
    for index, checkpoint in enumerate(activity.checkpoints):
        yield from _locate(checkpoint.condition, ("checkpoints", index), f"checkpoint {checkpoint.id}")
    for at, decision in enumerate(activity.decisions):
        for index, branch in enumerate(decision.branches):
            yield from _locate(branch.condition, ("decisions", at, "branches", index), f"branch {branch.id}")
    for index, loop in enumerate(activity.loops):
        yield from _list_loop_conditions(loop, ("loops", index))
    for step, path in list_steps(activity):
        yield from _locate(step.condition, path, f"step {step.id}")
    for action, path in list_actions(activity):
        yield from _locate(action.condition, path, f"the action {action.action}")


def _list_loop_conditions(loop: Loop, path: Path) -> Iterator[LocatedCondition]:
    yield from _locate(loop.condition, path, f"loop {loop.id}")
    if loop.break_condition is not None:
        yield LocatedCondition(loop.break_condition, (*path, "breakCondition"), f"loop {loop.id}")


def _locate(condition: Condition | None, path: Path, owner: str) -> Iterator[LocatedCondition]:
    if condition is not None:
        yield LocatedCondition(condition, (*path, "condition"), owner)


def list_actions(activity: Activity) -> Iterator[tuple[Action, Path]]:
    yield from _add_paths(activity.entry_actions, ("entryActions",))
    yield from _add_paths(activity.exit_actions, ("exitActions",))
    for step, path in list_steps(activity):
        yield from _add_paths(step.actions, (*path, "actions"))


def _add_paths(actions: Iterable[Action], path: Path) -> Iterator[tuple[Action, Path]]:
    yield from ((action, (*path, index)) for index, action in enumerate(actions))


def list_subconditions(condition: Condition, path: Path) -> Iterator[tuple[Condition, Path]]:
    """The condition and all conditions inside it, the outer before the inner."""
    yield condition, path
    if isinstance(condition, Not):
        yield from list_subconditions(condition.condition, (*path, "condition"))
    elif isinstance(condition, And | Or):
        for index, entry in enumerate(condition.conditions):
            yield from list_subconditions(entry, (*path, "conditions", index))


def list_comparisons_in(activity: Activity) -> Iterator[tuple[Simple, Path, str]]:
    """Every comparison in the conditions of the activity, with its path and the owner of the condition."""
    for located in list_conditions(activity):
        for node, path in list_subconditions(located.condition, located.path):
            if isinstance(node, Simple):
                yield node, path, located.owner


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that an activity may use: the variables of the workflow, and the items of its own loops."""

    types: dict[str, str]
    items: frozenset[str]

    @property
    def names(self) -> list[str]:
        return sorted({*self.types, *self.items})

    def declares(self, name: str) -> bool:
        """Whether the name is declared. A dotted name refers to a member of an object or list, unless a variable has that
        name.
        """
        first = name.partition(".")[0]
        return name in self.types or first in self.types or first in self.items


def build_scope(subject: LintSubject, entry: ActivitySubject) -> Scope:
    items = frozenset(loop.variable for loop in entry.activity.loops if loop.variable)
    return Scope(build_workflow_scope(subject).types, items)


def build_workflow_scope(subject: LintSubject) -> Scope:
    """The names that are declared in the whole workflow."""
    return Scope({variable.name: str(variable.type) for variable in subject.workflow.variables}, frozenset())


def find_declared_type(scope: Scope, name: str) -> str | None:
    """The declared type; None for members of objects, items of loops and undeclared names."""
    return None if name in scope.items else scope.types.get(name)


def fits_type(value: object, kind: str) -> bool:
    """Whether a variable of this type can have the value. None is a value of every type."""
    return value is None or name_type(value) == kind
