"""The graph of a workflow that all drawings start from.

Mermaid, SVG and plain text use the same graph, so that they show the same workflow. It does not depend on files or models.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
    """What an activity holds. `locked`: it waits for an answer before it goes on."""

    steps: int = 0
    checkpoints: int = 0
    locked: bool = False
    loops: int = 0
    decisions: int = 0
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """One box. `warning` says what is wrong with it, in a few words, and is empty when nothing is."""

    id: str
    title: str
    shape: Shape = Shape.ACTIVITY
    marks: Marks = Marks()
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """One arrow. Several reasons to go the same way are one arrow with several labels."""

    source: str
    target: str
    link: Link = Link.NEXT
    labels: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return " or ".join(self.labels)


@dataclass(frozen=True, slots=True)
class Graph:
    """A workflow as boxes and arrows. Every edge joins two of the nodes."""

    title: str
    subtitle: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def node(self, node_id: str) -> Node:
        return next(node for node in self.nodes if node.id == node_id)

    def leaving(self, node_id: str) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.source == node_id)


def describe_marks(marks: Marks) -> tuple[str, ...]:
    """The marks as short phrases, such as "3 steps" and "1 checkpoint", leaving out what is not there."""
    counted = (
        (marks.steps, "step"),
        (marks.checkpoints, "checkpoint"),
        (marks.decisions, "decision"),
        (marks.loops, "loop"),
    )
    phrases = [f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counted if count]
    return (*phrases, "optional") if marks.optional else tuple(phrases)
