"""What is possible where a session stands: what has to come next, what may, and what may not and why.

Everything that is offered here is accepted by `acting.accept`, and nothing else is. One of the required moves has to be made
sooner or later; the optional ones may be made before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fidelio.engine.checkpoints import find_checkpoint
from fidelio.engine.conditions import holds
from fidelio.engine.knowledge import running_loop, told
from fidelio.engine.loops import passes
from fidelio.engine.progress import Task, question_before, questions, tasks
from fidelio.engine.state import Record
from fidelio.engine.transitions import Way, exists, open_ways, ways

if TYPE_CHECKING:
    from fidelio.definitions.models import Checkpoint, Workflow

Action = Literal["complete_step", "respond_to_checkpoint", "dismiss_checkpoint", "advance_loop", "transition"]


@dataclass(frozen=True, slots=True)
class Move:
    """One move. `options` are the answers that a checkpoint takes; `reason` says why a blocked move is blocked."""

    action: Action
    target: str
    options: tuple[str, ...] = ()
    reason: str = ""
    task: Task | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Position:
    """Where the session stands. Numbers are counted from 1; `step` is the one that comes next."""

    workflow: str
    activity: str = ""
    step: str = ""
    step_number: int = 0
    loop: str = ""
    iteration: int = 0
    total: int | None = None
    item: Any = None


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


def situation(workflow: Workflow, record: Record) -> Situation:
    """What is possible now."""
    position = _position(workflow, record)
    if record.status == "completed":
        return Situation(position)
    if not record.activity:
        return Situation(position, tuple(_transitions(open_ways(workflow, record))))
    if record.waiting is not None:
        return _held(workflow, record, position)
    if record.forced and exists(workflow, record.forced):
        return _led_away(workflow, record, position)
    first = next((question for question in questions(workflow, record) if question.required), None)
    if first is not None:
        return _asked(workflow, record, position, first)
    return _at_work(workflow, record, position)


def _held(workflow: Workflow, record: Record, position: Position) -> Situation:
    """A question is open: nothing else goes on until it is answered."""
    activity = workflow.activity(record.activity)
    waiting = record.waiting
    checkpoint = find_checkpoint(activity, waiting.checkpoint) if activity is not None and waiting is not None else None
    if checkpoint is None:
        return Situation(position)
    return _asked(workflow, record, position, checkpoint)


def _asked(workflow: Workflow, record: Record, position: Position, checkpoint: Checkpoint) -> Situation:
    dismissal = _dismissal(workflow, record, checkpoint)
    why = f"Checkpoint '{checkpoint.id}' is to be answered first."
    blocked = [*_work(tasks(workflow, record), why), *_transitions(open_ways(workflow, record), why)]
    return Situation(position, (_response(checkpoint),), tuple(dismissal), tuple(blocked), checkpoint.id)


def _led_away(workflow: Workflow, record: Record, position: Position) -> Situation:
    """An answer leads elsewhere: what is left here is left."""
    required = tuple(_transitions(open_ways(workflow, record)))
    if record.children:
        return Situation(position, blocked=tuple(_transitions(open_ways(workflow, record), _suspended(record))))
    return Situation(position, required, blocked=tuple(_closed(workflow, record)))


def _at_work(workflow: Workflow, record: Record, position: Position) -> Situation:
    ahead = tasks(workflow, record)
    must = ahead[-1] if ahead and ahead[-1].must else None
    may = ahead[:-1] if must else ahead
    optional = [move for task in may for move in _moves_for(workflow, record, task)]
    optional += [_response(one) for one in questions(workflow, record)]
    blocked = [move for task in ahead for move in _before_its_question(workflow, record, task)]
    if must is not None:
        first, *others = _moves_for(workflow, record, must)
        blocked += _transitions(open_ways(workflow, record), f"'{must.id}' is to be done first.")
        asks = question_before(workflow, record, must)
        return Situation(position, (first,), (*optional, *others), tuple(blocked), asks.id if asks else "")
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


def _position(workflow: Workflow, record: Record) -> Position:
    ahead = next((task for task in tasks(workflow, record) if task.kind == "step"), None)
    running, loop = record.here.running, running_loop(workflow, record.here)
    step, number = (ahead.id, ahead.at) if ahead is not None else ("", 0)
    if running is None or loop is None:
        return Position(record.workflow, record.activity, step, number)
    return Position(
        record.workflow, record.activity, step, number, loop.id, running.iteration, passes(loop, running), running.item
    )
