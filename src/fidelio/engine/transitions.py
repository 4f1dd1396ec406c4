"""The ways out of an activity, in the order in which they are tried, and what ends a workflow.

Conditions are tried in order: transitions first, then the branches of decisions. The first that holds is taken, else the
default. What is not known yet keeps its way open, and so do the ways after it. A branch without a target leaves the choice to
the transitions; where there are none, it ends the workflow. Activities that are left out are passed through: their own ways
stand in for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, Literal
from weakref import ref

import msgspec
from msgspec.structs import replace

from fidelio.definitions.conditions import Truth, every, holds, negated
from fidelio.engine import phrases
from fidelio.engine.condition_text import text_of
from fidelio.engine.scope import known, left_out, running_loop, with_defaults
from fidelio.engine.scope import told as told_values
from fidelio.engine.state import Place, Record

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Condition, Workflow

__all__ = [
    "TERMINAL",
    "Edge",
    "Way",
    "edges",
    "ends_workflow",
    "is_lost",
    "is_terminal_name",
    "open_ways",
    "outgoing",
    "ways",
    "why_no_way",
    "with_defaults",
]

TERMINAL = "__terminal__"
# Names that definitions in use write for the end. They mean it only where no activity bears them.
TERMINAL_NAMES = frozenset({TERMINAL, "workflow-end", "end-workflow"})

# As many sessions as agents of one server work on at once.
MOST_KEPT = 64

Kind = Literal["transition", "decision", "answer", "loop", "entry", "end"]


class Edge(msgspec.Struct, frozen=True):
    """One way out as the definition writes it. A default edge is open when nothing else is; by itself it makes no claim."""

    to: str
    condition: Condition | None
    default: bool
    kind: Kind = "transition"
    checkpoint: str = ""
    option: str = ""

    def holds(self, variables: Mapping[str, Any], *, told: bool = False) -> Truth:
        return holds(self.condition, variables, told=told)

    @property
    def text(self) -> str:
        """The condition as it is claimed; empty where there is none."""
        if self.kind == "answer":
            return f"checkpoint:{self.checkpoint}:{self.option}"
        return text_of(self.condition) if self.condition is not None else ""


class Way(msgspec.Struct, frozen=True):
    """A way on from where the session stands. `open`: going it is right now, as far as is known.

    `via` names the activities that it passes through because they are left out; `when` is the condition that `condition` words.
    """

    to: str
    holds: Truth
    default: bool
    condition: str = ""
    via: tuple[str, ...] = ()
    kind: Kind = "transition"
    open: bool = False
    when: Condition | None = None


class Facts(msgspec.Struct, frozen=True):
    """The values that conditions are tried on, and whether only what somebody said counts."""

    values: Mapping[str, Any]
    told: bool

    def truth(self, edge: Edge) -> Truth:
        return edge.holds(self.values, told=self.told) if edge.condition is not None else None


def outgoing(activity: Activity) -> Iterator[Edge]:
    """Transitions first, then the branches of decisions: the order in which they are tried."""
    for transition in activity.transitions:
        yield Edge(transition.to, transition.condition, transition.is_default)
    for decision in activity.decisions:
        for branch in decision.branches:
            if branch.transition_to or not activity.transitions:
                yield Edge(branch.transition_to or TERMINAL, branch.condition, branch.is_default, "decision")


def edges(activity: Activity) -> Iterator[Edge]:
    """Every way that the activity declares, those that the answers to its checkpoints open among them."""
    yield from outgoing(activity)
    for checkpoint in activity.checkpoints:
        for option in checkpoint.options:
            if option.effect is not None and option.effect.transition_to:
                yield Edge(option.effect.transition_to, None, False, "answer", checkpoint.id, option.id)


def is_terminal_name(workflow: Workflow, target: str) -> bool:
    """Whether the name means the end here: an activity of that name, even one that cannot be read, wins."""
    return target in TERMINAL_NAMES and workflow.activity(target) is None and target not in workflow.broken


def ends_workflow(workflow: Workflow, target: str) -> bool:
    """A target that ends the workflow: the terminal name, or another one that the definition really goes to."""
    if not is_terminal_name(workflow, target):
        return False
    return target == TERMINAL or any(edge.to == target for activity in workflow.activities for edge in edges(activity))


def exists(workflow: Workflow, target: str) -> bool:
    return workflow.activity(target) is not None or ends_workflow(workflow, target)


def is_lost(workflow: Workflow, record: Record) -> bool:
    """Whether the definition no longer has the activity in which the session stands, or it cannot be read."""
    return bool(record.activity) and workflow.activity(record.activity) is None


def _is_known(workflow: Workflow, target: str) -> bool:
    return exists(workflow, target) or target in workflow.broken


class _Kept:
    """The ways of the sessions that were looked at last, each with the ground on which they were found.

    Grounds are compared by identity, because 1 and true are equal and conditions tell them apart. The first part of a ground,
    which few sessions share, is the key.
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[tuple[object, ...], tuple[Way, ...]]] = {}

    def recall(self, ground: tuple[object, ...]) -> tuple[Way, ...] | None:
        kept = self._found.get(id(ground[0]))
        return kept[1] if kept is not None and all(map(is_, kept[0], ground)) else None

    def keep(self, ground: tuple[object, ...], found: Iterable[Way]) -> tuple[Way, ...]:
        if len(self._found) >= MOST_KEPT:
            self._found.clear()
        kept = self._found[id(ground[0])] = ground, tuple(found)
        return kept[1]


_ways, _open_ways = _Kept(), _Kept()


def ways(workflow: Workflow, record: Record, *, told: bool = False) -> Sequence[Way]:
    """Every way on from where the session stands, in order, with its truth.

    With `told`, the truth is what somebody really said; no default counts, and absence proves nothing.
    """
    if told:
        return _found(workflow, record, told=True)
    ground = (*_ground(workflow, record), record.answers)
    kept = _ways.recall(ground)
    return kept if kept is not None else _ways.keep(ground, _found(workflow, record, told=False))


def _found(workflow: Workflow, record: Record, *, told: bool) -> list[Way]:
    if record.status == "completed":
        return []
    facts = Facts(told_values(workflow, record) if told else known(workflow, record), told)
    activity = workflow.activity(record.activity)
    if activity is None:
        return _entries(workflow, record, facts)
    onward = _through_loop(workflow, record) if record.outer else _leading_on(workflow, record, facts, activity)
    if record.forced and exists(workflow, record.forced):
        return [_forced(record, activity), *(replace(way, open=False) for way in onward)]
    return [*onward, *_answers(workflow, record, activity), *_beside_loops(workflow, record, activity)]


def why_no_way(workflow: Workflow, source: str, target: str) -> str:
    """Why nothing in the definition leads from one activity to the other; empty when something does."""
    if workflow.activity(source) is None:
        return phrases.activity_not_found(source)
    if not exists(workflow, target):
        return phrases.activity_not_found(target)
    standing = Record(workflow=workflow.id, here=Place(source, 1), visits=1)
    leads = any(way.to == target for way in ways(workflow, standing))
    return "" if leads else phrases.no_valid_transition(target, source)


def open_ways(workflow: Workflow, record: Record) -> tuple[Way, ...]:
    """The ways that may be gone now, each target once."""
    ground = _ground(workflow, record)
    kept = _open_ways.recall(ground)
    if kept is not None:
        return kept
    found = {way.to: way for way in reversed(_found(workflow, record, told=False)) if way.open}
    return _open_ways.keep(ground, reversed(found.values()))


def _ground(workflow: Workflow, record: Record) -> tuple[object, ...]:
    """Everything that the open ways depend on. A step that is done changes none of it, and few moves change any.

    A definition has one such reference for as long as it lives, and is not kept alive by it.
    """
    here = record.here
    return (
        record.variables,
        ref(workflow),
        record.status == "completed",
        here.activity,
        here.running,
        record.outer,
        record.skipped,
        record.forced,
    )


def _entries(workflow: Workflow, record: Record, facts: Facts) -> list[Way]:
    if workflow.independent:
        return [Way(activity.id, True, False, kind="entry", open=True) for activity in workflow.activities]
    first = workflow.initial_activity or ""
    begins = Way(first, True, True, kind="entry", open=True) if _is_known(workflow, first) else _the_end(True)
    found = _expanded(workflow, record, facts, [begins])
    # Only a session that has entered nothing has nothing to do. One whose activity is lost would leave its work behind so.
    return [way for way in found if not ends_workflow(workflow, way.to)] if is_lost(workflow, record) else found


def _forced(record: Record, activity: Activity) -> Way:
    chosen = next((edge for edge in edges(activity) if edge.kind == "answer" and edge.to == record.forced), None)
    return Way(record.forced, True, False, chosen.text if chosen else "", kind="answer", open=True)


def _leading_on(
    workflow: Workflow, record: Record, facts: Facts, activity: Activity, passed: frozenset[str] = frozenset()
) -> list[Way]:
    """Where the activity's own transitions and decisions lead; to the end when they lead nowhere."""
    # What leads nowhere, or back into what is being passed, is no choice: it must not close the ways after it.
    candidates = [edge for edge in outgoing(activity) if edge.to not in passed and _is_known(workflow, edge.to)]
    own = list(_weighed(candidates, facts))
    found = _expanded(workflow, record, facts, own, passed)
    if workflow.independent:
        return [*found, _the_end(True)]
    if any(way.default or not way.condition for way in own):
        return found
    truth = every([negated(way.holds) for way in own])
    return found if truth is False else [*found, _the_end(truth)]


def _the_end(truth: Truth) -> Way:
    return Way(TERMINAL, truth, False, kind="end", open=truth is True)


def _answers(workflow: Workflow, record: Record, activity: Activity) -> Iterator[Way]:
    """Where other answers would lead. They are closed: where a given answer leads is `record.forced`."""
    for edge in edges(activity):
        if edge.kind == "answer" and exists(workflow, edge.to):
            truth = None if record.answer_to(edge.checkpoint) is None else False
            yield Way(edge.to, truth, False, edge.text, kind="answer")


def _through_loop(workflow: Workflow, record: Record) -> list[Way]:
    """Inside a loop that goes through activities the loop says what is next, and its owner comes after the last."""
    owner = record.outer[-1]
    following = next_in_pass(workflow, record, owner)
    target = following[0] if following else owner.activity
    return [Way(target, True, False, kind="loop", open=True)]


def _beside_loops(workflow: Workflow, record: Record, activity: Activity) -> Iterator[Way]:
    """Where a loop leads whose passes nobody reports: into its activities, from one to the other, and back."""
    inside = [name for loop in activity.loops for name in loop.activities]
    for owner in workflow.looping if not record.outer else ():
        for loop in owner.loops:
            if activity.id in loop.activities:
                inside += [*loop.activities, owner.id]
    for name in dict.fromkeys(inside):
        if name != activity.id and workflow.activity(name) is not None:
            yield Way(name, None, False, kind="loop")


def next_in_pass(workflow: Workflow, record: Record, owner: Place) -> tuple[str, int] | None:
    """The activity that the owner's running pass goes to next, and how many it has reached then."""
    loop = running_loop(workflow, owner)
    if loop is None or owner.running is None:
        return None
    # An activity that is under way already is not entered once more inside itself.
    barred = {*left_out(workflow, record), *(place.activity for place in record.outer), owner.activity}
    for number, name in enumerate(loop.activities, start=1):
        if number > owner.running.entered and name not in barred and workflow.activity(name) is not None:
            return name, number
    return None


def _expanded(
    workflow: Workflow, record: Record, facts: Facts, own: Sequence[Way], passed: frozenset[str] = frozenset()
) -> list[Way]:
    """The ways with everything that is left out replaced by where it leads."""
    skipping, found = left_out(workflow, record), list[Way]()
    for way in own:
        if way.to in skipping and workflow.activity(way.to) is not None:
            found.extend(_around(workflow, record, facts, way, passed))
        else:
            found.append(replace(way, open=False) if way.to in workflow.broken else way)
    return found


def _around(workflow: Workflow, record: Record, facts: Facts, way: Way, passed: frozenset[str]) -> Iterator[Way]:
    activity = workflow.activity(way.to)
    if activity is None:
        return
    for further in _leading_on(workflow, record, facts, activity, passed | {way.to}):
        truth, is_open = every([way.holds, further.holds]), way.open and further.open
        yield replace(way, to=further.to, holds=truth, via=(way.to, *further.via), open=is_open)


def _weighed(candidates: Sequence[Edge], facts: Facts) -> Iterator[Way]:
    """Which of the candidates are open: up to the first condition that holds; the first default when nothing does."""
    truths = [facts.truth(edge) for edge in candidates]
    first = next((number for number, truth in enumerate(truths) if truth is True), len(candidates))
    plain = any(edge.condition is None and not edge.default for edge in candidates[:first])
    fallback = next((edge for edge in candidates if edge.default), None) if first == len(candidates) and not plain else None
    for number, edge in enumerate(candidates):
        truth = _truth_in_turn(candidates, truths, number)
        in_turn = number <= first and truth is not False and not (edge.default and edge.condition is None)
        is_open = in_turn or edge is fallback
        yield Way(edge.to, truth, edge.default, edge.text, kind=edge.kind, open=is_open, when=edge.condition)


def _truth_in_turn(candidates: Sequence[Edge], truths: Sequence[Truth], number: int) -> Truth:
    """A default holds when no other condition does; a way without a condition, when none holds before it."""
    edge = candidates[number]
    if edge.default and truths[number] is not True:
        others = (truth for other, truth in zip(candidates, truths, strict=True) if other is not edge and other.condition)
        return every([negated(truth) for truth in others])
    if edge.condition is not None:
        return truths[number]
    return every([negated(truth) for other, truth in zip(candidates[:number], truths, strict=False) if other.condition])
