"""The graph of a workflow that all drawings start from, and its construction from the definition.

Mermaid, SVG and plain text use the same graph, so that they show the same workflow. Edges between the same nodes are merged,
and an unconditional edge does not list the conditions under which it is also taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from fidelio.definitions import TERMINAL_NAMES
from fidelio.definitions.flow import (
    find_reachable,
    find_variable_domains,
    list_flow_edges,
    list_triggers,
    may_end_after,
)
from fidelio.definitions.models import Activity, Workflow
from fidelio.definitions.static_conditions import VariableDomain
from fidelio.definitions.wording import describe_count


class Shape(StrEnum):
    """The kind of a node."""

    START = "start"
    END = "end"
    ACTIVITY = "activity"
    WORKFLOW = "workflow"
    MISSING = "missing"


class Link(StrEnum):
    """The kind of an edge, from the most general to the most specific."""

    NEXT = "next"
    CONDITION = "condition"
    DECISION = "decision"
    ANSWER = "answer"
    TRIGGER = "trigger"


@dataclass(frozen=True, slots=True)
class Marks:
    """Counts of the elements of an activity. `locked`: it has a checkpoint that blocks until it is answered."""

    steps: int = 0
    checkpoints: int = 0
    locked: bool = False
    loops: int = 0
    decisions: int = 0
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """A box. `warning` describes a problem of the node in a few words; it is empty if there is none."""

    id: str
    title: str
    shape: Shape = Shape.ACTIVITY
    marks: Marks = Marks()
    warning: str = ""


class Edge(msgspec.Struct, frozen=True):
    """An arrow. Several transitions between the same nodes are a single arrow with several labels."""

    source: str
    target: str
    link: Link = Link.NEXT
    labels: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return " or ".join(self.labels)


@dataclass(frozen=True, slots=True)
class Graph:
    """A workflow as nodes and edges. Every edge joins two of the nodes."""

    title: str
    subtitle: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def node(self, node_id: str) -> Node:
        return next(node for node in self.nodes if node.id == node_id)

    def outgoing(self, node_id: str) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.source == node_id)


def group_by_source(edges: Iterable[Edge]) -> dict[str, list[Edge]]:
    outgoing: dict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        outgoing[edge.source].append(edge)
    return outgoing


def describe_marks(marks: Marks) -> tuple[str, ...]:
    """The marks as short phrases, such as "3 steps" and "1 checkpoint", without those that are zero."""
    counted = (
        (marks.steps, "step"),
        (marks.checkpoints, "checkpoint"),
        (marks.decisions, "decision"),
        (marks.loops, "loop"),
    )
    phrases = [describe_count(count, noun) for count, noun in counted if count]
    return (*phrases, "optional") if marks.optional else tuple(phrases)


_START, _END = "fidelio:start", "fidelio:end"
_LINKS = {
    "next": Link.NEXT,
    "condition": Link.CONDITION,
    "decision": Link.DECISION,
    "answer": Link.ANSWER,
    "loop": Link.CONDITION,
}
_LINK_ORDER = list(Link)


def build_graph(workflow: Workflow) -> Graph:
    domains = find_variable_domains(workflow)
    outgoing = (edge for activity in workflow.activities for edge in _list_outgoing_edges(workflow, activity, domains))
    edges = _merge_edges([*_list_entry_edges(workflow), *outgoing])
    nodes = _add_warnings(_build_nodes(workflow, edges), edges, independent=workflow.independent)
    kind = "independent activity" if workflow.independent else "activity"
    count = describe_count(len(workflow.activities), kind, kind.removesuffix("y") + "ies")
    return Graph(workflow.title, f"{workflow.id} {workflow.version} · {count}", nodes, edges)


def _list_entry_edges(workflow: Workflow) -> Iterator[Edge]:
    if workflow.initial_activity:
        yield Edge(_START, find_target_node(workflow, workflow.initial_activity))


def _list_outgoing_edges(workflow: Workflow, activity: Activity, domains: dict[str, VariableDomain]) -> Iterator[Edge]:
    for edge in list_flow_edges(activity):
        labels = (edge.words,) if edge.words else ()
        yield Edge(activity.id, find_target_node(workflow, edge.target), _LINKS[edge.reason], labels)
    for trigger, _ in list_triggers(activity):
        yield Edge(activity.id, _workflow_node_id(trigger.workflow), Link.TRIGGER, ("starts",))
    if not workflow.independent and may_end_after(activity, domains):
        conditional = bool(activity.transitions)
        link, labels = (Link.CONDITION, ("otherwise",)) if conditional else (Link.NEXT, ())
        yield Edge(activity.id, _END, link, labels)


def find_target_node(workflow: Workflow, name: str) -> str:
    """The id of the node that a transition leads to: an activity, the end, or a name that nothing has."""
    if workflow.activity(name):
        return name
    return _END if name in TERMINAL_NAMES and name not in workflow.broken else _missing_node_id(name)


def _missing_node_id(name: str) -> str:
    return f"fidelio:missing:{name}"


def _workflow_node_id(name: str) -> str:
    return f"fidelio:workflow:{name}"


def _merge_edges(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    merged: dict[tuple[str, str], Edge] = {}
    for edge in edges:
        key = edge.source, edge.target
        merged[key] = _join_edges(merged[key], edge) if key in merged else edge
    return tuple(merged.values())


def _join_edges(first: Edge, second: Edge) -> Edge:
    plainer, other = sorted((first, second), key=lambda edge: _LINK_ORDER.index(edge.link))
    if plainer.link is Link.NEXT:
        return plainer
    return Edge(first.source, first.target, plainer.link, tuple(dict.fromkeys((*first.labels, *other.labels, *plainer.labels))))


def _build_nodes(workflow: Workflow, edges: tuple[Edge, ...]) -> list[Node]:
    nodes = [_build_activity_node(activity) for activity in workflow.activities]
    targets = dict.fromkeys(edge.target for edge in edges)
    if any(edge.source == _START for edge in edges):
        nodes.insert(0, Node(_START, "Start", Shape.START))
    for target in targets:
        if target.startswith(_workflow_node_id("")):
            nodes.append(Node(target, target.removeprefix(_workflow_node_id("")), Shape.WORKFLOW))
        elif target.startswith(_missing_node_id("")):
            name = target.removeprefix(_missing_node_id(""))
            flaw = "cannot be read" if name in workflow.broken else "no such activity"
            nodes.append(Node(target, name, Shape.MISSING, warning=flaw))
    if _END in targets:
        nodes.append(Node(_END, "End", Shape.END))
    return nodes


def _build_activity_node(activity: Activity) -> Node:
    marks = Marks(
        steps=len(activity.steps),
        checkpoints=len(activity.checkpoints),
        locked=any(checkpoint.blocking and checkpoint.required for checkpoint in activity.checkpoints),
        loops=len(activity.loops),
        decisions=len(activity.decisions),
        optional=not activity.required,
    )
    return Node(activity.id, activity.name, Shape.ACTIVITY, marks)


def _add_warnings(nodes: list[Node], edges: tuple[Edge, ...], *, independent: bool) -> tuple[Node, ...]:
    if independent:
        return tuple(nodes)
    targets = {source: [edge.target for edge in group] for source, group in group_by_source(edges).items()}
    reached = find_reachable([_START], targets)
    return tuple(
        replace(node, warning="nothing leads here") if node.shape is Shape.ACTIVITY and node.id not in reached else node
        for node in nodes
    )
