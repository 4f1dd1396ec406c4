"""Rules about the flow: every activity can be reached, every run can end, and no way on is hidden by another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fidelio.definitions import META
from fidelio.definitions.flow import is_end, may_end_here, ways_out
from fidelio.definitions.lint.graphs import circles, reached, turned
from fidelio.definitions.lint.rules import Problem, rule
from fidelio.definitions.lint.subject import ActivityPart, Subject
from fidelio.definitions.models import And, Branch, Condition, Not, Transition
from fidelio.definitions.static_conditions import Known, verdict
from fidelio.definitions.wording import listed


@rule("no-activities", "error")
def no_activities(subject: Subject) -> Iterator[Problem]:
    """The workflow has no activity at all, so there is nothing to do in it. Does not apply to `meta`, which may hold only what
    others share.
    """
    if not subject.workflow.activities and not subject.workflow.broken and subject.key != META:
        remedy = "Add a file to `activities`, or write the activities into the manifest."
        yield Problem(subject.manifest, ("id",), f"The workflow {subject.key} has no activities.", remedy)


@rule("unreachable-activity", "warning")
def unreachable_activity(subject: Subject) -> Iterator[Problem]:
    """No way leads from the first activity to this one. Does not apply to a workflow without `initialActivity`, in which every
    activity is an entry of its own.
    """
    if subject.workflow.initial_activity not in subject.activity_ids or subject.workflow.broken:
        return
    ways = {part.activity.id: [way.target for way in ways_out(part.activity)] for part in subject.activities}
    reachable = reached([subject.workflow.initial_activity or ""], ways)
    for part in subject.activities:
        if part.activity.id not in reachable:
            sentence = f"No way leads from {subject.workflow.initial_activity} to {part.activity.id}."
            yield Problem(part.source, ("id",), sentence, "Add a transition to it, or delete it.")


@rule("no-way-out", "error")
def no_way_out(subject: Subject) -> Iterator[Problem]:
    """A run that enters this activity can never end: whatever is answered and decided, it goes round in a circle. An activity
    without transitions is an end, and so is one whose transitions all depend on conditions.
    """
    if subject.workflow.independent:
        return
    ways = {part.activity.id: _leads_to(part, subject) for part in subject.activities}
    endless = set(ways) - reached([_END], turned(ways))
    order = {part.activity.id: index for index, part in enumerate(subject.activities)}
    for circle in circles({name: ways[name] for name in endless}):
        names = sorted(circle, key=order.__getitem__)
        yield _endless(subject.activities[order[names[0]]], names)


def _endless(part: ActivityPart, circle: Sequence[str]) -> Problem:
    round_about = (
        f"{part.activity.id} leads only back to itself" if len(circle) == 1 else f"{listed(circle)} lead only to each other"
    )
    path = ("transitions",) if part.activity.transitions else ("id",)
    return Problem(part.source, path, f"{round_about}, so a run never ends.", "Add a way to another activity or to the end.")


_END = ""


def _leads_to(part: ActivityPart, subject: Subject) -> set[str]:
    targets = {way.target for way in ways_out(part.activity) if way.reason != "loop"}
    known = subject.known
    # A target that is missing is another rule's business; here it counts as a way out.
    ends = any(is_end(target, subject.activity_ids) or target not in subject.readable_ids for target in targets)
    return targets | ({_END} if ends or may_end_here(part.activity, known) else set())


@rule("two-defaults", "error")
def two_defaults(subject: Subject) -> Iterator[Problem]:
    """Two transitions of an activity, or two branches of a decision, are the default. Only one of them can be what happens when
    nothing else applies.
    """
    remedy = "Keep one default and give the other a condition."
    for part in subject.activities:
        for index in _further_defaults(part.activity.transitions):
            sentence = f"{part.activity.id} has a second default transition."
            yield Problem(part.source, ("transitions", index, "isDefault"), sentence, remedy)
        for at, decision in enumerate(part.activity.decisions):
            for index in _further_defaults(decision.branches):
                sentence = f"Decision {decision.id} has a second default branch."
                yield Problem(part.source, ("decisions", at, "branches", index, "isDefault"), sentence, remedy)


def _further_defaults(ways: Sequence[Transition | Branch]) -> list[int]:
    return [index for index, way in enumerate(ways) if way.is_default][1:]


@rule("hidden-transition", "warning")
def hidden_transition(subject: Subject) -> Iterator[Problem]:
    """A transition can never be taken, because whenever it would apply, an earlier one applies as well: one without a
    condition, or with the same condition.
    """
    for part in subject.activities:
        earlier: list[Condition] = []
        for index, transition in enumerate(part.activity.transitions):
            if _is_hidden(part.activity.transitions[:index], transition, earlier, subject.known):
                sentence = f"The transition to {transition.to} is never taken: an earlier one always comes first."
                yield Problem(part.source, ("transitions", index, "to"), sentence, "Delete it, or correct the conditions.")
            if transition.condition is not None:
                earlier.append(transition.condition)


def _is_hidden(
    before: Sequence[Transition], transition: Transition, conditions: list[Condition], known: dict[str, Known]
) -> bool:
    if any(other.condition is None and not other.is_default for other in before):
        return True
    if transition.condition is None or transition.is_default or not conditions:
        return False
    if verdict(transition.condition, known) == "never":
        return False
    none_earlier = tuple(Not(type="not", condition=condition) for condition in conditions)
    return verdict(And(type="and", conditions=(transition.condition, *none_earlier)), known) == "never"


@rule("default-not-last", "warning")
def default_not_last(subject: Subject) -> Iterator[Problem]:
    """The default transition stands before others. It is still tried last, but whoever reads the file from top to bottom will
    think that it comes first.
    """
    for part in subject.activities:
        transitions = part.activity.transitions
        defaults = [index for index, transition in enumerate(transitions) if transition.is_default]
        if len(defaults) == 1 and defaults[0] < len(transitions) - 1:
            sentence = f"The default transition of {part.activity.id} stands before others."
            yield Problem(part.source, ("transitions", defaults[0]), sentence, "Move it to the end of the list.")


@rule("no-default", "warning")
def no_default(subject: Subject) -> Iterator[Problem]:
    """Every transition has a condition and none is the default. When no condition holds, the workflow is over, which is rarely
    what is meant. Where it is meant, a default transition to `__terminal__` says so.
    """
    if subject.workflow.independent:
        return
    for part in subject.activities:
        if part.activity.transitions and may_end_here(part.activity, subject.known):
            sentence = f"When none of its conditions holds, the workflow ends after {part.activity.id}."
            remedy = "Mark one transition `isDefault: true`, or add a default one to `__terminal__`."
            yield Problem(part.source, ("transitions",), sentence, remedy)
