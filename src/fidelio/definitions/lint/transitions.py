"""Lint rules for the flow: reachable activities, runs that can end, and transitions that can be taken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fidelio.definitions import META
from fidelio.definitions.flow import is_end, list_flow_edges, may_end_after
from fidelio.definitions.lint.rules import LintProblem, rule
from fidelio.definitions.lint.subject import ActivitySubject, LintSubject
from fidelio.definitions.models import And, Branch, Condition, Not, Transition
from fidelio.definitions.static_conditions import VariableDomain, find_constant_truth
from fidelio.definitions.wording import join_words


@rule("no-activities", "error")
def no_activities(subject: LintSubject) -> Iterator[LintProblem]:
    """The workflow has no activity at all, so there is nothing to do in it. Does not apply to `meta`, which may hold only what
    others share.
    """
    if not subject.workflow.activities and not subject.workflow.broken and subject.key != META:
        remedy = "Add a file to `activities`, or write the activities into the manifest."
        yield LintProblem(subject.manifest, ("id",), f"The workflow {subject.key} has no activities.", remedy)


@rule("unreachable-activity", "warning")
def unreachable_activity(subject: LintSubject) -> Iterator[LintProblem]:
    """No way leads from the first activity to this one. Does not apply to a workflow without `initialActivity`, in which every
    activity is an entry of its own.
    """
    if subject.workflow.initial_activity not in subject.activity_ids or subject.workflow.broken:
        return
    graph = {part.activity.id: [edge.target for edge in list_flow_edges(part.activity)] for part in subject.activities}
    reachable = find_reachable([subject.workflow.initial_activity or ""], graph)
    for part in subject.activities:
        if part.activity.id not in reachable:
            sentence = f"No way leads from {subject.workflow.initial_activity} to {part.activity.id}."
            yield LintProblem(part.source, ("id",), sentence, "Add a transition to it, or delete it.")


@rule("no-way-out", "error")
def no_way_out(subject: LintSubject) -> Iterator[LintProblem]:
    """A run that enters this activity can never end: whatever is answered and decided, it goes round in a circle. An activity
    without transitions is an end, and so is one whose transitions all depend on conditions.
    """
    if subject.workflow.independent:
        return
    graph = {part.activity.id: _find_targets(part, subject) for part in subject.activities}
    endless = set(graph) - find_reachable([_END], reverse_edges(graph))
    order = {part.activity.id: index for index, part in enumerate(subject.activities)}
    for circle in find_cycles({name: graph[name] for name in endless}):
        names = sorted(circle, key=order.__getitem__)
        yield _report_endless(subject.activities[order[names[0]]], names)


def _report_endless(part: ActivitySubject, circle: Sequence[str]) -> LintProblem:
    round_about = (
        f"{part.activity.id} leads only back to itself" if len(circle) == 1 else f"{join_words(circle)} lead only to each other"
    )
    path = ("transitions",) if part.activity.transitions else ("id",)
    return LintProblem(
        part.source, path, f"{round_about}, so a run never ends.", "Add a way to another activity or to the end."
    )


_END = ""


def _find_targets(part: ActivitySubject, subject: LintSubject) -> set[str]:
    targets = {edge.target for edge in list_flow_edges(part.activity) if edge.reason != "loop"}
    domains = subject.variable_domains
    # A target that is missing is another rule's business; here it counts as a way out.
    ends = any(is_end(target, subject.activity_ids) or target not in subject.readable_ids for target in targets)
    return targets | ({_END} if ends or may_end_after(part.activity, domains) else set())


@rule("two-defaults", "error")
def two_defaults(subject: LintSubject) -> Iterator[LintProblem]:
    """Two transitions of an activity, or two branches of a decision, are the default. Only one of them can be what happens when
    nothing else applies.
    """
    remedy = "Keep one default and give the other a condition."
    for part in subject.activities:
        for index in _find_further_defaults(part.activity.transitions):
            sentence = f"{part.activity.id} has a second default transition."
            yield LintProblem(part.source, ("transitions", index, "isDefault"), sentence, remedy)
        for at, decision in enumerate(part.activity.decisions):
            for index in _find_further_defaults(decision.branches):
                sentence = f"Decision {decision.id} has a second default branch."
                yield LintProblem(part.source, ("decisions", at, "branches", index, "isDefault"), sentence, remedy)


def _find_further_defaults(graph: Sequence[Transition | Branch]) -> list[int]:
    return [index for index, edge in enumerate(graph) if edge.is_default][1:]


@rule("hidden-transition", "warning")
def hidden_transition(subject: LintSubject) -> Iterator[LintProblem]:
    """A transition can never be taken, because whenever it would apply, an earlier one applies as well: one without a
    condition, or with the same condition.
    """
    for part in subject.activities:
        earlier: list[Condition] = []
        for index, transition in enumerate(part.activity.transitions):
            if _is_hidden(part.activity.transitions[:index], transition, earlier, subject.variable_domains):
                sentence = f"The transition to {transition.to} is never taken: an earlier one always comes first."
                yield LintProblem(part.source, ("transitions", index, "to"), sentence, "Delete it, or correct the conditions.")
            if transition.condition is not None:
                earlier.append(transition.condition)


def _is_hidden(
    before: Sequence[Transition], transition: Transition, conditions: list[Condition], domains: dict[str, VariableDomain]
) -> bool:
    if any(other.condition is None and not other.is_default for other in before):
        return True
    if transition.condition is None or transition.is_default or not conditions:
        return False
    if find_constant_truth(transition.condition, domains) == "never":
        return False
    none_earlier = tuple(Not(type="not", condition=condition) for condition in conditions)
    return find_constant_truth(And(type="and", conditions=(transition.condition, *none_earlier)), domains) == "never"


@rule("default-not-last", "warning")
def default_not_last(subject: LintSubject) -> Iterator[LintProblem]:
    """The default transition stands before others. It is still tried last, but whoever reads the file from top to bottom will
    think that it comes first.
    """
    for part in subject.activities:
        transitions = part.activity.transitions
        defaults = [index for index, transition in enumerate(transitions) if transition.is_default]
        if len(defaults) == 1 and defaults[0] < len(transitions) - 1:
            sentence = f"The default transition of {part.activity.id} stands before others."
            yield LintProblem(part.source, ("transitions", defaults[0]), sentence, "Move it to the end of the list.")


@rule("no-default", "warning")
def no_default(subject: LintSubject) -> Iterator[LintProblem]:
    """Every transition has a condition and none is the default. When no condition holds, the workflow is over, which is rarely
    what is meant. Where it is meant, a default transition to `__terminal__` says so.
    """
    if subject.workflow.independent:
        return
    for part in subject.activities:
        if part.activity.transitions and may_end_after(part.activity, subject.variable_domains):
            sentence = f"When none of its conditions holds, the workflow ends after {part.activity.id}."
            remedy = "Mark one transition `isDefault: true`, or add a default one to `__terminal__`."
            yield LintProblem(part.source, ("transitions",), sentence, remedy)


Adjacency = Mapping[str, Iterable[str]]


def find_reachable(starts: Iterable[str], graph: Adjacency) -> set[str]:
    """The starts and everything that can be reached from them."""
    waiting = list(starts)
    found = set(waiting)
    while waiting:
        new = [target for target in graph.get(waiting.pop(), ()) if target not in found]
        found.update(new)
        waiting.extend(new)
    return found


def reverse_edges(graph: Adjacency) -> dict[str, list[str]]:
    """The graph with all edges reversed."""
    back: dict[str, list[str]] = defaultdict(list)
    for source, targets in graph.items():
        for target in targets:
            back[target].append(source)
    return dict(back)


def find_cycles(graph: Adjacency) -> list[set[str]]:
    """The strongly connected components; a single node counts only if it has an edge to itself."""
    back, assigned, found = reverse_edges(graph), set[str](), list[set[str]]()
    # Kosaraju: follow the reversed edges in reverse postorder.
    for start in reversed(_list_postorder(graph)):
        if start in assigned:
            continue
        together = _collect_component(start, back, assigned)
        if len(together) > 1 or start in graph.get(start, ()):
            found.append(together)
    return found


def _collect_component(start: str, back: Adjacency, assigned: set[str]) -> set[str]:
    together, waiting = {start}, [start]
    assigned.add(start)
    while waiting:
        new = [name for name in dict.fromkeys(back.get(waiting.pop(), ())) if name not in assigned]
        assigned.update(new)
        together.update(new)
        waiting.extend(new)
    return together


def _list_postorder(graph: Adjacency) -> list[str]:
    """All nodes in postorder of a depth-first search. Not recursive, because a chain may have thousands of nodes."""
    left, seen = list[str](), set[str]()
    for start in graph:
        if start in seen:
            continue
        seen.add(start)
        trail: list[tuple[str, Iterator[str]]] = [(start, iter(graph[start]))]
        while trail:
            name, targets = trail[-1]
            ahead = next((target for target in targets if target not in seen), None)
            if ahead is None:
                left.append(name)
                trail.pop()
            else:
                seen.add(ahead)
                trail.append((ahead, iter(graph.get(ahead, ()))))
    return left
