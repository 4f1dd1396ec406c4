"""Person-only checkpoints: which of them still need the answer of a person before a visit of an activity is left.

The rule holds at every level and for every way out of an activity. A required checkpoint that demands a person is settled by
its answer, or by a condition that is known to be false; an unknown condition has to be asked, and a declared default is a
value. The condition of the step that names a checkpoint counts as a part of its condition. In a loop each iteration has its own
answer.

A condition is not made false by what agents report after the checkpoint was asked (`answers`), in a loop after it was asked in
any iteration, or in the call that leaves. What people answer, what the definition sets, and in a loop what a child session sets
for the next iteration, counts. A checkpoint that no step names is due on entry, so for it the values on entry count, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from fidelio.definitions.conditions import Truth, all_hold, holds, list_variables, negate
from fidelio.engine import phrases
from fidelio.engine.checkpoints import (
    collect_instance_values,
    find_checkpoint_loop,
    find_naming_steps,
    list_values_at_questions,
    needs_person,
)
from fidelio.engine.due_iterations import find_author, find_due_items, has_first_iteration, has_next_iteration
from fidelio.engine.record import (
    BY_ANSWER,
    BY_CHILD,
    BY_STEP,
    COMPLETED,
    ENTERED,
    LOOP_ADVANCED,
    EventContent,
    fold_drafts,
)
from fidelio.engine.scope import collect_values, restore_replaced
from fidelio.engine.state import CheckpointInstance, LoopAnswers, LoopIteration, Record, Refusal
from fidelio.engine.transitions import target_exists
from fidelio.engine.variables import evaluate_set_actions

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Checkpoint, Loop, Step, Workflow

PERSON_UNASKED = "checkpoint.person-unasked"


class MissingAnswer(msgspec.Struct, frozen=True):
    """A checkpoint that a person has not answered yet, and the iterations of its loop for which the answers are missing.

    `undecided` are the variables that would tell whether the loop has an iteration, if that is not known.
    """

    checkpoint: str
    activity: str
    iterations: tuple[int, ...] = ()
    undecided: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        return phrases.person_unasked(self.checkpoint, self.activity, self.iterations, self.undecided)


def refuse_unanswered(
    workflow: Workflow,
    record: Record,
    drafts: Iterable[EventContent],
    *,
    reported: Iterable[str] = (),
    earlier: Record | None = None,
    server: bool = False,
    remedy: str = "",
) -> Refusal | None:
    """Refuse a move if its drafts end a visit with a checkpoint that still needs the answer of a person.

    `reported` are the ids of the steps in the manifest, including repetitions. `earlier` is the record without what the call
    reports: a condition that holds there is not reported away by the call that leaves. `server`: the server demands people for
    all answers.
    """
    call = _Call(Counter(reported), None if earlier is record else earlier, server)
    for draft in drafts:
        if (first := _find_left_behind(workflow, record, draft, call)) is not None:
            return Refusal(PERSON_UNASKED, first.sentence, remedy)
        record = fold_drafts(record, [draft], 0) if draft.type == LOOP_ADVANCED else record
        if draft.type in (ENTERED, COMPLETED):
            break
    return None


class _Call(msgspec.Struct, frozen=True):
    """What a call reports, and the record before it."""

    reported: Mapping[str, int] = {}
    earlier: Record | None = None
    server: bool = False

    def select(self, left: Record, current: int) -> _Call:
        """The call as it concerns a visit that it leaves. The manifest is that of the current activity (`current`)."""
        known = self.earlier
        visits = (*known.outer, known.here) if known is not None else ()
        number = next((number for number, visit in enumerate(visits) if visit.visit == left.visit), None)
        earlier = None if known is None or number is None else replace(known, here=visits[number], outer=visits[:number])
        return _Call(self.reported if left.visit == current else {}, earlier, self.server)


def _find_left_behind(workflow: Workflow, record: Record, draft: EventContent, call: _Call) -> MissingAnswer | None:
    """The first answer that is missing in what the draft leaves: visits, or an iteration."""
    if draft.type == LOOP_ADVANCED:
        return _find_unfinished(workflow, record, draft.body["loop"], call)
    if draft.type == ENTERED and draft.body.get("how") == "loop":
        return _find_unfinished(workflow, record, "", call)
    for left in _list_left_visits(workflow, record, draft):
        if missing := _find_missing(workflow, left, call.select(left, record.visit)):
            return missing[0]
    return None


def find_unfinished(workflow: Workflow, record: Record, *, begins: str, server: bool = False) -> MissingAnswer | None:
    """The answer that is missing in the running iteration before an iteration of the loop `begins` is entered."""
    return _find_unfinished(workflow, record, begins, _Call(server=server))


def _find_unfinished(workflow: Workflow, record: Record, begins: str, call: _Call) -> MissingAnswer | None:
    """The answer that is missing in the running iteration before an activity of it, or an iteration of a loop, is entered.

    If another loop begins (`begins`), the items that the running loop would leave out count, too.
    """
    activity, running = workflow.activity(record.activity), record.here.running
    for found in _find_missing(workflow, record, call) if running is not None else ():
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
    return _find_missing(workflow, record, _Call(reported or {}, server=server))


def _find_missing(workflow: Workflow, record: Record, call: _Call) -> list[MissingAnswer]:
    activity = workflow.activity(record.activity)
    if activity is None or not activity.checkpoints or _leads_away(workflow, record):
        return []
    visit = _LeftVisit(workflow, record, activity, call.reported, call.earlier or record)
    demanding = (
        checkpoint
        for checkpoint in activity.checkpoints
        if checkpoint.required and needs_person(workflow, record, checkpoint, server=call.server)
    )
    return [missing for checkpoint in demanding if (missing := visit.find_missing(checkpoint)) is not None]


def _leads_away(workflow: Workflow, record: Record) -> bool:
    """Whether a person has answered that the activity is left. The answer of an agent does not cancel a person's question.

    An answer that leads to an activity which does not exist leads nowhere.
    """
    if not record.forced or not target_exists(workflow, record.forced):
        return False
    return any(answer.by_person and answer.effect.get("transitionTo") == record.forced for answer in record.here.answers)


def _list_left_visits(workflow: Workflow, record: Record, move: EventContent) -> Iterator[Record]:
    """The visits that a move leaves, each as the record in which it is the current visit."""
    body, how = move.body, move.body.get("how", "next")
    stays = move.type == ENTERED and body["activity"] == record.activity and not body.get("again")
    if move.type not in (ENTERED, COMPLETED) or not record.activity or stays:
        return
    if record.forced and move.type == ENTERED and body["activity"] != record.forced:
        # A person who sends the session somewhere has not allowed it to go anywhere else.
        record = replace(record, forced="")
    yield record
    if how == "next" and not _leads_away(workflow, record):
        # A move out of a loop through activities leaves the activities of the loops, too.
        for number in reversed(range(len(record.outer))):
            yield replace(record, here=record.outer[number], outer=record.outer[:number])


class _LeftVisit(msgspec.Struct, frozen=True):
    """The current visit of a record. `reported` counts the entries of each step in the manifest.

    `earlier` is the record before the call that leaves the visit.
    """

    workflow: Workflow
    record: Record
    activity: Activity
    reported: Mapping[str, int]
    earlier: Record

    def find_missing(self, checkpoint: Checkpoint) -> MissingAnswer | None:
        loop = find_checkpoint_loop(self.activity, checkpoint.id)
        if loop is not None:
            missing = self._find_missing_iterations(checkpoint, loop)
            return MissingAnswer(checkpoint.id, self.activity.id, missing, self._find_undecided(loop)) if missing else None
        if self.record.find_answer(checkpoint.id) is not None or not self._is_due(checkpoint):
            return None
        return MissingAnswer(checkpoint.id, self.activity.id)

    def _find_undecided(self, loop: Loop) -> tuple[str, ...]:
        if has_first_iteration(loop, self.record, collect_values(self.workflow, self.record)) is not None:
            return ()
        return (loop.over,) if loop.over else tuple(list_variables(loop.condition)) if loop.condition else ()

    def _is_due(self, checkpoint: Checkpoint) -> bool:
        now = collect_values(self.workflow, self.record)
        if find_naming_steps(self.activity, checkpoint.id):
            instance = CheckpointInstance(checkpoint.id, self.activity.id, self.record.visit)
            return self._evaluate(checkpoint, now) is not False or self._applied_before(checkpoint, instance)
        on_entry = restore_replaced(self.record, self.record.here.replaced)
        is_certain = holds(checkpoint.condition, collect_values(self.workflow, on_entry)) is True
        return is_certain or holds(checkpoint.condition, now) is not False

    def _evaluate(self, checkpoint: Checkpoint, values: Mapping[str, Any]) -> Truth:
        """Whether the checkpoint applies: its condition holds, and that of a step that names it, unless the step was done."""
        here, steps = self.record.here, find_naming_steps(self.activity, checkpoint.id)
        done = {*here.done, *(here.running.done if here.running is not None else ()), *self.reported}
        truths = [True if step.id in done else holds(step.condition, values) for step in steps]
        any_step = negate(all_hold([negate(truth) for truth in truths]))
        return all_hold([holds(checkpoint.condition, values), any_step])

    def _applied_before(self, checkpoint: Checkpoint, instance: CheckpointInstance, repeated: Iterable[Step] = ()) -> bool:
        """Whether it was certain to apply before the call that leaves, after the reported steps that come before it.

        In a later iteration the steps of its loop are among them (`repeated`).
        """
        earlier = self.earlier
        if earlier is self.record:
            return False
        names = [step.id for step in find_naming_steps(self.activity, checkpoint.id)]
        steps = takewhile(lambda step: step.id not in names, self.activity.all_steps)
        known = earlier.here.in_loops.get(checkpoint.id, LoopAnswers())
        values = collect_instance_values(self.workflow, earlier, instance)
        values = self._set_by_actions(values, steps, _list_later_names(earlier))
        values = self._set_by_actions(values, repeated, {*_list_settled_names(earlier), *known.since})
        return self._evaluate(checkpoint, values) is True

    def _set_by_actions(self, values: dict[str, Any], steps: Iterable[Step], exclude: Collection[str]) -> dict[str, Any]:
        for step in steps:
            if step.actions and self.reported.get(step.id):
                found = evaluate_set_actions(step.actions, values)
                values |= {name: value for name, value in found.items() if name not in exclude}
        return values

    def _find_missing_iterations(self, checkpoint: Checkpoint, loop: Loop) -> tuple[int, ...]:
        here, known = self.record.here, self._find_loop_answers(checkpoint)
        if here.running is not None and here.running.loop == loop.id:
            due = self._list_due_after(loop, here.running)
            return tuple(number for number in due if self._is_missing(checkpoint, loop, known, number))
        if loop.id in here.looped:
            # A loop is left for another one only if it is settled.
            return ()
        count, names = self._count_due(checkpoint, loop, known), self._find_names(checkpoint, loop)
        set_anew = names & {_find_root(name) for name in self.earlier.here.changed}
        if set_anew and not known.iterations:
            # Their values in earlier iterations are not known.
            return (1,) if count and self._is_missing(checkpoint, loop, known, 1) else ()
        if any(find_author(self.record, name).startswith(BY_CHILD) for name in set_anew):
            # The newest result has its answer, and the iteration of the next result is the next.
            is_settled = not names & {_find_root(name) for name in known.since}
            number = len(known.iterations) + 1
            return (number,) if not is_settled and number <= count and self._applies_in(checkpoint, loop, known, number) else ()
        return tuple(number for number in range(1, 1 + count) if self._is_missing(checkpoint, loop, known, number))

    def _find_loop_answers(self, checkpoint: Checkpoint) -> LoopAnswers:
        known, newest = self.record.here.in_loops.get(checkpoint.id), self.record.find_answer(checkpoint.id)
        if known is None and newest is not None:
            # Records of earlier versions have only the newest answer.
            return LoopAnswers(tuple(range(1, newest.iteration + 1)))
        return known or LoopAnswers()

    def _find_names(self, checkpoint: Checkpoint, loop: Loop) -> set[str]:
        """The variables of its condition, without that of the loop."""
        steps = find_naming_steps(self.activity, checkpoint.id)
        conditions = (checkpoint.condition, *(step.condition for step in steps))
        names = {_find_root(name) for condition in conditions if condition for name in list_variables(condition)}
        return names - {loop.variable or ""}

    def _list_due_after(self, loop: Loop, running: LoopIteration) -> Iterator[int]:
        """The current iteration of a loop that is entered by moves, and the items that would be left out."""
        yield running.iteration
        if loop.type == "forEach" and has_next_iteration(loop, running, collect_values(self.workflow, self.record)):
            yield from range(running.iteration + 1, 1 + min(len(running.items or ()), loop.max_iterations))

    def _count_due(self, checkpoint: Checkpoint, loop: Loop, known: LoopAnswers) -> int:
        """How many iterations are due in a loop that the agent goes through by itself."""
        values = collect_values(self.workflow, self.record)
        steps = find_naming_steps(self.activity, checkpoint.id)
        done, any_done = (max(self.reported.get(step.id, 0) for step in each) for each in (steps, loop.steps))
        items = find_due_items(loop, self.record, values) if loop.type == "forEach" else None
        # A list that was shortened or removed after the checkpoint was asked is still as long as it was then.
        total = max(len(items or ()), known.total)
        stopped = loop.break_condition is not None and holds(loop.break_condition, values) is True
        if (items is not None or total) and not stopped:
            return min(total, loop.max_iterations)
        ran = any_done > 0 or bool(total) or stopped or self._may_begin(loop, values)
        return max(int(ran), done if checkpoint.condition is None or total else 0)

    def _may_begin(self, loop: Loop, values: Mapping[str, Any]) -> bool:
        """Whether the loop is not known to have no iteration, or was certain before the call to have a first."""
        if has_first_iteration(loop, self.record, values) is not False:
            return True
        if self.earlier is self.record:
            return False
        before = collect_values(self.workflow, self.earlier)
        before = self._set_by_actions(before, self.activity.steps, _list_later_names(self.earlier))
        return has_first_iteration(loop, self.earlier, before) is True

    def _is_missing(self, checkpoint: Checkpoint, loop: Loop, known: LoopAnswers, number: int) -> bool:
        return number not in known.iterations and self._applies_in(checkpoint, loop, known, number)

    def _applies_in(self, checkpoint: Checkpoint, loop: Loop, known: LoopAnswers, number: int) -> bool:
        """Whether it may apply in an iteration now, or with the values of an earlier question of the loop, or was certain to
        apply before the call that leaves.
        """
        instance = CheckpointInstance(checkpoint.id, self.activity.id, self.record.visit, number)
        is_running, settled = self.record.here.running is not None, _list_settled_names(self.record)
        # What the actions of a loop set after the checkpoint holds when the next iteration comes to it.
        repeated = loop.steps if number > 1 and not is_running else ()
        now = collect_instance_values(self.workflow, self.record, instance)
        if self._evaluate(checkpoint, self._set_by_actions(now, repeated, {*settled, *known.since})) is not False:
            return True
        for values in list_values_at_questions(self.workflow, self.record, instance):
            if self._evaluate(checkpoint, self._set_by_actions(values, repeated, settled)) is not False:
                return True
        return self._applied_before(checkpoint, instance, repeated)


def _list_settled_names(record: Record) -> set[str]:
    """The variables that answers have set."""
    return {name for name, author in record.set_by.items() if author.startswith(BY_ANSWER)}


def _list_later_names(record: Record) -> set[str]:
    """The variables that were set in this visit, other than by actions: they may have been set after any step."""
    return {name for name in record.here.changed if not record.set_by.get(name, "").startswith(BY_STEP)}


def _find_root(name: str) -> str:
    return name.partition(".")[0]
