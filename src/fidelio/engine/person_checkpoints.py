"""Person-only checkpoints: which of them still need the answer of a person before a visit of an activity is left.

The rule holds at every level and for every way out of an activity. A required checkpoint that demands a person is settled by
its answer, or by a condition that is known to be false; an unknown condition has to be asked, and a declared default is a
value. The condition of the step that names a checkpoint counts as a part of its condition. In a loop each iteration has its own
answer.

What agents report after a checkpoint was asked does not count (`answers`). A checkpoint that no step names is due on entry, so
for it the values on entry count, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from fidelio.definitions.conditions import Truth, all_hold, holds, list_variables, negate
from fidelio.engine import phrases
from fidelio.engine.checkpoints import collect_instance_values, find_checkpoint_loop, find_naming_steps, needs_person
from fidelio.engine.due_iterations import find_due_items, has_first_iteration, has_next_iteration
from fidelio.engine.record import COMPLETED, ENTERED, LOOP_ADVANCED, EventContent, fold_drafts
from fidelio.engine.scope import collect_values, restore_replaced
from fidelio.engine.state import CheckpointInstance, LoopAnswers, LoopIteration, Record, Refusal

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Checkpoint, Loop, Workflow

PERSON_UNASKED = "checkpoint.person-unasked"


class MissingAnswer(msgspec.Struct, frozen=True):
    """A checkpoint that a person has not answered yet, and the iterations of its loop for which the answers are missing."""

    checkpoint: str
    activity: str
    iterations: tuple[int, ...] = ()


def refuse_unanswered(
    workflow: Workflow,
    record: Record,
    drafts: Iterable[EventContent],
    *,
    reported: Iterable[str] = (),
    server: bool = False,
    remedy: str = "",
) -> Refusal | None:
    """Refuse a move if its drafts end a visit with a checkpoint that still needs the answer of a person.

    `reported` are the ids of the steps in the manifest, including repetitions. `server`: the server demands people for all
    answers.
    """
    for draft in drafts:
        if (first := _find_left_behind(workflow, record, draft, Counter(reported), server=server)) is not None:
            sentence = phrases.person_unasked(first.checkpoint, first.activity, first.iterations)
            return Refusal(PERSON_UNASKED, sentence, remedy)
        record = fold_drafts(record, [draft], 0) if draft.type == LOOP_ADVANCED else record
        if draft.type in (ENTERED, COMPLETED):
            break
    return None


def _find_left_behind(
    workflow: Workflow, record: Record, draft: EventContent, reported: Mapping[str, int], *, server: bool
) -> MissingAnswer | None:
    """The first answer that is missing in what the draft leaves: visits, or an iteration."""
    if draft.type == LOOP_ADVANCED:
        return find_unfinished(workflow, record, begins=draft.body["loop"], reported=reported, server=server)
    if draft.type == ENTERED and draft.body.get("how") == "loop":
        return find_unfinished(workflow, record, reported=reported, server=server)
    for left in _list_left_visits(record, draft):
        # The manifest is that of the current activity, not of those whose loops run through it.
        mine = reported if left.visit == record.visit else {}
        if missing := find_missing_answers(workflow, left, reported=mine, server=server):
            return missing[0]
    return None


def find_unfinished(
    workflow: Workflow,
    record: Record,
    *,
    begins: str = "",
    reported: Mapping[str, int] | None = None,
    server: bool = False,
) -> MissingAnswer | None:
    """The answer that is missing in the running iteration before an activity of it, or an iteration of a loop, is entered.

    If another loop begins (`begins`), the items that the running loop would leave out count, too.
    """
    activity, running = workflow.activity(record.activity), record.here.running
    for found in find_missing_answers(workflow, record, reported=reported, server=server) if running is not None else ():
        loop = find_checkpoint_loop(activity, found.checkpoint) if activity is not None else None
        if running is None or loop is None or loop.id != running.loop:
            continue
        leaves = begins not in ("", loop.id)
        if numbers := tuple(number for number in found.iterations if leaves or number <= running.iteration):
            return replace(found, iterations=numbers)
    return None


def find_missing_answers(
    workflow: Workflow, record: Record, *, reported: Mapping[str, int] | None = None, server: bool = False
) -> list[MissingAnswer]:
    """The checkpoints of the current visit that need the answer of a person before the visit is left."""
    activity = workflow.activity(record.activity)
    if activity is None or leads_away(record):
        return []
    visit = _LeftVisit(workflow, record, activity, reported or {})
    demanding = (
        checkpoint
        for checkpoint in activity.checkpoints
        if checkpoint.required and needs_person(workflow, record, checkpoint, server=server)
    )
    return [missing for checkpoint in demanding if (missing := visit.find_missing(checkpoint)) is not None]


def leads_away(record: Record) -> bool:
    """Whether a person has answered that the activity is left. The answer of an agent does not cancel a person's question."""
    answers = record.here.answers
    return bool(record.forced) and any(
        answer.by_person and answer.effect.get("transitionTo") == record.forced for answer in answers
    )


def _list_left_visits(record: Record, move: EventContent) -> Iterator[Record]:
    """The visits that a move leaves, each as the record in which it is the current visit."""
    body, how = move.body, move.body.get("how", "next")
    stays = move.type == ENTERED and body["activity"] == record.activity and not body.get("again")
    if move.type not in (ENTERED, COMPLETED) or not record.activity or stays:
        return
    if record.forced and move.type == ENTERED and body["activity"] != record.forced:
        # A person who sends the session somewhere has not allowed it to go anywhere else.
        record = replace(record, forced="")
    yield record
    if how == "next" and not leads_away(record):
        # A move out of a loop through activities leaves the activities of the loops, too.
        for number in reversed(range(len(record.outer))):
            yield replace(record, here=record.outer[number], outer=record.outer[:number])


class _LeftVisit(msgspec.Struct, frozen=True):
    """The current visit of a record. `reported` counts the entries of each step in the manifest."""

    workflow: Workflow
    record: Record
    activity: Activity
    reported: Mapping[str, int]

    def find_missing(self, checkpoint: Checkpoint) -> MissingAnswer | None:
        loop = find_checkpoint_loop(self.activity, checkpoint.id)
        if loop is not None:
            missing = self._find_missing_iterations(checkpoint, loop)
            return MissingAnswer(checkpoint.id, self.activity.id, missing) if missing else None
        if self.record.find_answer(checkpoint.id) is not None or not self._is_due(checkpoint):
            return None
        return MissingAnswer(checkpoint.id, self.activity.id)

    def _is_due(self, checkpoint: Checkpoint) -> bool:
        if find_naming_steps(self.activity, checkpoint.id):
            return self._evaluate(checkpoint, collect_values(self.workflow, self.record)) is not False
        on_entry = restore_replaced(self.record, self.record.here.replaced)
        truths = [holds(checkpoint.condition, collect_values(self.workflow, record)) for record in (self.record, on_entry)]
        return truths[0] is not False or truths[1] is True

    def _evaluate(self, checkpoint: Checkpoint, values: Mapping[str, Any]) -> Truth:
        """Whether the checkpoint applies: its condition holds, and that of a step that names it, unless the step was done."""
        here, steps = self.record.here, find_naming_steps(self.activity, checkpoint.id)
        done = {*here.done, *(here.running.done if here.running is not None else ()), *self.reported}
        truths = [True if step.id in done else holds(step.condition, values) for step in steps]
        any_step = negate(all_hold([negate(truth) for truth in truths]))
        return all_hold([holds(checkpoint.condition, values), any_step])

    def _find_missing_iterations(self, checkpoint: Checkpoint, loop: Loop) -> tuple[int, ...]:
        here, known = self.record.here, self.record.here.in_loops.get(checkpoint.id)
        newest = self.record.find_answer(checkpoint.id)
        if known is None and newest is not None:
            # Records of earlier versions have only the newest answer.
            known = LoopAnswers(tuple(range(1, newest.iteration + 1)))
        known = known or LoopAnswers()
        running = here.running if here.running is not None and here.running.loop == loop.id else None
        if running is not None:
            due: Iterable[int] = self._list_due_after(loop, running)
        elif loop.id in here.looped:
            # A loop is left for another one only if it is settled.
            return ()
        else:
            count = self._count_due(checkpoint, loop, known)
            if changing := self._find_changing_names(checkpoint, loop):
                return self._find_missing_change(checkpoint, known, count, changing)
            due = range(1, 1 + count)
        return tuple(
            number for number in due if number not in known.iterations and self._applies_in(checkpoint, number) is not False
        )

    def _find_changing_names(self, checkpoint: Checkpoint, loop: Loop) -> set[str]:
        """The variables of its condition that were set in this visit: their values in earlier iterations are not known."""
        steps = find_naming_steps(self.activity, checkpoint.id)
        conditions = (checkpoint.condition, *(step.condition for step in steps))
        names = {_find_root(name) for condition in conditions if condition for name in list_variables(condition)}
        return (names & {_find_root(name) for name in self.record.here.changed}) - {loop.variable or ""}

    def _find_missing_change(
        self, checkpoint: Checkpoint, known: LoopAnswers, count: int, changing: set[str]
    ) -> tuple[int, ...]:
        """The next iteration, if the checkpoint applies now and has no answer since its variables were set."""
        applies = self._evaluate(checkpoint, collect_values(self.workflow, self.record)) is not False
        outdated = not known.iterations or bool(changing & {_find_root(name) for name in known.since})
        return (len(known.iterations) + 1,) if applies and outdated and len(known.iterations) < count else ()

    def _list_due_after(self, loop: Loop, running: LoopIteration) -> Iterator[int]:
        """The current iteration of a loop that is entered by moves, and the items that would be left out."""
        yield running.iteration
        if loop.type == "forEach" and has_next_iteration(loop, running, collect_values(self.workflow, self.record)):
            yield from range(running.iteration + 1, 1 + min(len(running.items or ()), loop.max_iterations))

    def _count_due(self, checkpoint: Checkpoint, loop: Loop, known: LoopAnswers) -> int:
        """How many iterations are due in a loop that the agent goes through by itself."""
        values = collect_values(self.workflow, self.record)
        steps = find_naming_steps(self.activity, checkpoint.id)
        done = max((self.reported.get(step.id, 0) for step in steps), default=0)
        any_done = max((self.reported.get(step.id, 0) for step in loop.steps), default=0)
        items = find_due_items(loop, self.record, values) if loop.type == "forEach" else None
        # A list that was shortened or removed after the checkpoint was asked is still as long as it was then.
        total = max(len(items or ()), known.total)
        stopped = loop.break_condition is not None and holds(loop.break_condition, values) is True
        if (items is not None or total) and not stopped:
            return min(total, loop.max_iterations)
        ran = any_done > 0 or bool(total) or stopped or has_first_iteration(loop, self.record, values) is True
        return max(int(ran), done if checkpoint.condition is None or total else 0)

    def _applies_in(self, checkpoint: Checkpoint, iteration: int) -> Truth:
        instance = CheckpointInstance(checkpoint.id, self.activity.id, self.record.visit, iteration)
        return self._evaluate(checkpoint, collect_instance_values(self.workflow, self.record, instance))


def _find_root(name: str) -> str:
    return name.partition(".")[0]
