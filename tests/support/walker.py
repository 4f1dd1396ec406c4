"""A robot that walks through a workflow, and values that make a condition hold or not hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fidelio.definitions import TERMINAL
from fidelio.engine.answers import AnswerContext
from fidelio.engine.apply_move import MoveActor, MoveRequest, apply_move
from fidelio.engine.moves import PossibleMove, Situation, describe_situation
from fidelio.engine.progress import list_tasks
from fidelio.engine.record import STARTED, VARIABLES_SET, EventDraft, ProvisionalEvent, fold, number_drafts
from fidelio.engine.scope import find_running_loop
from fidelio.engine.state import Record, Refusal
from fidelio.engine.transitions import (
    CandidateTransition,
    ends_workflow,
    list_declared_transitions,
    list_transitions,
    target_exists,
)

if TYPE_CHECKING:
    from fidelio.definitions.models import Condition, Simple, Workflow


_OPPOSITE = {"!=": "==", "notExists": "exists", "<=": ">", ">=": "<"}
SOMETHING = "something"


def values_for(condition: Condition, *, truth: bool) -> dict[str, Any]:
    """Return an assignment that gives the condition this truth value, unless its parts contradict each other."""
    if condition.type == "simple":
        return {condition.variable: _value(condition, truth)}
    if condition.type == "not":
        return values_for(condition.condition, truth=not truth)
    if (condition.type == "and") is truth:
        return {name: value for part in condition.conditions for name, value in values_for(part, truth=truth).items()}
    return values_for(condition.conditions[0], truth=truth)


def _value(condition: Simple, truth: bool) -> Any:
    operator: str = condition.operator
    wanted = condition.value
    if operator in _OPPOSITE:
        operator, truth = _OPPOSITE[operator], not truth
    if operator == "exists":
        return SOMETHING if truth else None
    if operator == "==":
        return wanted if truth else _other_value(wanted)
    edge = float(wanted) if isinstance(wanted, int | float) else 0.0
    return edge + 1 if (operator == ">") is truth else edge - 1


def _other_value(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"not {value}" if isinstance(value, str) else SOMETHING


BOUND = 5_000
_MAX_REPEATS = 3
_ITEMS = ("one", "two")
_MINUTE = 60_000
_ROBOT = MoveActor("robot", "cli", "local")


@dataclass(frozen=True, slots=True)
class RobotReport:
    """Values that the robot reports, as an agent would."""

    values: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Walk:
    """A walk. `problem` is empty if the workflow was completed; `taken` holds the moves by activity."""

    record: Record
    events: tuple[ProvisionalEvent, ...]
    taken: frozenset[tuple[str, MoveRequest | RobotReport]]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Untaken:
    """What no walk covered: options as `activity/checkpoint/option`, transitions as `from -> to`, and activities."""

    options: tuple[str, ...]
    transitions: tuple[str, ...]
    activities: tuple[str, ...]


class Chance(Protocol):
    """A source of random numbers; `random.Random(seed)` is a reproducible one."""

    def randrange(self, stop: int, /) -> int: ...


Policy = Literal["first", "last"] | Chance


class Robot:
    """Walks with a policy: the first possible move, the last, or a random one."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._times: Counter[tuple[str, MoveRequest | RobotReport]] = Counter()

    def walk(self, workflow: Workflow, *, bound: int = BOUND) -> Walk:
        """Walk from the start to an end, within `bound` events."""
        started = {"workflow": workflow.id, "version": workflow.version, "definition": ""}
        record, events, now = Record(), list[ProvisionalEvent](), 0
        drafts: Sequence[EventDraft] | Refusal = [EventDraft(STARTED, started)]
        while not isinstance(drafts, Refusal):
            numbered = number_drafts(record, drafts, now)
            record = fold(record, numbered)
            events += numbered
            now += _MINUTE
            choice = self.choose(workflow, record) if len(events) <= bound else None
            if choice is None:
                return Walk(record, tuple(events), frozenset(self._times), _problem(record, len(events)))
            drafts = _apply_choice(workflow, record, choice, now)
        return Walk(record, tuple(events), frozenset(self._times), drafts.sentence)

    def choose(self, workflow: Workflow, record: Record) -> MoveRequest | RobotReport | None:
        """Choose the next move; None if there is none."""
        activity = record.activity
        choices: list[MoveRequest | RobotReport] = [
            *possible_acts(describe_situation(workflow, record)),
            *_reports(workflow, record),
        ]
        if not choices:
            return None
        fresh = [choice for choice in choices if self._times[activity, choice] < _MAX_REPEATS]
        least = min(self._times[activity, choice] for choice in choices)
        chosen = self._pick(fresh or [choice for choice in choices if self._times[activity, choice] == least])
        self._times[activity, chosen] += 1
        return chosen

    def _pick(self, candidates: Sequence[MoveRequest | RobotReport]) -> MoveRequest | RobotReport:
        if self._policy == "first":
            return candidates[0]
        return candidates[-1] if self._policy == "last" else candidates[self._policy.randrange(len(candidates))]


def possible_acts(found: Situation) -> Iterator[MoveRequest]:
    """All possible moves, one for each option of a checkpoint."""
    return (act for move in found.offered for act in _acts(move))


def never_taken(workflow: Workflow, walks: Iterable[Walk]) -> Untaken:
    """Return what none of the walks covered."""
    walks = list(walks)
    taken = {pair for walk in walks for pair in walk.taken}
    acts = [(activity, act) for activity, act in taken if isinstance(act, MoveRequest)]
    answered = {f"{activity}/{act.target}/{act.option}" for activity, act in acts if act.option}
    crossed = {f"{activity} -> {_target(workflow, act.target)}" for activity, act in acts if act.action == "transition"}
    entered = {event.body["activity"] for walk in walks for event in walk.events if event.type == "activity.entered"}
    return Untaken(
        tuple(option for option in _options(workflow) if option not in answered),
        tuple(edge for edge in _edges(workflow) if edge not in crossed),
        tuple(activity.id for activity in workflow.activities if activity.id not in entered),
    )


def _reports(workflow: Workflow, record: Record) -> Iterator[RobotReport]:
    """Reports that would end the running loop, or make a closed transition possible."""
    if record.status == "completed" or record.waiting or record.forced:
        return
    loop, ahead = find_running_loop(workflow, record.here), list_tasks(workflow, record)
    if loop is not None and loop.condition is not None and [task.kind for task in ahead] == ["loop"]:
        yield RobotReport(tuple(values_for(loop.condition, truth=False).items()))
    if not any(task.must for task in ahead):
        found = list_transitions(workflow, record)
        wanted = (
            _opening_report(transition, found)
            for transition in found
            if not transition.open and transition.kind in ("transition", "decision")
        )
        yield from dict.fromkeys(report for report in wanted if report.values)


def _opening_report(transition: CandidateTransition, found: Iterable[CandidateTransition]) -> RobotReport:
    """Report that makes a closed transition possible: its own condition holds, and no earlier one does."""
    values: dict[str, Any] = {}
    for other in found:
        if other.when is not None and other.holds and other is not transition:
            values |= values_for(other.when, truth=False)
    return RobotReport(tuple((values | (values_for(transition.when, truth=True) if transition.when else {})).items()))


def _apply_choice(
    workflow: Workflow, record: Record, choice: MoveRequest | RobotReport, now: int
) -> Sequence[EventDraft] | Refusal:
    if isinstance(choice, RobotReport):
        return [EventDraft(VARIABLES_SET, {"variables": dict(choice.values), "by": "agent:robot"})]
    return apply_move(workflow, record, choice, AnswerContext(now, relayed=False), _ROBOT)


def _problem(record: Record, length: int) -> str:
    return "" if record.status == "completed" else f"no end after {length} events in '{record.activity}'"


def _acts(move: PossibleMove) -> Iterator[MoveRequest]:
    if move.action == "respond_to_checkpoint":
        yield from (MoveRequest(move.action, move.target, option) for option in move.options)
    elif move.action == "advance_loop":
        yield MoveRequest(move.action, move.target, items=_ITEMS if move.needs else None)
    else:
        yield MoveRequest(move.action, move.target)


def _options(workflow: Workflow) -> Iterator[str]:
    for activity in workflow.activities:
        for checkpoint in activity.checkpoints:
            yield from (f"{activity.id}/{checkpoint.id}/{option.id}" for option in checkpoint.options)


def _edges(workflow: Workflow) -> Iterator[str]:
    for activity in workflow.activities:
        targets = (edge.to for edge in list_declared_transitions(activity) if target_exists(workflow, edge.to))
        yield from dict.fromkeys(f"{activity.id} -> {_target(workflow, to)}" for to in targets)


def _target(workflow: Workflow, target: str) -> str:
    return TERMINAL if ends_workflow(workflow, target) else target
