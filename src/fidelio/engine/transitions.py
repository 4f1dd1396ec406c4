"""The ways out of an activity, and what ends a workflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fidelio.definitions.models import Activity, Condition, Workflow
from fidelio.engine.conditions import Truth, holds

TERMINAL = "__terminal__"


@dataclass(frozen=True, slots=True)
class Edge:
    """One way out. A default way is open when nothing else is; by itself it makes no claim."""

    to: str
    condition: Condition | None
    default: bool

    def holds(self, variables: Mapping[str, Any]) -> Truth:
        return holds(self.condition, variables)


def outgoing(activity: Activity) -> Iterator[Edge]:
    """Transitions first, then the branches of decisions: the order in which they are tried."""
    for transition in activity.transitions:
        yield Edge(transition.to, transition.condition, transition.is_default)
    for decision in activity.decisions:
        for branch in decision.branches:
            yield Edge(branch.transition_to or TERMINAL, branch.condition, branch.is_default)


def ends_workflow(workflow: Workflow, target: str) -> bool:
    """A target that ends the workflow: the terminal name, or one that the definition goes to and that is no activity."""
    if any(activity.id == target for activity in workflow.activities):
        return False
    return target == TERMINAL or any(edge.to == target for activity in workflow.activities for edge in outgoing(activity))


def with_defaults(workflow: Workflow, variables: Mapping[str, Any]) -> dict[str, Any]:
    """What is known when a declared default counts as a value."""
    declared = {v.name: v.default_value for v in workflow.variables if v.default_value is not None}
    return {**declared, **variables}
