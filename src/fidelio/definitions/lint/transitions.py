"""Lint rules for the flow: reachable activities, sessions that can end, and transitions that can be taken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from fidelio.definitions import META
from fidelio.definitions.flow import Adjacency, find_reachable, is_end, list_flow_edges, may_end_after
from fidelio.definitions.lint.rules import LintProblem, rule
from fidelio.definitions.lint.subject import ActivitySubject, LintSubject
from fidelio.definitions.models import And, Branch, Condition, Not, Transition
from fidelio.definitions.static_conditions import VariableDomain, find_constant_truth
from fidelio.definitions.wording import join_words


@rule("no-activities", "error")
def check_no_activities(subject: LintSubject) -> Iterator[LintProblem]:
    """The workflow has no activities. Does not apply to `meta`, which may contain only components that other workflows
    share.
    """
    if not subject.workflow.activities and not subject.workflow.broken and subject.key != META:
        remedy = "Add a file to `activities`, or write the activities into the manifest."
        yield LintProblem(subject.manifest, ("id",), f"The workflow {subject.key} has no activities.", remedy)


@rule("unreachable-activity", "warning")
def check_unreachable_activity(subject: LintSubject) -> Iterator[LintProblem]:
    """No path leads from the initial activity to this activity. Does not apply to a workflow without `initialActivity`, in
    which every activity is an entry.
    """
    if subject.workflow.initial_activity not in subject.activity_ids or subject.workflow.broken:
        return
    graph = {entry.activity.id: [edge.target for edge in list_flow_edges(entry.activity)] for entry in subject.activities}
    reachable = find_reachable([subject.workflow.initial_activity or ""], graph)
    for entry in subject.activities:
        if entry.activity.id not in reachable:
            sentence = f"No path leads from {subject.workflow.initial_activity} to {entry.activity.id}."
            yield LintProblem(entry.source, ("id",), sentence, "Add a transition to it, or delete it.")


@rule("no-way-out", "error")
def check_termination(subject: LintSubject) -> Iterator[LintProblem]:
    """A session that enters this activity can never end: all answers and decisions lead into a cycle. An activity without
    transitions is an end, and so is an activity whose transitions all have conditions.
    """
    if subject.workflow.independent:
        return
    graph = {entry.activity.id: _find_targets(entry, subject) for entry in subject.activities}
    endless = set(graph) - find_reachable([_END], reverse_edges(graph))
    order = {entry.activity.id: index for index, entry in enumerate(subject.activities)}
    for cycle in find_cycles({name: graph[name] for name in endless}):
        names = sorted(cycle, key=order.__getitem__)
        yield _report_endless(subject.activities[order[names[0]]], names)


def _report_endless(entry: ActivitySubject, cycle: Sequence[str]) -> LintProblem:
    reason = (
        f"{entry.activity.id} leads only back to itself" if len(cycle) == 1 else f"{join_words(cycle)} lead only to each other"
    )
    path = ("transitions",) if entry.activity.transitions else ("id",)
    return LintProblem(
        entry.source, path, f"{reason}, so a session never ends.", "Add a transition to another activity or to the end."
    )


_END = ""


def _find_targets(entry: ActivitySubject, subject: LintSubject) -> set[str]:
    targets = {edge.target for edge in list_flow_edges(entry.activity) if edge.reason != "loop"}
    domains = subject.variable_domains
    # Another rule reports a missing target; here it counts as an end.
    ends = any(is_end(target, subject.activity_ids) or target not in subject.readable_ids for target in targets)
    return targets | ({_END} if ends or may_end_after(entry.activity, domains) else set())


@rule("two-defaults", "error")
def check_two_defaults(subject: LintSubject) -> Iterator[LintProblem]:
    """Two transitions of an activity, or two branches of a decision, are the default. Only the first can be taken when no
    condition holds.
    """
    remedy = "Keep one default and give the other a condition."
    for entry in subject.activities:
        for index in _find_further_defaults(entry.activity.transitions):
            sentence = f"{entry.activity.id} has a second default transition."
            yield LintProblem(entry.source, ("transitions", index, "isDefault"), sentence, remedy)
        for at, decision in enumerate(entry.activity.decisions):
            for index in _find_further_defaults(decision.branches):
                sentence = f"Decision {decision.id} has a second default branch."
                yield LintProblem(entry.source, ("decisions", at, "branches", index, "isDefault"), sentence, remedy)


def _find_further_defaults(graph: Sequence[Transition | Branch]) -> list[int]:
    return [index for index, edge in enumerate(graph) if edge.is_default][1:]


@rule("hidden-transition", "warning")
def check_hidden_transition(subject: LintSubject) -> Iterator[LintProblem]:
    """A transition can never be taken, because whenever its condition holds, an earlier transition is taken: it has no
    condition, or the same condition.
    """
    for entry in subject.activities:
        earlier: list[Condition] = []
        for index, transition in enumerate(entry.activity.transitions):
            if _is_hidden(entry.activity.transitions[:index], transition, earlier, subject.variable_domains):
                sentence = f"The transition to {transition.to} is never taken: an earlier one always comes first."
                yield LintProblem(entry.source, ("transitions", index, "to"), sentence, "Delete it, or correct the conditions.")
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
def check_default_not_last(subject: LintSubject) -> Iterator[LintProblem]:
    """The default transition comes before others in the file. It is still evaluated last, but readers of the file will expect
    it to be evaluated first.
    """
    for entry in subject.activities:
        transitions = entry.activity.transitions
        defaults = [index for index, transition in enumerate(transitions) if transition.is_default]
        if len(defaults) == 1 and defaults[0] < len(transitions) - 1:
            sentence = f"The default transition of {entry.activity.id} comes before others."
            yield LintProblem(entry.source, ("transitions", defaults[0]), sentence, "Move it to the end of the list.")


@rule("no-default", "warning")
def check_no_default(subject: LintSubject) -> Iterator[LintProblem]:
    """Every transition has a condition and none is the default. When no condition holds, the workflow ends, which is rarely
    intended. If it is, add a default transition to `__terminal__`.
    """
    if subject.workflow.independent:
        return
    for entry in subject.activities:
        if entry.activity.transitions and may_end_after(entry.activity, subject.variable_domains):
            sentence = f"When none of its conditions holds, the workflow ends after {entry.activity.id}."
            remedy = "Mark one transition `isDefault: true`, or add a default one to `__terminal__`."
            yield LintProblem(entry.source, ("transitions",), sentence, remedy)


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
        component = find_reachable([start], back, assigned)
        assigned |= component
        if len(component) > 1 or start in graph.get(start, ()):
            found.append(component)
    return found


def _list_postorder(graph: Adjacency) -> list[str]:
    """All nodes in postorder of a depth-first search. Not recursive, because a chain may have thousands of nodes."""
    postorder, seen = list[str](), set[str]()
    for start in graph:
        if start in seen:
            continue
        seen.add(start)
        stack: list[tuple[str, Iterator[str]]] = [(start, iter(graph[start]))]
        while stack:
            name, targets = stack[-1]
            unvisited = next((target for target in targets if target not in seen), None)
            if unvisited is None:
                postorder.append(name)
                stack.pop()
            else:
                seen.add(unvisited)
                stack.append((unvisited, iter(graph.get(unvisited, ()))))
    return postorder
