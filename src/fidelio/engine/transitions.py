"""Transitions from an activity, in the order in which they are evaluated, and the end of a workflow.

Conditions are evaluated in order: transitions first, then the branches of decisions. The first one that holds is taken, else
the default. A transition whose condition is unknown stays open, and so do those after it. A branch without a target leaves the
choice to the transitions; if there are none, it ends the workflow. A skipped activity is replaced by its own transitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from fidelio.definitions import TERMINAL, TERMINAL_NAMES
from fidelio.definitions.conditions import Truth, all_hold, holds, negate, render_condition
from fidelio.engine import phrases
from fidelio.engine.scope import (
    collect_reported_values,
    collect_values,
    find_running_loop,
    find_skipped_activities,
)
from fidelio.engine.state import ActivityVisit, Record

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Condition, Workflow


Kind = Literal["transition", "decision", "answer", "loop", "entry", "end"]
# A path around skipped activities as far as the search distinguishes it: where it leads, whether it is open, whether it holds.
_BypassState = tuple[str, bool, Truth]
MAX_STEPS = 5_000


class DeclaredTransition(msgspec.Struct, frozen=True):
    """A transition as the definition declares it. A default is open if no other transition is."""

    to: str
    condition: Condition | None
    default: bool
    kind: Kind = "transition"
    checkpoint: str = ""
    option: str = ""

    @property
    def text(self) -> str:
        """The condition as an agent claims it; empty if there is none."""
        if self.kind == "answer":
            return f"checkpoint:{self.checkpoint}:{self.option}"
        return render_condition(self.condition) if self.condition is not None else ""


class CandidateTransition(msgspec.Struct, frozen=True):
    """A transition from the current activity, evaluated. `open`: it can be taken now, as far as is known.

    `via` names the skipped activities that it passes through; `condition` is the text of the condition `when`.
    """

    to: str
    holds: Truth
    default: bool
    condition: str = ""
    via: tuple[str, ...] = ()
    kind: Kind = "transition"
    open: bool = False
    when: Condition | None = None


class ConditionValues(msgspec.Struct, frozen=True):
    """The values that conditions are evaluated with, and whether they are only reported ones."""

    values: Mapping[str, Any]
    reported_only: bool

    def evaluate(self, edge: DeclaredTransition) -> Truth:
        return holds(edge.condition, self.values, reported_only=self.reported_only) if edge.condition is not None else None


def list_outgoing_transitions(activity: Activity) -> Iterator[DeclaredTransition]:
    """Transitions first, then the branches of decisions: the order of evaluation."""
    for transition in activity.transitions:
        yield DeclaredTransition(transition.to, transition.condition, transition.is_default)
    for decision in activity.decisions:
        for branch in decision.branches:
            if branch.transition_to or not activity.transitions:
                yield DeclaredTransition(branch.transition_to or TERMINAL, branch.condition, branch.is_default, "decision")


def list_declared_transitions(activity: Activity) -> Iterator[DeclaredTransition]:
    """All transitions that the activity declares, with those of the options of its checkpoints."""
    yield from list_outgoing_transitions(activity)
    for checkpoint in activity.checkpoints:
        for option in checkpoint.options:
            if option.effect is not None and option.effect.transition_to:
                yield DeclaredTransition(option.effect.transition_to, None, False, "answer", checkpoint.id, option.id)


def is_terminal_name(workflow: Workflow, target: str) -> bool:
    """Whether the name means the end of the workflow; an activity of that name, even if unreadable, has precedence."""
    return target in TERMINAL_NAMES and workflow.activity(target) is None and target not in workflow.broken


def ends_workflow(workflow: Workflow, target: str) -> bool:
    """Whether the target ends the workflow: `__terminal__`, or another terminal name that the definition uses."""
    if not is_terminal_name(workflow, target):
        return False
    return target == TERMINAL or any(
        edge.to == target for activity in workflow.activities for edge in list_declared_transitions(activity)
    )


def target_exists(workflow: Workflow, target: str) -> bool:
    return workflow.activity(target) is not None or ends_workflow(workflow, target)


def is_activity_missing(workflow: Workflow, record: Record) -> bool:
    """Whether the definition no longer contains the current activity, or cannot be read there."""
    return bool(record.activity) and workflow.activity(record.activity) is None


def _is_known(workflow: Workflow, target: str) -> bool:
    return target_exists(workflow, target) or target in workflow.broken


def list_transitions(workflow: Workflow, record: Record, *, reported_only: bool = False) -> list[CandidateTransition]:
    """All transitions from the current activity, in order, evaluated.

    With `reported_only`, only values that were set count: no defaults, and an absent variable is unknown.
    """
    if record.ended:
        return []
    values = ConditionValues(
        collect_reported_values(workflow, record) if reported_only else collect_values(workflow, record), reported_only
    )
    activity = workflow.activity(record.activity)
    if activity is None:
        return _list_entry_transitions(workflow, record, values)
    onward = (
        _list_loop_transitions(workflow, record) if record.outer else _list_own_transitions(workflow, record, values, activity)
    )
    if record.forced and target_exists(workflow, record.forced):
        return [_make_forced_transition(record, activity), *(replace(candidate, open=False) for candidate in onward)]
    return [
        *onward,
        *_list_answer_transitions(workflow, record, activity),
        *_list_unreported_loop_transitions(workflow, record, activity),
    ]


def explain_missing_transition(workflow: Workflow, source: str, target: str) -> str:
    """Why no transition leads from `source` to `target`; empty if a transition does."""
    if workflow.activity(source) is None:
        return phrases.activity_not_found(source)
    if not target_exists(workflow, target):
        return phrases.activity_not_found(target)
    position = Record(workflow=workflow.id, here=ActivityVisit(source, 1), visits=1)
    leads = any(candidate.to == target for candidate in list_transitions(workflow, position))
    return "" if leads else phrases.no_valid_transition(target, source)


def list_open_transitions(workflow: Workflow, record: Record) -> tuple[CandidateTransition, ...]:
    """The transitions that can be taken now, each target once."""
    return select_open(list_transitions(workflow, record))


def select_open(candidates: Sequence[CandidateTransition]) -> tuple[CandidateTransition, ...]:
    """The candidates that can be taken now: for each target the first of them."""
    found = {candidate.to: candidate for candidate in reversed(candidates) if candidate.open}
    return tuple(reversed(found.values()))


def _list_entry_transitions(workflow: Workflow, record: Record, values: ConditionValues) -> list[CandidateTransition]:
    if workflow.independent:
        return [CandidateTransition(activity.id, True, False, kind="entry", open=True) for activity in workflow.activities]
    first = workflow.initial_activity or ""
    begins = (
        CandidateTransition(first, True, True, kind="entry", open=True)
        if _is_known(workflow, first)
        else _make_end_transition(True)
    )
    found = _replace_skipped(workflow, record, values, [begins])
    # Only a session that has entered no activity may end here. If its activity is missing, ending would abandon its work.
    return (
        [candidate for candidate in found if not ends_workflow(workflow, candidate.to)]
        if is_activity_missing(workflow, record)
        else found
    )


def _make_forced_transition(record: Record, activity: Activity) -> CandidateTransition:
    chosen = next(
        (edge for edge in list_declared_transitions(activity) if edge.kind == "answer" and edge.to == record.forced), None
    )
    return CandidateTransition(record.forced, True, False, chosen.text if chosen else "", kind="answer", open=True)


def _list_own_transitions(
    workflow: Workflow, record: Record, values: ConditionValues, activity: Activity
) -> list[CandidateTransition]:
    return _replace_skipped(workflow, record, values, _evaluate_activity(workflow, values, activity))


def _evaluate_activity(
    workflow: Workflow, values: ConditionValues, activity: Activity, passed: Collection[str] = ()
) -> list[CandidateTransition]:
    """The transitions and decisions of the activity; the end of the workflow if there are none."""
    # A transition to an unknown or a skipped activity on this path must not close the transitions after it.
    own = _evaluate_candidates(
        [edge for edge in list_outgoing_transitions(activity) if edge.to not in passed and _leads_on(workflow, edge)], values
    )
    if workflow.independent:
        return [*own, _make_end_transition(True)]
    if any(candidate.default or not candidate.condition for candidate in own):
        return own
    truth = all_hold([negate(candidate.holds) for candidate in own])
    return own if truth is False else [*own, _make_end_transition(truth)]


def _leads_on(workflow: Workflow, edge: DeclaredTransition) -> bool:
    # A terminal name is in use because this edge uses it. `ends_workflow` would look through all edges for it, once per edge.
    return workflow.activity(edge.to) is not None or edge.to in workflow.broken or is_terminal_name(workflow, edge.to)


def _make_end_transition(truth: Truth) -> CandidateTransition:
    return CandidateTransition(TERMINAL, truth, False, kind="end", open=truth is True)


def _list_answer_transitions(workflow: Workflow, record: Record, activity: Activity) -> Iterator[CandidateTransition]:
    """Transitions of other answers. They are closed: the target of the recorded answer is `record.forced`."""
    for edge in list_declared_transitions(activity):
        if edge.kind == "answer" and target_exists(workflow, edge.to):
            truth = None if record.find_answer(edge.checkpoint) is None else False
            yield CandidateTransition(edge.to, truth, False, edge.text, kind="answer")


def _list_loop_transitions(workflow: Workflow, record: Record) -> list[CandidateTransition]:
    """Inside a loop through activities: its next activity, or the activity of the loop after the last."""
    owner = record.outer[-1]
    following = find_next_loop_activity(workflow, record, owner)
    target = following[0] if following else owner.activity
    return [CandidateTransition(target, True, False, kind="loop", open=True)]


def _list_unreported_loop_transitions(workflow: Workflow, record: Record, activity: Activity) -> Iterator[CandidateTransition]:
    """Transitions of loops whose iterations are not reported: into their activities, between them, and back."""
    inside = [name for loop in activity.loops for name in loop.activities]
    for owner, loop in workflow.activity_loops if not record.outer else ():
        if activity.id in loop.activities:
            inside += [*loop.activities, owner]
    for name in dict.fromkeys(inside):
        if name != activity.id and workflow.activity(name) is not None:
            yield CandidateTransition(name, None, False, kind="loop")


def find_next_loop_activity(workflow: Workflow, record: Record, owner: ActivityVisit) -> tuple[str, int] | None:
    """The next activity in the running iteration of the loop's owner, and its number in the loop."""
    loop = find_running_loop(workflow, owner)
    if loop is None or owner.running is None:
        return None
    # An activity that is in progress must not be entered again inside itself.
    excluded = {*find_skipped_activities(workflow, record), *(visit.activity for visit in record.outer), owner.activity}
    for number, name in enumerate(loop.activities, start=1):
        if number > owner.running.entered and name not in excluded and workflow.activity(name) is not None:
            return name, number
    return None


def _replace_skipped(
    workflow: Workflow, record: Record, values: ConditionValues, own: Sequence[CandidateTransition]
) -> list[CandidateTransition]:
    """The transitions, with those to skipped activities replaced by the transitions of these."""
    skipped = find_skipped_activities(workflow, record)
    if not skipped and not workflow.broken:
        return list(own)
    search, found = _BypassSearch(workflow, values, skipped), list[CandidateTransition]()
    for candidate in own:
        if search.is_skipped(candidate.to):
            found.extend(search.find(candidate))
        else:
            found.append(replace(candidate, open=False) if candidate.to in workflow.broken else candidate)
    return found


class _BypassSearch:
    """Depth-first search for the paths around skipped activities: for each target, openness and truth the first.

    The number of paths is exponential in the number of activities, so a skipped activity is entered again only by a path that
    is open or true where those before it were not. A path does not return to an activity that it has passed.
    """

    def __init__(self, workflow: Workflow, values: ConditionValues, skipped: frozenset[str]) -> None:
        self._workflow, self._values, self._skipped = workflow, values, skipped
        self._found: set[_BypassState] = set()
        self.steps = 0

    def is_skipped(self, name: str) -> bool:
        return name in self._skipped and self._workflow.activity(name) is not None

    def find(self, first: CandidateTransition) -> list[CandidateTransition]:
        """The transitions that replace `first`, which leads to a skipped activity.

        Each transition of the current activity is searched for itself, because an agent may claim the condition of any. After
        `MAX_STEPS`, a further one adds only what none before it has found: thousands of them would each go through everything.
        """
        found = set[_BypassState]() if self.steps < MAX_STEPS else self._found
        bypasses = list(self._search(first, found))
        self._found |= found
        return bypasses

    def _search(self, first: CandidateTransition, found: set[_BypassState]) -> Iterator[CandidateTransition]:
        # No recursion: a workflow may have more activities than Python has stack frames.
        path: dict[str, Iterator[CandidateTransition]] = {"": iter((first,))}
        while path:
            bypass = next(path[next(reversed(path))], None)
            if bypass is None:
                path.popitem()
                continue
            self.steps += 1
            state = (bypass.to, bypass.open, bypass.holds)
            if state in found:
                continue
            found.add(state)
            if self.is_skipped(bypass.to):
                path[bypass.to] = self._list_onward(bypass, path)  # begins in the next round, so the path contains the activity
            else:
                yield replace(bypass, via=tuple(path)[1:])

    def _list_onward(self, bypass: CandidateTransition, passed: Collection[str]) -> Iterator[CandidateTransition]:
        activity = self._workflow.activity(bypass.to)
        for further in _evaluate_activity(self._workflow, self._values, activity, passed) if activity is not None else ():
            is_open = bypass.open and further.open and further.to not in self._workflow.broken
            yield replace(bypass, to=further.to, holds=all_hold([bypass.holds, further.holds]), open=is_open)


def _evaluate_candidates(candidates: Sequence[DeclaredTransition], values: ConditionValues) -> list[CandidateTransition]:
    """Evaluate the candidates: they are open up to the first condition that holds; if none does, the first default is."""
    if len(candidates) == 1 and candidates[0].condition is None:
        # The only way on, in most activities.
        only = candidates[0]
        return [CandidateTransition(only.to, True, only.default, only.text, kind=only.kind, open=True)]
    truths = [values.evaluate(edge) for edge in candidates]
    first = next((number for number, truth in enumerate(truths) if truth is True), len(candidates))
    plain = any(edge.condition is None and not edge.default for edge in candidates[:first])
    fallback = next((edge for edge in candidates if edge.default), None) if first == len(candidates) and not plain else None
    found = list[CandidateTransition]()
    for number, (edge, truth) in enumerate(zip(candidates, _evaluate_in_turn(candidates, truths), strict=True)):
        in_turn = number <= first and truth is not False and not (edge.default and edge.condition is None)
        is_open = in_turn or edge is fallback
        found.append(
            CandidateTransition(edge.to, truth, edge.default, edge.text, kind=edge.kind, open=is_open, when=edge.condition)
        )
    return found


def _evaluate_in_turn(candidates: Sequence[DeclaredTransition], truths: Sequence[Truth]) -> Iterator[Truth]:
    """A default holds if no other condition does; a transition without a condition, if none before it holds."""
    denials = [negate(truth) if edge.condition else True for edge, truth in zip(candidates, truths, strict=True)]
    before = [True, *accumulate(denials, _both_hold)]
    after = [True, *accumulate(reversed(denials), _both_hold)][::-1]
    for number, (edge, truth) in enumerate(zip(candidates, truths, strict=True)):
        if edge.default and truth is not True:
            yield _both_hold(before[number], after[number + 1])
        else:
            yield truth if edge.condition is not None else before[number]


def _both_hold(left: Truth, right: Truth) -> Truth:
    return all_hold((left, right))
