"""List the moves that are possible in a session: required, optional, and blocked with the reason.

`apply_move` accepts exactly the moves that are offered here. One of the required moves has to be made eventually; optional
moves may be made before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from fidelio.engine import phrases
from fidelio.engine.answers import AnswerChoice, AnswerContext, resolve_answer
from fidelio.engine.checkpoints import find_checkpoint_loop, find_current_checkpoint, find_instance, needs_person
from fidelio.engine.due_iterations import count_iterations, find_due_items
from fidelio.engine.loops import check_loops
from fidelio.engine.person_checkpoints import (
    PERSON_UNASKED,
    MissingAnswer,
    find_missing_answers,
    find_unfinished,
    refuse_unanswered,
)
from fidelio.engine.progress import (
    ActivityTask,
    find_checkpoint_before,
    list_free_checkpoints,
    list_tasks,
)
from fidelio.engine.record import YIELDED, EventDraft, fold_drafts
from fidelio.engine.scope import collect_values, find_running_loop
from fidelio.engine.state import Problem, Record, Refusal, build_refusal
from fidelio.engine.transition_events import check_transition, draft_transition, list_reported_transitions
from fidelio.engine.transitions import CandidateTransition, list_transitions, select_open, target_exists
from fidelio.engine.variables import check_required_variables
from fidelio.errors import Hint, Text

if TYPE_CHECKING:
    from fidelio.definitions.models import Checkpoint, Workflow

Action = Literal["complete_step", "respond_to_checkpoint", "dismiss_checkpoint", "take_default", "advance_loop", "transition"]


@dataclass(frozen=True, slots=True)
class PossibleMove:
    """A move. `options` are the valid answers to a checkpoint; `person`: only a person can answer it.

    `needs` names the argument that the move requires. `reason` and `code` say why a blocked move is blocked.
    """

    action: Action
    target: str
    options: tuple[str, ...] = ()
    reason: Text = ""
    task: ActivityTask | None = None
    person: bool = False
    needs: Literal["", "output", "loop_items"] = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class LoopPosition:
    """The current iteration of a loop; `total` is the number of iterations, if it is known."""

    id: str
    name: str
    iteration: int
    total: int | None = None
    item: Any = None


@dataclass(frozen=True, slots=True)
class SessionPosition:
    """The position of the session. Numbers are counted from 1; `step` is the next step.

    `loops` are the running loops, the innermost last. An activity that a loop runs through is inside that loop.
    """

    workflow: str
    activity: str = ""
    step: str = ""
    step_number: int = 0
    step_name: str = ""
    loops: tuple[LoopPosition, ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """The position and the possible moves. `checkpoint` has to be answered first."""

    position: SessionPosition
    required: tuple[PossibleMove, ...] = ()
    optional: tuple[PossibleMove, ...] = ()
    blocked: tuple[PossibleMove, ...] = ()
    checkpoint: str = ""

    @property
    def offered(self) -> tuple[PossibleMove, ...]:
        return (*self.required, *self.optional)


def describe_situation(
    workflow: Workflow,
    record: Record,
    *,
    now: int = 0,
    person: bool = False,
    transitions: Sequence[CandidateTransition] | None = None,
) -> Situation:
    """The possible moves. `now` matters only to checkpoints that advance automatically after a time.

    `person`: the server demands people for all answers. `transitions` are those of the record, if the caller has them.
    """
    context = AnswerContext(now, demands_person=person, min_response_ms=0)
    found = list_transitions(workflow, record) if transitions is None else transitions
    return _SituationBuilder(workflow, record, context, found).build()


@dataclass(frozen=True, slots=True)
class _SituationBuilder:
    """Builds the situation of a session. `transitions` are those of its record, computed once."""

    workflow: Workflow
    record: Record
    context: AnswerContext
    transitions: Sequence[CandidateTransition]

    def build(self) -> Situation:
        workflow, record = self.workflow, self.record
        tasks = list_tasks(workflow, record)
        position = _find_position(workflow, record, tasks)
        if record.ended:
            return Situation(position)
        if record.activity and record.waiting is not None:
            return self._build_blocked(position, tasks)
        missing = find_missing_answers(workflow, record, server=self.context.demands_person)
        if not record.activity or (record.forced and target_exists(workflow, record.forced) and not missing):
            return self._build_transitions_only(position)
        checkpoints = list_free_checkpoints(workflow, record)
        first = next((checkpoint for checkpoint in checkpoints if checkpoint.required), None)
        first = first or self._find_passed_checkpoint(tasks, missing)
        if first is not None:
            return self._build_at_checkpoint(position, tasks, first)
        return self._build_in_progress(position, tasks, checkpoints)

    def _find_passed_checkpoint(self, tasks: Sequence[ActivityTask], missing: Sequence[MissingAnswer]) -> Checkpoint | None:
        """A checkpoint that needs a person's answer now, because no step that can still be done leads to it."""
        if not missing or any(task.must and task.kind == "step" for task in tasks):
            return None
        ends_iteration = any(task.must for task in tasks)
        ahead = {task.step.checkpoint for task in tasks if task.step is not None} if not ends_iteration else set()
        passed = (found for found in missing if found.checkpoint not in ahead and self._is_passed(tasks, found))
        first = next(passed, None)
        return find_current_checkpoint(self.workflow, self.record, first.checkpoint) if first is not None else None

    def _is_passed(self, tasks: Sequence[ActivityTask], missing: MissingAnswer) -> bool:
        """Whether the checkpoint is due in the activity or in this iteration, or its loop cannot be entered any more."""
        running, activity = self.record.here.running, self.workflow.activity(self.record.activity)
        loop = find_checkpoint_loop(activity, missing.checkpoint) if activity is not None else None
        if loop is None:
            return True
        if running is not None and running.loop == loop.id:
            return running.iteration in missing.iterations
        return not any(task.kind == "loop" and task.id == loop.id for task in tasks)

    def _build_blocked(self, position: SessionPosition, tasks: Sequence[ActivityTask]) -> Situation:
        """A checkpoint is open: only answering it is possible."""
        waiting = self.record.waiting
        if waiting is None:
            return Situation(position)
        checkpoint = find_current_checkpoint(self.workflow, self.record, waiting.checkpoint)
        if checkpoint is not None:
            return self._build_at_checkpoint(position, tasks, checkpoint)
        why = Hint("The definition no longer has it. A person can still answer it: ", waiting.answer_command, ".")
        missing = PossibleMove(
            "respond_to_checkpoint", waiting.checkpoint, reason=why, person=True, code="CHECKPOINT_NOT_FOUND"
        )
        return Situation(position, blocked=(missing,), checkpoint=waiting.checkpoint)

    def _build_at_checkpoint(
        self, position: SessionPosition, tasks: Sequence[ActivityTask], checkpoint: Checkpoint
    ) -> Situation:
        others = self._list_moves_without_option(checkpoint)
        why = phrases.answered_first(checkpoint.id)
        blocked = [
            *(move for move in others if move.reason),
            *_make_task_moves(tasks, why, "CHECKPOINT_BLOCKING"),
            *_make_transition_moves(select_open(self.transitions), why, "ACTIVITY_NOT_COMPLETE"),
        ]
        optional = tuple(move for move in others if not move.reason)
        return Situation(position, (self._make_answer_move(checkpoint),), optional, tuple(blocked), checkpoint.id)

    def _build_transitions_only(self, position: SessionPosition) -> Situation:
        """The activity has no more tasks: before the first activity, and if an answer leads to another activity."""
        moves = self._list_transition_moves()
        return Situation(position, _select_possible(moves), blocked=_select_blocked(moves))

    def _build_in_progress(
        self, position: SessionPosition, tasks: Sequence[ActivityTask], checkpoints: Sequence[Checkpoint]
    ) -> Situation:
        mandatory = tasks[-1] if tasks and tasks[-1].must else None
        free = tasks[:-1] if mandatory else tasks
        moves = [move for task in free for move in self._list_moves_for(task)]
        moves += [self._make_answer_move(checkpoint) for checkpoint in checkpoints]
        optional, blocked = _select_possible(moves), _select_blocked(moves)
        if mandatory is None:
            moves = self._list_transition_moves()
            return Situation(position, _select_possible(moves), optional, (*blocked, *_select_blocked(moves)))
        moves = self._list_moves_for(mandatory)
        first, *others = _select_possible(moves)
        why = f"'{mandatory.id}' is to be done first."
        transitions = _make_transition_moves(select_open(self.transitions), why, "ACTIVITY_NOT_COMPLETE")
        blocked = (*blocked, *_select_blocked(moves), *transitions)
        before = find_checkpoint_before(self.workflow, self.record, mandatory)
        return Situation(position, (first,), (*optional, *others), blocked, before.id if before else "")

    def _list_moves_for(self, task: ActivityTask) -> list[PossibleMove]:
        """The moves for a task: the task itself, or the answers to the checkpoint before it."""
        checkpoint = find_checkpoint_before(self.workflow, self.record, task)
        if checkpoint is None:
            why = self._explain_unfinished_iteration(task)
            return list(_make_task_moves([task], why, PERSON_UNASKED)) if why else [self._make_task_move(task)]
        answers = [self._make_answer_move(checkpoint), *self._list_moves_without_option(checkpoint)]
        if not checkpoint.required:
            return [self._make_task_move(task), *answers]
        return [
            *answers,
            *_make_task_moves([task], phrases.answered_first(checkpoint.id), "CHECKPOINT_BLOCKING"),
        ]

    def _explain_unfinished_iteration(self, task: ActivityTask) -> str:
        """Why the next iteration cannot be entered yet: a person has to answer a checkpoint of the current iteration."""
        if task.kind != "loop":
            return ""
        found = find_unfinished(self.workflow, self.record, begins=task.id, server=self.context.demands_person)
        return found.sentence if found is not None else ""

    def _make_task_move(self, task: ActivityTask) -> PossibleMove:
        (move,) = _make_task_moves([task])
        if task.kind == "step" and self.record.fidelity == "enforce":
            return replace(move, needs="output")
        return replace(move, needs="loop_items") if task.kind == "loop" and self._needs_items(task.id) else move

    def _needs_items(self, name: str) -> bool:
        activity, running = self.workflow.activity(self.record.activity), self.record.here.running
        loop = next((loop for loop in activity.loops if loop.id == name), None) if activity is not None else None
        if loop is None or loop.type != "forEach" or (running is not None and running.loop == name):
            return False
        return not find_due_items(loop, self.record, collect_values(self.workflow, self.record))

    def _list_transition_moves(self) -> list[PossibleMove]:
        """The moves along the transitions, the open ones first. While a child session has to end first, all are blocked."""
        open_transitions = select_open(self.transitions)
        if self.record.children:
            return list(_make_transition_moves(open_transitions, _explain_suspended(self.record), "ACTIVITY_NOT_COMPLETE"))
        names = {candidate.to for candidate in open_transitions}
        closed = {candidate.to: candidate for candidate in self.transitions if candidate.to not in names}
        return [*self._list_open_moves(open_transitions), *map(self._make_closed_move, closed.values())]

    def _list_open_moves(self, candidates: Sequence[CandidateTransition]) -> Iterator[PossibleMove]:
        """The moves of open transitions. A move is blocked while a person has to answer; at the level `enforce` also if its
        condition depends on unset variables, or while iterations of loops or required variables are missing.
        """
        if self.record.fidelity == "advise":
            yield from (self._make_unanswered_move(each) or PossibleMove("transition", each.to) for each in candidates)
            return
        reported = list_reported_transitions(self.workflow, self.record, self.transitions)
        missing = [*check_loops(self.workflow, self.record, ()), *check_required_variables(self.workflow, self.record)]
        yield from (self._make_unanswered_move(each) or self._make_open_move(each, reported, missing) for each in candidates)

    def _make_unanswered_move(self, candidate: CandidateTransition) -> PossibleMove | None:
        """The blocked move of a transition before which a person has to answer."""
        refusal = self._refuse_unanswered(candidate)
        if refusal is None:
            return None
        return PossibleMove("transition", candidate.to, reason=refusal.sentence, code=refusal.code)

    def _make_open_move(
        self, candidate: CandidateTransition, reported: Sequence[CandidateTransition], missing: Sequence[Problem]
    ) -> PossibleMove:
        checked = check_transition(self.workflow, self.record, candidate.to, candidates=self.transitions, reported=reported)
        problems = [*checked, *missing]
        if (refusal := build_refusal(problems, self.record.fidelity)) is None:
            return PossibleMove("transition", candidate.to)
        reason = Hint(refusal.sentence, " ", refusal.remedy) if refusal.remedy else refusal.sentence
        return PossibleMove("transition", candidate.to, reason=reason, code=refusal.code)

    def _refuse_unanswered(self, candidate: CandidateTransition) -> Refusal | None:
        workflow, record, server = self.workflow, self.record, self.context.demands_person
        if not record.outer and not find_missing_answers(workflow, record, server=server):
            return None
        new_visit = candidate.to == record.activity
        drafts = draft_transition(workflow, record, candidate.to, new_visit=new_visit, candidates=self.transitions)
        return refuse_unanswered(workflow, record, drafts, server=server)

    def _make_closed_move(self, candidate: CandidateTransition) -> PossibleMove:
        why = "It cannot be read." if candidate.to in self.workflow.broken else _explain_closed(candidate)
        return PossibleMove("transition", candidate.to, reason=why, code="INVALID_TRANSITION")

    def _make_answer_move(self, checkpoint: Checkpoint) -> PossibleMove:
        options = tuple(option.id for option in checkpoint.options)
        person = needs_person(self.workflow, self.record, checkpoint, server=self.context.demands_person)
        return PossibleMove("respond_to_checkpoint", checkpoint.id, options, person=person)

    def _list_moves_without_option(self, checkpoint: Checkpoint) -> list[PossibleMove]:
        """Dismissal and automatic advance, if the definition allows them."""
        found = list[PossibleMove]()
        if checkpoint.condition is not None:
            found += self._try_answer(PossibleMove("dismiss_checkpoint", checkpoint.id), AnswerChoice(condition_not_met=True))
        timed = not checkpoint.blocking and checkpoint.default_option is not None and checkpoint.auto_advance_ms is not None
        if timed and self.record.find_pending(checkpoint.id) is not None:
            default = PossibleMove("take_default", checkpoint.id, (checkpoint.default_option or "",))
            early = f"Its {checkpoint.auto_advance_ms} ms have to run out first."
            found += self._try_answer(default, AnswerChoice(auto_advance=True), early)
        return found

    def _try_answer(self, move: PossibleMove, choice: AnswerChoice, early: str = "") -> list[PossibleMove]:
        """The move, blocked if the answer would be refused; no move for dismissing a checkpoint whose condition holds."""
        instance = find_instance(self.workflow, self.record, move.target)
        record = self.record
        if record.find_open(instance) is None:
            body = {"checkpoint": move.target, "request": instance.key, "iteration": instance.iteration}
            record = fold_drafts(record, [EventDraft(YIELDED, body)], self.context.now)
        found = resolve_answer(self.workflow, record, choice, self.context, instance=instance)
        if not isinstance(found, Refusal):
            return [move]
        if found.code == "checkpoint.condition-met":
            return []
        why = early if found.code == "checkpoint.too-early" else found.sentence
        return [PossibleMove(move.action, move.target, reason=why, code=found.code)]


def _select_possible(moves: Sequence[PossibleMove]) -> tuple[PossibleMove, ...]:
    return tuple(move for move in moves if not move.reason)


def _select_blocked(moves: Sequence[PossibleMove]) -> tuple[PossibleMove, ...]:
    return tuple(move for move in moves if move.reason)


def _make_task_moves(tasks: Sequence[ActivityTask], reason: str = "", code: str = "") -> Iterator[PossibleMove]:
    actions: dict[str, Action] = {"step": "complete_step", "loop": "advance_loop", "activity": "transition"}
    return (PossibleMove(actions[task.kind], task.id, reason=reason, task=task, code=code) for task in tasks)


def _make_transition_moves(found: Sequence[CandidateTransition], reason: str = "", code: str = "") -> Iterator[PossibleMove]:
    return (PossibleMove("transition", candidate.to, reason=reason, code=code) for candidate in found)


def _explain_closed(candidate: CandidateTransition) -> str:
    if candidate.kind == "answer":
        return f"It takes the answer '{candidate.condition}'."
    return (
        f"'{candidate.condition}' does not hold."
        if candidate.condition and candidate.holds is False
        else "Another way comes first."
    )


def _explain_suspended(record: Record) -> str:
    return f"Session {record.suspended_by} has to end first."


def _find_position(workflow: Workflow, record: Record, tasks: Sequence[ActivityTask]) -> SessionPosition:
    following = next((task for task in tasks if task.kind == "step"), None)
    loops = tuple(_find_loop_positions(workflow, record))
    if following is None or following.step is None:
        return SessionPosition(record.workflow, record.activity, loops=loops)
    return SessionPosition(record.workflow, record.activity, following.id, following.at, following.step.name, loops)


def _find_loop_positions(workflow: Workflow, record: Record) -> Iterator[LoopPosition]:
    for visit in (*record.outer, record.here):
        loop, running = find_running_loop(workflow, visit), visit.running
        if loop is not None and running is not None:
            yield LoopPosition(loop.id, loop.name, running.iteration, count_iterations(loop, running), running.item)
