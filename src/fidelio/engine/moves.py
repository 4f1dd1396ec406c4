"""What is possible where a session stands: what has to come next, what may, and what may not and why.

Everything that is offered here is accepted by `acting.accept`, and nothing else is. One of the required moves has to be made
sooner or later; the optional ones may be made before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from fidelio.engine.answers import Choice, Circumstances, resolve
from fidelio.engine.checkpoints import asking, current_checkpoint, only_person
from fidelio.engine.claims import check_transition
from fidelio.engine.problems import Refusal, refusal
from fidelio.engine.progress import Task, collection, passes, question_before, questions, tasks
from fidelio.engine.record import YIELDED, Draft, foreseen
from fidelio.engine.scope import known, running_loop
from fidelio.engine.state import Record
from fidelio.engine.transitions import Way, exists, open_ways, ways

if TYPE_CHECKING:
    from fidelio.definitions.models import Checkpoint, Workflow

Action = Literal["complete_step", "respond_to_checkpoint", "dismiss_checkpoint", "take_default", "advance_loop", "transition"]


@dataclass(frozen=True, slots=True)
class Move:
    """One move. `options` are the answers that a checkpoint takes; `person`: only a person can give one.

    `needs` is what has to come with the move. `reason` and `code` say why a blocked move is blocked.
    """

    action: Action
    target: str
    options: tuple[str, ...] = ()
    reason: str = ""
    task: Task | None = field(default=None, compare=False)
    person: bool = False
    needs: Literal["", "output", "loop_items"] = ""
    code: str = ""


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


def situation(workflow: Workflow, record: Record, *, now: int = 0, person: bool = False) -> Situation:
    """What is possible now. `now` matters only to a question whose default is taken when its time has run out.

    `person`: the server wants people to answer everything.
    """
    return _Surveyor(workflow, record, Circumstances(now, demands_person=person, min_response_ms=0)).situation()


@dataclass(frozen=True, slots=True)
class _Surveyor:
    """Looks around where a session stands."""

    workflow: Workflow
    record: Record
    how: Circumstances

    def situation(self) -> Situation:
        workflow, record = self.workflow, self.record
        ahead = tasks(workflow, record)
        position = _position(workflow, record, ahead)
        if record.status == "completed":
            return Situation(position)
        if record.activity and record.waiting is not None:
            return self._held(position, ahead)
        if not record.activity or (record.forced and exists(workflow, record.forced)):
            return self._at_the_door(position)
        asks = questions(workflow, record)
        first = next((question for question in asks if question.required), None)
        if first is not None:
            return self._asked(position, ahead, first)
        return self._at_work(position, ahead, asks)

    def _held(self, position: Position, ahead: Sequence[Task]) -> Situation:
        """A question is open: nothing else goes on until it is answered."""
        waiting = self.record.waiting
        if waiting is None:
            return Situation(position)
        checkpoint = current_checkpoint(self.workflow, self.record, waiting.checkpoint)
        if checkpoint is not None:
            return self._asked(position, ahead, checkpoint)
        why = f"The definition no longer has it. A person can still answer it: fidelio answer {waiting.request} OPTION."
        gone = Move("respond_to_checkpoint", waiting.checkpoint, reason=why, person=True, code="CHECKPOINT_NOT_FOUND")
        return Situation(position, blocked=(gone,), checkpoint=waiting.checkpoint)

    def _asked(self, position: Position, ahead: Sequence[Task], checkpoint: Checkpoint) -> Situation:
        others = self._without_option(checkpoint)
        why = f"Checkpoint '{checkpoint.id}' is to be answered first."
        blocked = [
            *(move for move in others if move.reason),
            *_work(ahead, why, "CHECKPOINT_BLOCKING"),
            *_transitions(open_ways(self.workflow, self.record), why, "ACTIVITY_NOT_COMPLETE"),
        ]
        optional = tuple(move for move in others if not move.reason)
        return Situation(position, (self._response(checkpoint),), optional, tuple(blocked), checkpoint.id)

    def _at_the_door(self, position: Position) -> Situation:
        """Nothing is left to do here: before the first activity, and when an answer leads elsewhere."""
        return Situation(position, self._onward(), blocked=tuple(self._closed()))

    def _at_work(self, position: Position, ahead: Sequence[Task], asks: Sequence[Checkpoint]) -> Situation:
        must = ahead[-1] if ahead and ahead[-1].must else None
        may = ahead[:-1] if must else ahead
        found = [move for task in may for move in self._moves_for(task)] + [self._response(one) for one in asks]
        optional = [move for move in found if not move.reason]
        blocked = [move for move in found if move.reason]
        if must is None:
            return Situation(position, self._onward(), tuple(optional), (*blocked, *self._closed()))
        found = self._moves_for(must)
        first, *others = [move for move in found if not move.reason]
        blocked += [move for move in found if move.reason]
        why = f"'{must.id}' is to be done first."
        blocked += _transitions(open_ways(self.workflow, self.record), why, "ACTIVITY_NOT_COMPLETE")
        before = question_before(self.workflow, self.record, must)
        return Situation(position, (first,), (*optional, *others), tuple(blocked), before.id if before else "")

    def _moves_for(self, task: Task) -> list[Move]:
        """The moves that a task asks for now: itself, or the answer to the question before it."""
        checkpoint = question_before(self.workflow, self.record, task)
        if checkpoint is None:
            return [self._task(task)]
        answers = [self._response(checkpoint), *self._without_option(checkpoint)]
        if not checkpoint.required:
            return [self._task(task), *answers]
        return [*answers, *_work([task], f"Checkpoint '{checkpoint.id}' is to be answered first.", "CHECKPOINT_BLOCKING")]

    def _task(self, task: Task) -> Move:
        (move,) = _work([task])
        if task.kind == "step" and self.record.fidelity == "enforce":
            return replace(move, needs="output")
        return replace(move, needs="loop_items") if task.kind == "loop" and self._needs_items(task.id) else move

    def _needs_items(self, name: str) -> bool:
        activity, running = self.workflow.activity(self.record.activity), self.record.here.running
        loop = next((one for one in activity.loops if one.id == name), None) if activity is not None else None
        if loop is None or loop.type != "forEach" or (running is not None and running.loop == name):
            return False
        return not collection(loop, known(self.workflow, self.record))

    def _onward(self) -> tuple[Move, ...]:
        """The ways that may be gone now; none while a child has to end first."""
        if self.record.children:
            return ()
        return tuple(_transitions([way for way in open_ways(self.workflow, self.record) if self._doubt(way.to) is None]))

    def _doubt(self, target: str) -> Refusal | None:
        """What speaks against an open way where moves are enforced: that nobody has said whether it holds."""
        if self.record.fidelity == "advise":
            return None
        return refusal(check_transition(self.workflow, self.record, target), self.record.fidelity)

    def _closed(self) -> Iterator[Move]:
        everything, going = ways(self.workflow, self.record), open_ways(self.workflow, self.record)
        if self.record.children:
            yield from _transitions(going, _suspended(self.record), "ACTIVITY_NOT_COMPLETE")
            return
        for way in going:
            if (no := self._doubt(way.to)) is not None:
                yield Move("transition", way.to, reason=f"{no.sentence} {no.remedy}".rstrip(), code=no.code)
        names = {way.to for way in going}
        for way in {way.to: way for way in everything if way.to not in names}.values():
            why = "It cannot be read." if way.to in self.workflow.broken else _why_closed(way)
            yield Move("transition", way.to, reason=why, code="INVALID_TRANSITION")

    def _response(self, checkpoint: Checkpoint) -> Move:
        options = tuple(option.id for option in checkpoint.options)
        person = only_person(self.workflow, self.record, checkpoint, server=self.how.demands_person)
        return Move("respond_to_checkpoint", checkpoint.id, options, person=person)

    def _without_option(self, checkpoint: Checkpoint) -> list[Move]:
        """The ways of answering that choose nothing, as far as the definition provides for them."""
        found = list[Move]()
        if checkpoint.condition is not None:
            found += self._answer(Move("dismiss_checkpoint", checkpoint.id), Choice(condition_not_met=True))
        timed = not checkpoint.blocking and checkpoint.default_option is not None and checkpoint.auto_advance_ms is not None
        if timed and self.record.pending_as(checkpoint.id) is not None:
            taken = Move("take_default", checkpoint.id, (checkpoint.default_option or "",))
            early = f"Its {checkpoint.auto_advance_ms} ms have to run out first."
            found += self._answer(taken, Choice(auto_advance=True), early)
        return found

    def _answer(self, move: Move, choice: Choice, early: str = "") -> list[Move]:
        """The move if such an answer would be taken; blocked, if not. One that is known to be wrong is not spoken of."""
        asked = asking(self.workflow, self.record, move.target)
        record = self.record
        if record.waiting_for(asked) is None:
            body = {"checkpoint": move.target, "request": asked.key, "iteration": asked.iteration}
            record = foreseen(record, [Draft(YIELDED, body)], self.how.now)
        found = resolve(self.workflow, record, choice, self.how, asked=asked)
        if not isinstance(found, Refusal):
            return [move]
        if found.code == "checkpoint.condition-met":
            return []
        why = early if found.code == "checkpoint.too-early" else found.sentence
        return [Move(move.action, move.target, reason=why, code=found.code)]


def _work(ahead: Sequence[Task], reason: str = "", code: str = "") -> Iterator[Move]:
    actions: dict[str, Action] = {"step": "complete_step", "loop": "advance_loop", "activity": "transition"}
    return (Move(actions[task.kind], task.id, reason=reason, task=task, code=code) for task in ahead)


def _transitions(found: Sequence[Way], reason: str = "", code: str = "") -> Iterator[Move]:
    return (Move("transition", way.to, reason=reason, code=code) for way in found)


def _why_closed(way: Way) -> str:
    if way.kind == "answer":
        return f"It takes the answer '{way.condition}'."
    return f"'{way.condition}' does not hold." if way.condition and way.holds is False else "Another way comes first."


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
