"""What an agent says it did, compared with what the definition asked for.

Honest work gets no warning. A step that is optional, repeated in a loop, or whose condition was not certain to hold when its
turn came may be there or be absent. Each real problem gets one sentence: one step out of place does not accuse all that follow.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from fidelio.definitions.conditions import holds
from fidelio.engine import phrases
from fidelio.engine.checkpoints import find_checkpoint, unattached
from fidelio.engine.claims import fits_any
from fidelio.engine.problems import Problem
from fidelio.engine.record import BY_ANSWER, Draft, foreseen
from fidelio.engine.scope import told
from fidelio.engine.state import Record
from fidelio.engine.variables import report_these, set_by_step, variables_in, without_value

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Condition, Step, Workflow

# An event keeps enough of an output to recognise it; the whole is the agent's to keep.
LONGEST_OUTPUT = 500
MOST_ENTRIES = 1_000
MOST_PROBLEMS = 50


class StepDone(msgspec.Struct, frozen=True):
    """One entry of a step manifest."""

    step_id: str
    output: str


class ActivityDone(msgspec.Struct, frozen=True):
    """One entry of an activity manifest."""

    activity_id: str
    outcome: str
    transition_condition: str | None = None


def check_steps(
    workflow: Workflow, record: Record, manifest: Sequence[StepDone] | None, *, leaving: bool = True, per_pass: bool = True
) -> list[Problem]:
    """What is wrong with the manifest of the current activity. When it is not being left, nothing can be missing.

    `per_pass`: the questions of loops are asked in every pass, and not all at the door.
    """
    activity = workflow.activity(record.activity)
    if activity is None or not (activity.steps or activity.loops):
        return []
    if manifest is None:
        needed = _needed(workflow, record, activity) if leaving else []
        return [Problem("no-manifest", phrases.no_manifest(activity.id))] if needed else []
    # The usual case: every step, once, in order.
    complete = [entry.step_id for entry in manifest] == [step.id for step in activity.steps]
    return [
        *([] if complete else _compared(workflow, record, activity, manifest, leaving=leaving)),
        *_empty(manifest),
        *_unasked(workflow, record, activity, manifest),
        *(_asked_less(record, activity, manifest) if per_pass and activity.loops else ()),
    ]


def _compared(
    workflow: Workflow, record: Record, activity: Activity, manifest: Sequence[StepDone], *, leaving: bool
) -> list[Problem]:
    return [
        *(_missing(_needed(workflow, record, activity), manifest) if leaving else ()),
        *(_not_known(workflow, record, activity, manifest) if leaving else ()),
        *_unexpected(activity, manifest),
        *_repeated(activity, manifest),
        *_out_of_order(activity, manifest),
    ]


def _needed(workflow: Workflow, record: Record, activity: Activity) -> list[str]:
    # What was completed move by move is on record already; nobody has to report it again.
    done = record.here.done
    return [step.id for step in _certain(workflow, record, activity) if step.id not in done]


def check_questions(workflow: Workflow, record: Record) -> list[Problem]:
    """The required questions of an activity that is left which no step names and nobody has asked in this visit.

    A doubt: when they are to be asked is not written down, so an agent that is only advised may know better.
    """
    activity = workflow.activity(record.activity)
    if activity is None or record.forced or not activity.checkpoints:
        return []
    values = told(workflow, record)
    return [
        Problem("unasked", phrases.never_asked(free.id), f"Call yield_checkpoint with '{free.id}' first.", doubt=True)
        for free in unattached(activity)
        if free.required and not record.answer_to(free.id) and holds(free.condition, values, told=True)
    ]


def done_by_steps(workflow: Workflow, record: Record, manifest: Sequence[StepDone]) -> list[Draft]:
    """What the steps of the current activity set that are reported as done: each once, in the order of the report.

    What an agent has reported in this visit stays, and so does an answer that may have come after the step.
    """
    activity = workflow.activity(record.activity)
    if activity is None:
        return []
    own = (*activity.steps, *_loop_steps(activity))
    acting = {step.id: (number, step) for number, step in enumerate(own) if step.actions and step.id not in record.here.done}
    drafts: list[Draft] = []
    for name in dict.fromkeys(entry.step_id for entry in manifest if entry.step_id in acting) if acting else ():
        number, step = acting[name]
        new = set_by_step(workflow, record, step, but_not=_set_since(number, record, activity))
        drafts, record = drafts + new, foreseen(record, new, 0)
    return drafts


def _set_since(number: int, record: Record, activity: Activity) -> set[str]:
    """What may have been set after the step's turn, by somebody who did not just do a step."""
    authors = {name: record.set_by.get(name, "") for name in record.here.changed}
    return {name for name, by in authors.items() if not by.startswith("step:") and not _known_at(number, by, activity)}


def check_activities(workflow: Workflow, manifest: Sequence[ActivityDone] | None) -> list[Problem]:
    """What is wrong with an activity manifest. Advisory at every level: it repeats what the record knows better."""
    if manifest is None:
        return []
    if not manifest:
        return [Problem("activity-manifest", phrases.EMPTY_ACTIVITY_MANIFEST, advisory=True)]
    return list(islice((problem for entry in manifest for problem in _about(workflow, entry)), MOST_PROBLEMS))


def for_event(manifest: Iterable[StepDone]) -> list[dict[str, str]]:
    """The manifest as an event keeps it: bounded, whatever an agent sends."""
    entries = list(manifest)[:MOST_ENTRIES]
    return [{"step_id": entry.step_id[:200], "output": entry.output[:LONGEST_OUTPUT]} for entry in entries]


def _certain(workflow: Workflow, record: Record, activity: Activity) -> Iterable[Step]:
    """The steps that had to be done: required, and certain to apply when their turn came."""
    values = told(workflow, record)
    for number, step in enumerate(_due(record, activity)):
        if not step.required:
            continue
        if step.condition is None or (
            holds(step.condition, values, told=True) and settled_before(number, step.condition, record, activity)
        ):
            yield step


def _due(record: Record, activity: Activity) -> Sequence[Step]:
    """The steps whose turn comes: all of them, or those before an answer that leads elsewhere."""
    if not record.forced:
        return activity.steps
    leading = [answer.checkpoint for answer in record.answers if answer.effect.get("transitionTo")]
    until = next((number for number, step in enumerate(activity.steps) if step.checkpoint in leading), 0)
    return activity.steps[:until]


def settled_before(number: int, condition: Condition, record: Record, activity: Activity) -> bool:
    """Whether everything the condition looks at had its present value already when the step's turn came."""
    names = {name.partition(".")[0] for name in variables_in(condition)}
    recent = [name for name in record.here.changed if name in names or name.partition(".")[0] in names]
    return all(_known_at(number, record.set_by.get(name, ""), activity) for name in recent)


def _known_at(number: int, author: str, activity: Activity) -> bool:
    if author == f"entry:{activity.id}":
        return True
    own = f"{BY_ANSWER}{activity.id}/"
    if not author.startswith(own):
        return False
    checkpoint = author.removeprefix(own).rpartition("/")[0]
    return any(step.checkpoint == checkpoint for step in activity.steps[: number + 1])


def _unasked(workflow: Workflow, record: Record, activity: Activity, manifest: Sequence[StepDone]) -> Iterable[Problem]:
    """Steps that come after a question which nobody has answered.

    A doubt where the question may not have applied when its turn came: an agent that is only advised may know.
    """
    own = enumerate((*activity.steps, *_loop_steps(activity)))
    asking = [(number, step, step.checkpoint) for number, step in own if step.checkpoint]
    done = {entry.step_id for entry in manifest} if asking else set()
    for number, step, asked in asking:
        checkpoint = find_checkpoint(activity, asked) if step.id in done else None
        if checkpoint is None or not checkpoint.required or record.answer_to(checkpoint.id) is not None:
            continue
        condition = checkpoint.condition
        truth = holds(condition, told(workflow, record), told=True)
        if truth is not False:
            doubt = condition is not None and (truth is None or not settled_before(number, condition, record, activity))
            yield Problem("unasked", phrases.unasked(step.id, checkpoint.id), "Yield the checkpoint first.", doubt=doubt)


def _not_known(workflow: Workflow, record: Record, activity: Activity, manifest: Sequence[StepDone]) -> Iterable[Problem]:
    """Steps that were left out, where nobody has said whether they apply. A doubt: who is only advised may know."""
    values, done = told(workflow, record), {*record.here.done, *(entry.step_id for entry in manifest)}
    for step in _due(record, activity):
        if not step.required or step.id in done or holds(step.condition, values, told=True) is not None:
            continue
        names = without_value([step.condition] if step.condition else [], workflow, record)
        yield Problem("not-known", phrases.step_not_known(step.id, names), report_these(workflow, names), doubt=True)


def _asked_less(record: Record, activity: Activity, manifest: Sequence[StepDone]) -> Iterable[Problem]:
    """Steps of loops that were done more often than their question was asked; one with a condition may not apply each time."""
    for step in _loop_steps(activity):
        answer = record.answer_to(step.checkpoint) if step.checkpoint else None
        checkpoint = find_checkpoint(activity, answer.checkpoint) if answer is not None and answer.iteration else None
        if answer is None or checkpoint is None or not checkpoint.required or checkpoint.condition is not None:
            continue
        times = sum(entry.step_id == step.id for entry in manifest)
        if times > answer.iteration:
            sentence = phrases.asked_less(step.id, checkpoint.id, times, answer.iteration)
            yield Problem("unasked", sentence, "Yield the checkpoint in every pass.")


def _missing(needed: Sequence[str], manifest: Sequence[StepDone]) -> list[Problem]:
    there = {entry.step_id for entry in manifest}
    missing = [step for step in needed if step not in there]
    return [Problem("missing-steps", phrases.missing_steps(missing))] if missing else []


def _unexpected(activity: Activity, manifest: Sequence[StepDone]) -> list[Problem]:
    known = {step.id for step in (*activity.steps, *_loop_steps(activity))}
    strange = [entry.step_id for entry in manifest if entry.step_id not in known]
    return [Problem("unexpected-steps", phrases.unexpected_steps(dict.fromkeys(strange)))] if strange else []


def _repeated(activity: Activity, manifest: Sequence[StepDone]) -> list[Problem]:
    once = {step.id for step in activity.steps} - {step.id for step in _loop_steps(activity)}
    counts = Counter(entry.step_id for entry in manifest)
    twice = [step for step, count in counts.items() if count > 1 and step in once]
    return [Problem("repeated-steps", phrases.repeated_steps(twice))] if twice else []


def _out_of_order(activity: Activity, manifest: Sequence[StepDone]) -> list[Problem]:
    order = {step.id: number for number, step in enumerate(activity.steps)}
    reported = [step for step in dict.fromkeys(entry.step_id for entry in manifest) if step in order]
    numbers = [order[step] for step in reported]
    if numbers == sorted(numbers):
        return []
    kept = _longest_rise(numbers)
    return [Problem("step-order", phrases.order_mismatch([step for step in reported if order[step] not in kept]))]


def _longest_rise(numbers: Sequence[int]) -> set[int]:
    """A longest increasing subsequence: what is outside it is the least that has to be moved."""
    tails: list[int] = []
    chain: dict[int, int | None] = {}
    for number in numbers:
        place = bisect_left(tails, number)
        chain[number] = tails[place - 1] if place else None
        tails[place : place + 1] = [number]
    kept, current = set[int](), tails[-1] if tails else None
    while current is not None:
        kept.add(current)
        current = chain[current]
    return kept


def _empty(manifest: Sequence[StepDone]) -> list[Problem]:
    empty = [entry.step_id for entry in manifest if not entry.output.strip()]
    return [Problem("empty-output", phrases.empty_output(dict.fromkeys(empty)))] if empty else []


def _loop_steps(activity: Activity) -> Iterable[Step]:
    return (step for loop in activity.loops for step in loop.steps)


def _about(workflow: Workflow, entry: ActivityDone) -> Iterable[Problem]:
    activity = workflow.activity(entry.activity_id)
    if activity is None and entry.activity_id not in workflow.broken:
        yield Problem("activity-manifest", phrases.unknown_activity(entry.activity_id), advisory=True)
    if not entry.outcome.strip():
        yield Problem("activity-manifest", phrases.empty_outcome(entry.activity_id), advisory=True)
    if activity is not None and entry.transition_condition and not fits_any(entry.transition_condition, activity):
        yield Problem("activity-manifest", phrases.unknown_claim(entry.activity_id, entry.transition_condition), advisory=True)
