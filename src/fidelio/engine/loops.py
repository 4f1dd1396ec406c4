"""Loops as work: the iterations that are due when an activity is left, and those that a manifest lacks.

The list that the record knew counts, and each of its items is an iteration, up to the maximum. A loop with a condition is due
until a recorded variable ends it. A break condition ends both. An entry belongs to an iteration by its number or by its item;
an entry with neither, as older agents send it, counts for the next iteration in which its step is not reported. Iterations that
single moves have carried out are on record and need not be reported again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from fidelio.definitions.conditions import holds
from fidelio.engine import phrases
from fidelio.engine.due_iterations import find_author, find_due_items, has_first_iteration, has_next_iteration
from fidelio.engine.iterations import (
    MAX_GROUPS,
    MissingIteration,
    StepReport,
    describe_groups,
    has_item,
    item_key,
    shorten_item,
    suggest_entry,
)
from fidelio.engine.record import BY_ANSWER, LOOP_ADVANCED, EventDraft, fold_drafts
from fidelio.engine.scope import collect_reported_values, collect_values, find_loop_items, find_skipped_activities
from fidelio.engine.state import Problem, Record
from fidelio.engine.transitions import find_next_loop_activity
from fidelio.engine.variables import find_unset_variables, suggest_report, was_settled_before

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Condition, Loop, Step, Workflow

# A report names so many iterations of a loop.
MAX_MISSING = 10_000
# The iterations of an item, by the text of the item.
_Numbers = dict[str, dict[int, None]]


def assign_iterations(workflow: Workflow, record: Record, manifest: Sequence[StepReport]) -> list[StepReport]:
    """The manifest in which entries that name an item have the number of its iteration, where the record knows it.

    Of equal items each entry of a step takes the next one.
    """
    loops = {step.id: loop for loop in _list_loops(workflow, record) for step in loop.loop.steps}
    if not loops:
        return list(manifest)
    taken = {(entry.step_id, entry.iteration) for entry in manifest}
    result = list[StepReport]()
    for entry in manifest:
        loop = loops.get(entry.step_id) if entry.iteration is None and has_item(entry) else None
        numbers = loop.find_numbers(entry.item) if loop is not None else ()
        free = next((number for number in numbers if (entry.step_id, number) not in taken), None)
        # A second entry for an item is doubled, not foreign: it gets the number that it repeats.
        number = free or next(iter(numbers), None)
        taken.add((entry.step_id, number))
        result.append(entry if number is None else replace(entry, iteration=number))
    return result


def find_missing_iterations(workflow: Workflow, record: Record, manifest: Sequence[StepReport]) -> Iterator[MissingIteration]:
    """The iterations of the loops of the current activity that were due and lack a required step."""
    assigned = assign_iterations(workflow, record, manifest)
    for loop in _list_loops(workflow, record):
        yield from loop.find_missing(loop.collect_entries(assigned))


def list_left_out(workflow: Workflow, record: Record) -> list[tuple[str, int]]:
    """The loops of the current activity with more items than their maximum, and how many exceed it."""
    counts = [(loop.loop.id, len(loop.items or ()) - loop.loop.max_iterations) for loop in _list_loops(workflow, record)]
    return [(name, count) for name, count in counts if count > 0]


def check_loops(workflow: Workflow, record: Record, manifest: Sequence[StepReport], *, inward: bool = False) -> list[Problem]:
    """The problems of the loops of the activity that is left: a sentence for each loop with what is missing.

    `inward`: the next activity of the running loop is entered. Then the loops before it and the steps of its iteration have to
    be done.
    """
    loops, running = _list_loops(workflow, record), record.here.running
    assigned = assign_iterations(workflow, record, manifest) if loops else []
    if running is None or not inward:
        return [problem for loop in loops for problem in loop.check(loop.collect_entries(assigned))]
    *before, current = loops[: [loop.loop.id for loop in loops].index(running.loop) + 1]
    missing = [
        found for found in current.find_missing(current.collect_entries(assigned)) if found.iteration <= running.iteration
    ]
    unfinished = [replace(found, activities=()) for found in missing if found.steps]
    problems = [problem for loop in before for problem in loop.check(loop.collect_entries(assigned))]
    return [*problems, *current.describe_missing(unfinished)]


def enters_loop_activity(workflow: Workflow, record: Record, target: str) -> bool:
    """Whether the target is the next activity of the running loop."""
    following = find_next_loop_activity(workflow, record, record.here)
    return following is not None and following[0] == target


def draft_loop_entry(workflow: Workflow, record: Record, target: str, manifest: Sequence[StepReport] = ()) -> list[EventDraft]:
    """The iteration that a move into the first activity of a loop begins, if no single move has begun it.

    Without it an agent could leave a loop through one of its activities.
    """
    loops = _list_loops(workflow, record)
    if find_next_loop_activity(workflow, record, record.here) is not None:
        return []
    assigned = assign_iterations(workflow, record, manifest) if loops else []
    finished = list(record.here.loops_over)
    for work in loops:
        if target in work.loop.activities and work.loop.id not in finished:
            drafts = work.draft_next_iteration(finished)
            return drafts if enters_loop_activity(workflow, fold_drafts(record, drafts, 0), target) else []
        finished += [work.loop.id] if not any(work.find_missing(work.collect_entries(assigned))) else []
    return []


class _Entries(msgspec.Struct, frozen=True):
    """The entries of a loop: how often each step is reported for each iteration, and what could not be assigned."""

    counts: Counter[tuple[str, int]]
    named: int  # the highest iteration that an entry names
    foreign_items: tuple[str, ...]
    contradictions: tuple[str, ...]

    @property
    def highest(self) -> int:
        return max((iteration for _, iteration in self.counts), default=0)


class _Due(msgspec.Struct, frozen=True):
    """How many iterations were due, and how many of them without default values. `undecided` may make more of them due."""

    count: int
    certain: int
    undecided: Condition | None = None


def _list_loops(workflow: Workflow, record: Record) -> list[_LoopWork]:
    """The loops of the current activity. After an answer that leads elsewhere none is due."""
    activity = workflow.activity(record.activity)
    if activity is None or record.forced or not activity.loops:
        return []
    values, reported = collect_values(workflow, record), collect_reported_values(workflow, record)
    return [
        _LoopWork(workflow, record, activity, loop, values, reported, *_find_items(record, loop, values))
        for loop in activity.loops
    ]


class _LoopWork(msgspec.Struct, frozen=True):
    """A loop of the current activity, its items if they are known, and the iterations of each item."""

    workflow: Workflow
    record: Record
    activity: Activity
    loop: Loop
    values: dict[str, Any]
    reported: dict[str, Any]
    items: tuple[Any, ...] | None
    numbers: _Numbers

    def find_numbers(self, item: Any) -> Collection[int]:
        return self.numbers.get(item_key(item), ())

    def collect_entries(self, manifest: Iterable[StepReport]) -> _Entries:
        """The entries of the steps of this loop, after their iterations are assigned."""
        steps, counts = {step.id for step in self.loop.steps}, Counter[tuple[str, int]]()
        foreign, contradictions, unnamed = list[str](), list[str](), list[str]()
        for entry in manifest:
            names_item = self.items is not None and has_item(entry) and (entry.item is not None or self.find_numbers(None))
            if entry.step_id not in steps:
                continue
            if entry.iteration is None and names_item:
                foreign.append(f"{entry.step_id}: {shorten_item(entry.item)}")
            elif entry.iteration is None:
                unnamed.append(entry.step_id)
            elif names_item and entry.iteration not in self.find_numbers(entry.item):
                contradictions.append(f"{entry.step_id} in {entry.iteration}: {shorten_item(entry.item)}")
            else:
                counts[entry.step_id, entry.iteration] += 1
        named = max((iteration for _, iteration in counts), default=0)
        self._count_unnamed(counts, unnamed)
        return _Entries(counts, named, tuple(foreign), tuple(contradictions))

    def check(self, entries: _Entries) -> Iterator[Problem]:
        yield from self.describe_missing(self.find_missing(entries))
        yield from self._check_range(entries)
        name, declared = self.loop.id, Counter(step.id for step in self.loop.steps)
        twice = [f"{step} in {iteration}" for (step, iteration), count in entries.counts.items() if count > declared[step]]
        if twice:
            yield Problem("repeated-steps", phrases.repeated_iterations(name, twice))
        if entries.foreign_items:
            yield Problem("wrong-iterations", phrases.foreign_items(name, entries.foreign_items))
        if entries.contradictions:
            yield Problem("wrong-iterations", phrases.item_of_other_iteration(name, entries.contradictions))
        if not self._is_over:
            yield from self._find_unknown(entries)

    def find_missing(self, entries: _Entries) -> Iterator[MissingIteration]:
        """The iterations that were due and lack a required step."""
        due = self._count_due(entries)
        for iteration in range(1, min(due.count, MAX_MISSING) + 1) if not self._is_over else ():
            lacking = [step for step in self.loop.steps if not self._is_done(step, iteration, entries)]
            steps = tuple(step.id for step in lacking if self._is_certain(step, iteration))
            activities = self._list_unvisited(iteration)
            if steps or activities:
                yield MissingIteration(self.loop.id, iteration, steps, activities, doubt=iteration > due.certain)

    def describe_missing(self, missing: Iterable[MissingIteration]) -> Iterator[Problem]:
        for doubt, group in groupby(missing, lambda found: found.doubt):
            found = list(group)
            sentence = phrases.missing_iterations(self.loop.id, describe_groups(found))
            yield Problem("missing-iterations", sentence, suggest_entry(found[0]), doubt=doubt)

    def draft_next_iteration(self, finished: Sequence[str]) -> list[EventDraft]:
        """The event that begins the next iteration, if it is certain that the loop has another."""
        running = self.record.here.running if self._begun else None
        more = (
            has_first_iteration(self.loop, self.record, self.values)
            if running is None
            else has_next_iteration(self.loop, running, self.values)
        )
        items = None if self.items is None else list(self.items[: self.loop.max_iterations])
        body = {
            "activity": self.activity.id,
            "loop": self.loop.id,
            "iteration": self._begun + 1,
            "items": items,
            "at": len(self.activity.steps),
            "loops_over": list(finished),
        }
        left_out = len(self.items or ()) - self.loop.max_iterations
        return [EventDraft(LOOP_ADVANCED, body | ({"left_out": left_out} if left_out > 0 else {}))] if more else []

    def _list_unvisited(self, iteration: int) -> tuple[str, ...]:
        """The activities of the loop that this iteration has not entered."""
        running, here = self.record.here.running, self.record.here
        if not self.loop.activities or iteration < self._begun:
            return ()
        reached = running.entered if running is not None and iteration == self._begun else 0
        excluded = {*find_skipped_activities(self.workflow, self.record), here.activity}
        names = self.loop.activities[reached:]
        return tuple(name for name in names if name not in excluded and self.workflow.activity(name) is not None)

    def _count_unnamed(self, counts: Counter[tuple[str, int]], steps: Sequence[str]) -> None:
        """Count entries without a number for the first iterations in which their steps are not reported."""
        following = dict[str, int]()
        for step in steps:
            number = following.get(step, max(1, self._begun))
            while counts[step, number]:
                number += 1
            following[step] = number + 1
            if number <= self._most:
                counts[step, number] += 1

    def _check_range(self, entries: _Entries) -> Iterator[Problem]:
        """Entries for iterations that the loop does not have. A mere default does not prove an agent wrong.

        An answer may have shortened the list after the iterations were done.
        """
        if find_author(self.record, self.loop.over or "").startswith(BY_ANSWER):
            return
        beyond = dict.fromkeys(str(iteration) for _, iteration in entries.counts if iteration > self._most)
        if beyond:
            is_reported = self.items is None or find_loop_items(self.loop, self.reported) is not None
            sentence = phrases.iterations_out_of_range(self.loop.id, self._most, beyond)
            yield Problem("wrong-iterations", sentence, doubt=not is_reported)

    def _find_unknown(self, entries: _Entries) -> Iterator[Problem]:
        """What has to be known before it can be said whether the loop is finished. These are doubts."""
        due, loop, names = self._count_due(entries), self.loop, list[str]()
        if loop.type == "forEach" and loop.over and self.items is None:
            names = [loop.over]
        elif due.undecided is not None:
            names = find_unset_variables([due.undecided], self.workflow, self.record)
        if names:
            remedy = suggest_report(self.workflow, names)
            yield Problem("not-known", phrases.loop_undecided(loop.id, names), remedy, doubt=True)
        for step in loop.steps:
            yield from self._find_undecided(step, due.count, entries)

    def _find_undecided(self, step: Step, count: int, entries: _Entries) -> Iterator[Problem]:
        """A step that was not reported for an iteration and whose condition depends on unset variables."""
        if not step.required or step.condition is None:
            return
        lacking = (number for number in range(1, count + 1) if not self._is_done(step, number, entries))
        truths = (holds(step.condition, self._scope(number), reported_only=True) for number in islice(lacking, MAX_GROUPS))
        if None in truths:
            names = find_unset_variables([step.condition], self.workflow, self.record)
            remedy = suggest_report(self.workflow, names)
            yield Problem("not-known", phrases.step_undecided(step.id, names), remedy, doubt=True)

    def _count_due(self, entries: _Entries) -> _Due:
        loop = self.loop
        reached = min(max(entries.highest, self._begun), loop.max_iterations)
        is_broken = loop.break_condition is not None and bool(
            holds(loop.break_condition, {**self.values, **self._item_value(max(reached, 1))})
        )
        if loop.type == "forEach":
            total = min(len(self.items or ()), loop.max_iterations)
            count = min(total, max(reached, 1)) if is_broken else total
            return _Due(count, count)
        begun = min(max(entries.named, self._begun), loop.max_iterations)
        if reached >= loop.max_iterations or (is_broken and reached):
            return _Due(reached, begun)
        return self._count_due_by_condition(reached, begun)

    def _count_due_by_condition(self, reached: int, begun: int) -> _Due:
        """A further iteration is due if the condition holds; the first iteration of a `doWhile` loop always is."""
        condition = self.loop.condition
        truth = holds(condition, self.values) if condition is not None else False
        reported = holds(condition, self.reported, reported_only=True) if condition is not None else None
        undecided = condition if truth is None else None
        if self.loop.type == "doWhile" and not reached:
            return _Due(1, 0 if reported is None else 1, undecided)
        # Entries without a number are no proof that an iteration was begun while it is unknown whether it was due.
        return _Due(reached + (truth is True), begun if reported is None else reached + (reported is True), undecided)

    @property
    def _most(self) -> int:
        """The number of iterations that the loop can have."""
        return self.loop.max_iterations if self.items is None else min(len(self.items), self.loop.max_iterations)

    @property
    def _is_over(self) -> bool:
        return self.loop.id in self.record.here.loops_over

    @property
    def _begun(self) -> int:
        """The iteration that single moves have reached."""
        running = self.record.here.running
        return running.iteration if running is not None and running.loop == self.loop.id else 0

    def _is_done(self, step: Step, iteration: int, entries: _Entries) -> bool:
        running = self.record.here.running
        if running is not None and iteration <= self._begun:
            behind = iteration < self._begun or step.id in [earlier.id for earlier in self.loop.steps[: running.at]]
            if behind or step.id in running.done:
                return True
        return entries.counts[step.id, iteration] > 0

    def _is_certain(self, step: Step, iteration: int) -> bool:
        """Whether the step had to be done: required, and its condition was certain to hold when it was due."""
        if not step.required or step.condition is None:
            return step.required
        is_settled = was_settled_before(len(self.activity.steps), step.condition, self.record, self.activity)
        return is_settled and holds(step.condition, self._scope(iteration), reported_only=True) is True

    def _scope(self, iteration: int) -> dict[str, Any]:
        return {**self.reported, **self._item_value(iteration)}

    def _item_value(self, iteration: int) -> dict[str, Any]:
        known = self.loop.variable and self.items and iteration <= len(self.items)
        return {self.loop.variable: self.items[iteration - 1]} if known and self.loop.variable and self.items else {}


def _find_items(record: Record, loop: Loop, values: Mapping[str, Any]) -> tuple[tuple[Any, ...] | None, _Numbers]:
    """The items of the loop, those that it began with before those that are due now; and the iterations of each item.

    An agent may have changed items of its list meanwhile, so an item of any of the lists names its iteration.
    """
    if loop.type != "forEach":
        return None, {}
    running, due = record.here.running, find_due_items(loop, record, values)
    began = running.items if running is not None and running.loop == loop.id else None
    items = due if began is None else began
    numbers: _Numbers = {}
    for known in (items, find_loop_items(loop, values), record.here.loop_items.get(loop.id)):
        for number, item in enumerate(known or (), start=1):
            numbers.setdefault(item_key(item), {})[number] = None
    return items, numbers
