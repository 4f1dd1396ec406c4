"""What is possible where a session stands: what has to come next, what may, and what may not and why.

Everything that is offered here is accepted by `acting.accept`, and nothing else is. One of the required moves has to be made
sooner or later; the optional ones may be made before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from fidelio.engine.checkpoints import current_checkpoint
from fidelio.engine.conditions import holds
from fidelio.engine.knowledge import running_loop, told
from fidelio.engine.loops import passes
from fidelio.engine.progress import Task, question_before, questions, tasks
from fidelio.engine.resolving import demands_person
from fidelio.engine.state import Record
from fidelio.engine.transitions import Way, exists, open_ways, ways

if TYPE_CHECKING:
    from fidelio.definitions.models import Checkpoint, Workflow

Action = Literal["complete_step", "respond_to_checkpoint", "dismiss_checkpoint", "take_default", "advance_loop", "transition"]


@dataclass(frozen=True, slots=True)
class Move:
    """One move. `options` are the answers that a checkpoint takes; `reason` says why a blocked move is blocked."""

    action: Action
    target: str
    options: tuple[str, ...] = ()
    reason: str = ""
    task: Task | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class LoopPosition:
    """Which pass of a loop is running; `total` where it is known how many there will be."""

    id: str
    name: str
    iteration: int
    total: int | None = None
    item: Any = None


@dataclass(frozen=True, slots=True)
class Position:
    """Where the session stands. Numbers are counted from 1; `step` is the one that comes next.

    `loops` are the running loops, the innermost last: an activity that a loop goes through is inside that loop.
    """

    workflow: str
    activity: str = ""
    step: str = ""
    step_number: int = 0
    step_name: str = field(default="", compare=False)
    loops: tuple[LoopPosition, ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """All that an agent needs to know to go on. `checkpoint` is the question that is to be answered first."""

    position: Position
    required: tuple[Move, ...] = ()
    optional: tuple[Move, ...] = ()
    blocked: tuple[Move, ...] = ()
    checkpoint: str = ""

    @property
    def offered(self) -> tuple[Move, ...]:
        return (*self.required, *self.optional)


def situation(workflow: Workflow, record: Record, *, now: int = 0) -> Situation:
    """What is possible now. `now` matters only to a question whose default is taken when its time has run out."""
    ahead = tasks(workflow, record)
    position = _position(workflow, record, ahead)
    if record.status == "completed":
        return Situation(position)
    if not record.activity:
        return Situation(position, tuple(_transitions(open_ways(workflow, record))), blocked=tuple(_closed(workflow, record)))
    if record.waiting is not None:
        return _held(workflow, record, position, ahead, now)
    if record.forced and exists(workflow, record.forced):
        return _led_away(workflow, record, position)
    asks = questions(workflow, record)
    first = next((question for question in asks if question.required), None)
    if first is not None:
        return _asked(workflow, record, position, ahead, first)
    return _at_work(workflow, record, position, ahead, asks)


def _held(workflow: Workflow, record: Record, position: Position, ahead: Sequence[Task], now: int) -> Situation:
    """A question is open: nothing else goes on until it is answered."""
    waiting = record.waiting
    checkpoint = current_checkpoint(workflow, record, waiting.checkpoint) if waiting is not None else None
    if waiting is None:
        return Situation(position)
    if checkpoint is None:
        why = f"The definition no longer has it. A person can still answer it: fidelio answer {waiting.request} OPTION."
        return Situation(position, blocked=(Move("respond_to_checkpoint", waiting.checkpoint, reason=why),))
    found = _asked(workflow, record, position, ahead, checkpoint)
    if checkpoint.blocking or checkpoint.default_option is None or checkpoint.auto_advance_ms is None:
        return found
    if now - waiting.yielded_at >= checkpoint.auto_advance_ms and not demands_person(workflow, checkpoint):
        return replace(found, optional=(*found.optional, Move("take_default", checkpoint.id, (checkpoint.default_option,))))
    early = Move("take_default", checkpoint.id, reason=f"Its {checkpoint.auto_advance_ms} ms have to run out first.")
    return replace(found, blocked=(*found.blocked, early))


def _asked(workflow: Workflow, record: Record, position: Position, ahead: Sequence[Task], checkpoint: Checkpoint) -> Situation:
    dismissal = _dismissal(workflow, record, checkpoint)
    why = f"Checkpoint '{checkpoint.id}' is to be answered first."
    blocked = [*_work(ahead, why), *_transitions(open_ways(workflow, record), why)]
    return Situation(position, (_response(checkpoint),), tuple(dismissal), tuple(blocked), checkpoint.id)


def _led_away(workflow: Workflow, record: Record, position: Position) -> Situation:
    """An answer leads elsewhere: what is left here is left."""
    if record.children:
        return Situation(position, blocked=tuple(_transitions(open_ways(workflow, record), _suspended(record))))
    required = tuple(_transitions(open_ways(workflow, record)))
    return Situation(position, required, blocked=tuple(_closed(workflow, record)))


def _at_work(
    workflow: Workflow, record: Record, position: Position, ahead: Sequence[Task], asks: Sequence[Checkpoint]
) -> Situation:
    must = ahead[-1] if ahead and ahead[-1].must else None
    may = ahead[:-1] if must else ahead
    optional = [move for task in may for move in _moves_for(workflow, record, task)]
    optional += [_response(one) for one in asks]
    blocked = [move for task in ahead for move in _before_its_question(workflow, record, task)]
    if must is not None:
        first, *others = _moves_for(workflow, record, must)
        blocked += _transitions(open_ways(workflow, record), f"'{must.id}' is to be done first.")
        before = question_before(workflow, record, must)
        return Situation(position, (first,), (*optional, *others), tuple(blocked), before.id if before else "")
    if record.children:
        blocked += _transitions(open_ways(workflow, record), _suspended(record))
        return Situation(position, (), tuple(optional), tuple(blocked))
    required = tuple(_transitions(open_ways(workflow, record)))
    return Situation(position, required, tuple(optional), (*blocked, *_closed(workflow, record)))


def _moves_for(workflow: Workflow, record: Record, task: Task) -> list[Move]:
    """The moves that a task asks for now: itself, or the answer to the question before it."""
    checkpoint = question_before(workflow, record, task)
    if checkpoint is None:
        return list(_work([task]))
    answers = [_response(checkpoint), *_dismissal(workflow, record, checkpoint)]
    return answers if checkpoint.required else [*_work([task]), *answers]


def _before_its_question(workflow: Workflow, record: Record, task: Task) -> Iterator[Move]:
    checkpoint = question_before(workflow, record, task)
    if checkpoint is not None and checkpoint.required:
        yield from _work([task], f"Checkpoint '{checkpoint.id}' is to be answered first.")


def _work(ahead: Sequence[Task], reason: str = "") -> Iterator[Move]:
    actions: dict[str, Action] = {"step": "complete_step", "loop": "advance_loop", "activity": "transition"}
    return (Move(actions[task.kind], task.id, reason=reason, task=task) for task in ahead)


def _transitions(found: Sequence[Way], reason: str = "") -> Iterator[Move]:
    return (Move("transition", way.to, reason=reason) for way in found)


def _closed(workflow: Workflow, record: Record) -> Iterator[Move]:
    everything = ways(workflow, record)
    going = {way.to for way in everything if way.open}
    for way in {way.to: way for way in everything if way.to not in going}.values():
        unread = way.to in workflow.broken
        yield Move("transition", way.to, reason="It cannot be read." if unread else _why_closed(way))


def _why_closed(way: Way) -> str:
    if way.kind == "answer":
        return f"It takes the answer '{way.condition}'."
    return f"'{way.condition}' does not hold." if way.condition and way.holds is False else "Another way comes first."


def _response(checkpoint: Checkpoint) -> Move:
    return Move("respond_to_checkpoint", checkpoint.id, tuple(option.id for option in checkpoint.options))


def _dismissal(workflow: Workflow, record: Record, checkpoint: Checkpoint) -> list[Move]:
    if checkpoint.condition is None or holds(checkpoint.condition, told(workflow, record), told=True):
        return []
    return [Move("dismiss_checkpoint", checkpoint.id)]


def _suspended(record: Record) -> str:
    return f"Session {record.suspended_by} has to end first."


def _position(workflow: Workflow, record: Record, ahead: Sequence[Task]) -> Position:
    following = next((task for task in ahead if task.kind == "step"), None)
    loops = tuple(_loops(workflow, record))
    if following is None or following.step is None:
        return Position(record.workflow, record.activity, loops=loops)
    return Position(record.workflow, record.activity, following.id, following.at, following.step.name, loops)


def _loops(workflow: Workflow, record: Record) -> Iterator[LoopPosition]:
    for place in (*record.outer, record.here):
        loop, running = running_loop(workflow, place), place.running
        if loop is not None and running is not None:
            yield LoopPosition(loop.id, loop.name, running.iteration, passes(loop, running), running.item)
