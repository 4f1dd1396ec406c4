"""From a workflow to the graph that is drawn.

Several reasons to go the same way become one arrow, and a way that is open in any case needs no list of the cases in which it
is also taken: a picture shows what a reader must know to follow the flow, not every line of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fidelio.definitions.drawing.graph import Edge, Graph, Link, Marks, Node, Shape
from fidelio.definitions.flow import activity_ids, is_end, known_variables, may_end_here, triggers_of, ways_out
from fidelio.definitions.models import Activity, Workflow
from fidelio.definitions.wording import counted

_START, _END = "fidelio:start", "fidelio:end"
_LINKS = {
    "next": Link.NEXT,
    "condition": Link.CONDITION,
    "decision": Link.DECISION,
    "answer": Link.ANSWER,
    "loop": Link.CONDITION,
}
_PLAINEST_FIRST = list(Link)


def graph_of(workflow: Workflow) -> Graph:
    edges = _merged([*_entries(workflow), *(edge for a in workflow.activities for edge in _leaving(workflow, a))])
    nodes = _with_warnings(_nodes(workflow, edges), edges, independent=workflow.independent)
    kind = "independent activity" if workflow.independent else "activity"
    count = counted(len(workflow.activities), kind, kind.removesuffix("y") + "ies")
    return Graph(workflow.title, f"{workflow.id} {workflow.version} · {count}", nodes, edges)


def _entries(workflow: Workflow) -> Iterator[Edge]:
    if workflow.initial_activity:
        yield Edge(_START, _target(workflow, workflow.initial_activity))


def _leaving(workflow: Workflow, activity: Activity) -> Iterator[Edge]:
    for way in ways_out(activity):
        labels = (way.words,) if way.words else ()
        yield Edge(activity.id, _target(workflow, way.target), _LINKS[way.reason], labels)
    for trigger, _ in triggers_of(activity):
        yield Edge(activity.id, _workflow(trigger.workflow), Link.TRIGGER, ("starts",))
    if not workflow.independent and may_end_here(activity, known_variables(workflow)):
        conditional = bool(activity.transitions)
        link, labels = (Link.CONDITION, ("otherwise",)) if conditional else (Link.NEXT, ())
        yield Edge(activity.id, _END, link, labels)


def _target(workflow: Workflow, name: str) -> str:
    if is_end(name, activity_ids(workflow)):
        return _END
    return name if workflow.activity(name) else _missing(name)


def _missing(name: str) -> str:
    return f"fidelio:missing:{name}"


def _workflow(name: str) -> str:
    return f"fidelio:workflow:{name}"


def _merged(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    together: dict[tuple[str, str], Edge] = {}
    for edge in edges:
        key = edge.source, edge.target
        together[key] = _joined(together[key], edge) if key in together else edge
    return tuple(together.values())


def _joined(one: Edge, two: Edge) -> Edge:
    plainer, other = sorted((one, two), key=lambda edge: _PLAINEST_FIRST.index(edge.link))
    if plainer.link is Link.NEXT:
        return plainer
    return Edge(one.source, one.target, plainer.link, tuple(dict.fromkeys((*one.labels, *other.labels, *plainer.labels))))


def _nodes(workflow: Workflow, edges: tuple[Edge, ...]) -> list[Node]:
    nodes = [_activity(activity) for activity in workflow.activities]
    targets = dict.fromkeys(edge.target for edge in edges)
    if any(edge.source == _START for edge in edges):
        nodes.insert(0, Node(_START, "Start", Shape.START))
    for target in targets:
        if target.startswith(_workflow("")):
            nodes.append(Node(target, target.removeprefix(_workflow("")), Shape.WORKFLOW))
        elif target.startswith(_missing("")):
            name = target.removeprefix(_missing(""))
            flaw = "cannot be read" if name in workflow.broken else "no such activity"
            nodes.append(Node(target, name, Shape.MISSING, warning=flaw))
    if _END in targets:
        nodes.append(Node(_END, "End", Shape.END))
    return nodes


def _activity(activity: Activity) -> Node:
    marks = Marks(
        steps=len(activity.steps),
        checkpoints=len(activity.checkpoints),
        locked=any(checkpoint.blocking and checkpoint.required for checkpoint in activity.checkpoints),
        loops=len(activity.loops),
        decisions=len(activity.decisions),
        optional=not activity.required,
    )
    return Node(activity.id, activity.name, Shape.ACTIVITY, marks)


def _with_warnings(nodes: list[Node], edges: tuple[Edge, ...], *, independent: bool) -> tuple[Node, ...]:
    if independent:
        return tuple(nodes)
    reached = _reached(edges)
    return tuple(
        node
        if node.warning or node.id in reached or node.shape is not Shape.ACTIVITY
        else Node(node.id, node.title, node.shape, node.marks, "nothing leads here")
        for node in nodes
    )


def _reached(edges: tuple[Edge, ...]) -> set[str]:
    reached, waiting = {_START}, [_START]
    while waiting:
        here = waiting.pop()
        new = [edge.target for edge in edges if edge.source == here and edge.target not in reached]
        reached.update(new)
        waiting.extend(new)
    return reached
