"""Edges between the activities of a workflow, from all elements that declare them.

Besides transitions, answers to checkpoints, branches of decisions and loops lead to activities. Drawing and lint use this list.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from fidelio.definitions import TERMINAL_NAMES
from fidelio.definitions.models import Activity, Branch, Condition, Or, Step, Transition, Trigger, Workflow
from fidelio.definitions.models.base import Path
from fidelio.definitions.short_conditions import render_short_condition
from fidelio.definitions.static_conditions import VariableDomain, find_constant_truth

Reason = Literal["next", "condition", "decision", "answer", "loop"]


class FlowEdge(msgspec.Struct, frozen=True):
    """An edge to another activity. `words` describes its condition; `path` is the path of the target in the activity."""

    target: str
    reason: Reason
    words: str
    path: Path


def collect_activity_ids(workflow: Workflow) -> frozenset[str]:
    """The ids of all activities, including those that could not be read."""
    return frozenset([*(activity.id for activity in workflow.activities), *workflow.broken])


def is_end(target: str, activities: frozenset[str]) -> bool:
    return target in TERMINAL_NAMES and target not in activities


def list_flow_edges(activity: Activity) -> tuple[FlowEdge, ...]:
    """All outgoing edges of the activity, in the order of the file, the transitions first."""
    return (
        *_list_transitions(activity),
        *_list_branches(activity),
        *_list_answers(activity),
        *_list_loops(activity),
    )


def _list_transitions(activity: Activity) -> Iterator[FlowEdge]:
    for index, transition in enumerate(activity.transitions):
        path: Path = ("transitions", index, "to")
        if transition.is_default or transition.condition is None:
            yield FlowEdge(transition.to, "next", "otherwise" if len(activity.transitions) > 1 else "", path)
        else:
            yield FlowEdge(transition.to, "condition", render_short_condition(transition.condition), path)


def _list_branches(activity: Activity) -> Iterator[FlowEdge]:
    for at, decision in enumerate(activity.decisions):
        for index, branch in enumerate(decision.branches):
            if branch.transition_to:
                path: Path = ("decisions", at, "branches", index, "transitionTo")
                yield FlowEdge(branch.transition_to, "decision", branch.label, path)


def _list_answers(activity: Activity) -> Iterator[FlowEdge]:
    for at, checkpoint in enumerate(activity.checkpoints):
        for index, option in enumerate(checkpoint.options):
            if option.effect and option.effect.transition_to:
                path: Path = ("checkpoints", at, "options", index, "effect", "transitionTo")
                yield FlowEdge(option.effect.transition_to, "answer", option.label, path)


def _list_loops(activity: Activity) -> Iterator[FlowEdge]:
    for at, loop in enumerate(activity.loops):
        for index, target in enumerate(loop.activities):
            yield FlowEdge(target, "loop", loop.name, ("loops", at, "activities", index))


Adjacency = Mapping[str, Iterable[str]]


def find_reachable(starts: Iterable[str], graph: Adjacency, excluded: Collection[str] = ()) -> set[str]:
    """All nodes that are reachable from the starts, including these, without passing through excluded nodes."""
    waiting = list(starts)
    found = set(waiting)
    while waiting:
        new = [target for target in graph.get(waiting.pop(), ()) if target not in found and target not in excluded]
        found.update(new)
        waiting.extend(new)
    return found


def list_steps(activity: Activity) -> Iterator[tuple[Step, Path]]:
    """The steps of the activity and of its loops, with their paths."""
    yield from ((step, ("steps", index)) for index, step in enumerate(activity.steps))
    for at, loop in enumerate(activity.loops):
        yield from ((step, ("loops", at, "steps", index)) for index, step in enumerate(loop.steps))


def list_triggers(activity: Activity) -> Iterator[tuple[Trigger, Path]]:
    """The workflows that the activity, its steps or the steps of its loops start."""
    yield from ((trigger, ("triggers", index)) for index, trigger in enumerate(activity.triggers))
    for step, path in list_steps(activity):
        yield from ((trigger, (*path, "triggers", index)) for index, trigger in enumerate(step.triggers))


def find_variable_domains(workflow: Workflow) -> dict[str, VariableDomain]:
    """The domains of the declared variables. A variable with a default always has a value, unless an answer clears it."""
    cleared = frozenset(_find_cleared_variables(workflow))
    return {
        variable.name: VariableDomain(variable.type, variable.default_value is not None and variable.name not in cleared)
        for variable in workflow.variables
    }


def _find_cleared_variables(workflow: Workflow) -> Iterator[str]:
    for activity in workflow.activities:
        for option in (option for checkpoint in activity.checkpoints for option in checkpoint.options):
            values = option.effect.set_variable if option.effect else {}
            yield from (name for name, value in values.items() if value is None)


def may_end_after(activity: Activity, domains: dict[str, VariableDomain]) -> bool:
    """Whether the workflow can end after the activity: it has no outgoing edge, or possibly none that is open."""
    branches = [branch for decision in activity.decisions for branch in decision.branches]
    if any(transition.is_default or transition.condition is None for transition in activity.transitions):
        return False
    always = [branch for branch in branches if branch.is_default or branch.condition is None]
    if always:
        return any(branch.transition_to is None for branch in always)
    edges: list[Transition | Branch] = [*activity.transitions, *branches]
    return not _is_exhaustive([edge.condition for edge in edges if edge.condition is not None], domains)


def _is_exhaustive(conditions: list[Condition], domains: dict[str, VariableDomain]) -> bool:
    if len(conditions) < 2:
        return any(find_constant_truth(condition, domains) == "always" for condition in conditions)
    # The conditions are validated already; doing it again for hundreds of them takes a tenth of a drawing.
    return find_constant_truth(Or.model_construct(type="or", conditions=tuple(conditions)), domains) == "always"
