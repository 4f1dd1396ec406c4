"""Check the manifests that an agent reports against the definition.

A truthful manifest gets no warning. A step that is optional, repeated in a loop, or whose condition was not certain to hold
when it was due may be present or absent. Each problem gets one sentence: a step out of order does not make the following steps
wrong.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.definitions.conditions import holds
from fidelio.engine import phrases
from fidelio.engine.checkpoints import find_checkpoint, find_unattached_checkpoints
from fidelio.engine.iterations import StepReport, find_stray_iterations, item_key
from fidelio.engine.loops import check_loops
from fidelio.engine.record import EventDraft, fold_drafts
from fidelio.engine.scope import collect_reported_values
from fidelio.engine.state import Problem, Record, Refusal
from fidelio.engine.transition_events import matches_any_transition
from fidelio.engine.variables import (
    draft_step_variables,
    find_unset_variables,
    is_blank,
    suggest_report,
    was_set_before,
    was_settled_before,
)

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Step, Workflow

__all__ = [
    "MAX_ENTRIES",
    "MAX_OUTPUT_LENGTH",
    "ActivityReport",
    "StepReport",
    "check_activity_manifest",
    "check_manifest_size",
    "check_step_manifest",
    "check_unasked_checkpoints",
    "draft_reported_steps",
    "encode_manifest",
    "is_blank",
]

# An event stores the beginning of an output, enough to recognise it; of all outputs of a manifest so many characters.
MAX_OUTPUT_LENGTH = 500
MAX_OUTPUTS_LENGTH = 250_000
MAX_ITEM_LENGTH = 200
MAX_MANIFEST_LENGTH = 5_000_000
# Large enough for a loop over several hundred items: an entry is needed for each step of each iteration.
MAX_ENTRIES = 2_000
MAX_PROBLEMS = 50


class ActivityReport(msgspec.Struct, frozen=True):
    """An entry of an activity manifest."""

    activity_id: str
    outcome: str
    transition_condition: str | None = None


def check_step_manifest(
    workflow: Workflow,
    record: Record,
    manifest: Sequence[StepReport] | None,
    *,
    leaving: bool = True,
    per_iteration: bool = True,
    inward: bool = False,
) -> list[Problem]:
    """The problems of the manifest of the current activity. Steps can be missing only if the activity is left (`leaving`).

    `per_iteration`: checkpoints of loops are asked in every iteration, and not all when the activity is entered. `inward`:
    the next activity of a running loop is entered.
    """
    activity = workflow.activity(record.activity)
    if activity is None or not (activity.steps or activity.loops):
        return []
    if manifest is None:
        needed = _find_required_steps(workflow, record, activity) if leaving else []
        lacking = [Problem("no-manifest", phrases.no_manifest(activity.id))] if needed else []
        return [*lacking, *(check_loops(workflow, record, (), inward=inward) if leaving else ())]
    return [
        *(_find_missing(_find_required_steps(workflow, record, activity), manifest) if leaving else ()),
        *(_find_undecided(workflow, record, activity, manifest) if leaving else ()),
        *_find_unexpected(activity, manifest),
        *_find_repeated(activity, manifest),
        *_find_out_of_order(activity, manifest),
        *_find_empty(manifest),
        *find_stray_iterations(activity, manifest),
        *(check_loops(workflow, record, manifest, inward=inward) if leaving else ()),
        *_find_unanswered(workflow, record, activity, manifest),
        *(_find_missing_iterations(record, activity, manifest) if per_iteration else ()),
    ]


def _find_required_steps(workflow: Workflow, record: Record, activity: Activity) -> list[str]:
    # Steps that were completed by single moves are recorded and need not be reported again.
    done = record.here.done
    return [step.id for step in _find_certain_steps(workflow, record, activity) if step.id not in done]


def check_unasked_checkpoints(workflow: Workflow, record: Record) -> list[Problem]:
    """The required checkpoints of the activity that is left which no step names and which were not answered in this visit.

    They are doubts: the definition does not say when to ask them, so at the level `advise` the agent decides.
    """
    activity = workflow.activity(record.activity)
    if activity is None or record.forced or not activity.checkpoints:
        return []
    values = collect_reported_values(workflow, record)
    return [
        Problem(
            "unasked", phrases.checkpoint_not_presented(free.id), f"Call yield_checkpoint with '{free.id}' first.", doubt=True
        )
        for free in find_unattached_checkpoints(activity)
        if free.required and not record.find_answer(free.id) and holds(free.condition, values, reported_only=True)
    ]


def draft_reported_steps(workflow: Workflow, record: Record, manifest: Sequence[StepReport]) -> list[EventDraft]:
    """The variables that the `set` actions of the reported steps set: each step once, in the order of the report.

    Variables that the agent reported in this visit, or that an answer may have set after the step, are not overwritten.
    """
    activity = workflow.activity(record.activity)
    if activity is None:
        return []
    steps = activity.all_steps
    with_actions = {
        step.id: (number, step) for number, step in enumerate(steps) if step.actions and step.id not in record.here.done
    }
    drafts: list[EventDraft] = []
    for name in dict.fromkeys(entry.step_id for entry in manifest if entry.step_id in with_actions) if with_actions else ():
        number, step = with_actions[name]
        new = draft_step_variables(workflow, record, step, exclude=_find_later_changes(number, record, activity))
        drafts, record = drafts + new, fold_drafts(record, new, 0)
    return drafts


def _find_later_changes(number: int, record: Record, activity: Activity) -> set[str]:
    """The variables that may have been set after the step was due, other than by the actions of a step."""
    authors = {name: record.set_by.get(name, "") for name in record.here.changed}
    return {name for name, by in authors.items() if not by.startswith("step:") and not was_set_before(number, by, activity)}


def check_activity_manifest(workflow: Workflow, manifest: Sequence[ActivityReport] | None) -> list[Problem]:
    """The problems of an activity manifest. They are warnings at every level, because the record is the better source."""
    if manifest is None:
        return []
    if not manifest:
        return [Problem("activity-manifest", phrases.EMPTY_ACTIVITY_MANIFEST, advisory=True)]
    return list(islice((problem for entry in manifest for problem in _check_activity_report(workflow, entry)), MAX_PROBLEMS))


def check_manifest_size(manifest: Sequence[StepReport]) -> Refusal | None:
    """Refuse a manifest that is too large to be read, at every level."""
    length = sum(len(entry.output) for entry in manifest)
    if length <= MAX_MANIFEST_LENGTH:
        return None
    sentence = f"The outputs of step_manifest have {length} characters; together they have at most {MAX_MANIFEST_LENGTH}."
    return Refusal("manifest.too-large", sentence, "Say in a sentence what came of each step.")


def encode_manifest(manifest: Iterable[StepReport]) -> list[dict[str, Any]]:
    """The manifest as it is stored in an event: bounded in number and length of its entries."""
    entries = list(manifest)[:MAX_ENTRIES]
    limit = min(MAX_OUTPUT_LENGTH, MAX_OUTPUTS_LENGTH // max(1, len(entries)))
    return [_encode_entry(entry, limit) for entry in entries]


def _encode_entry(entry: StepReport, limit: int) -> dict[str, Any]:
    encoded: dict[str, Any] = {"step_id": entry.step_id[:200], "output": entry.output[:limit]}
    if entry.iteration is not None:
        encoded["iteration"] = entry.iteration
    text = item_key(entry.item) if entry.item is not msgspec.UNSET else ""
    return {**encoded, "item": json.loads(text)} if 0 < len(text) <= MAX_ITEM_LENGTH else encoded


def _find_certain_steps(workflow: Workflow, record: Record, activity: Activity) -> Iterable[Step]:
    """The steps that had to be done: required, and their condition was certain to hold when they were due."""
    values = collect_reported_values(workflow, record)
    for number, step in enumerate(_find_due_steps(record, activity)):
        if not step.required:
            continue
        if step.condition is None or (
            holds(step.condition, values, reported_only=True) and was_settled_before(number, step.condition, record, activity)
        ):
            yield step


def _find_due_steps(record: Record, activity: Activity) -> Sequence[Step]:
    """The steps that become due: all, or those before the checkpoint whose answer leads to another activity."""
    if not record.forced:
        return activity.steps
    redirecting = [answer.checkpoint for answer in record.answers if answer.effect.get("transitionTo")]
    until = next((number for number, step in enumerate(activity.steps) if step.checkpoint in redirecting), 0)
    return activity.steps[:until]


def _find_unanswered(
    workflow: Workflow, record: Record, activity: Activity, manifest: Sequence[StepReport]
) -> Iterable[Problem]:
    """Reported steps whose checkpoint was not answered.

    It is a doubt if the condition of the checkpoint may not have held when the step was due.
    """
    steps = enumerate(activity.all_steps)
    with_checkpoint = [(number, step, step.checkpoint) for number, step in steps if step.checkpoint]
    done = {entry.step_id for entry in manifest} if with_checkpoint else set()
    for number, step, checkpoint_id in with_checkpoint:
        checkpoint = find_checkpoint(activity, checkpoint_id) if step.id in done else None
        if checkpoint is None or not checkpoint.required or record.find_answer(checkpoint.id) is not None:
            continue
        condition = checkpoint.condition
        truth = holds(condition, collect_reported_values(workflow, record), reported_only=True)
        if truth is not False:
            doubt = condition is not None and (truth is None or not was_settled_before(number, condition, record, activity))
            yield Problem(
                "unasked", phrases.checkpoint_unanswered(step.id, checkpoint.id), "Yield the checkpoint first.", doubt=doubt
            )


def _find_undecided(
    workflow: Workflow, record: Record, activity: Activity, manifest: Sequence[StepReport]
) -> Iterable[Problem]:
    """Steps that were not reported and whose condition depends on unset variables. They are doubts."""
    values, done = collect_reported_values(workflow, record), {*record.here.done, *(entry.step_id for entry in manifest)}
    for step in _find_due_steps(record, activity):
        if not step.required or step.id in done or holds(step.condition, values, reported_only=True) is not None:
            continue
        names = find_unset_variables([step.condition] if step.condition else [], workflow, record)
        yield Problem("not-known", phrases.step_undecided(step.id, names), suggest_report(workflow, names), doubt=True)


def _find_missing_iterations(record: Record, activity: Activity, manifest: Sequence[StepReport]) -> Iterable[Problem]:
    """Steps of loops that are reported more often than their checkpoint, which has no condition, was answered."""
    for step in activity.loop_steps:
        answer = record.find_answer(step.checkpoint) if step.checkpoint else None
        checkpoint = find_checkpoint(activity, answer.checkpoint) if answer is not None and answer.iteration else None
        if answer is None or checkpoint is None or not checkpoint.required or checkpoint.condition is not None:
            continue
        times = sum(entry.step_id == step.id for entry in manifest)
        if times > answer.iteration:
            sentence = phrases.too_few_checkpoint_answers(step.id, checkpoint.id, times, answer.iteration)
            yield Problem("unasked", sentence, "Yield the checkpoint in every iteration.")


def _find_missing(needed: Sequence[str], manifest: Sequence[StepReport]) -> list[Problem]:
    reported = {entry.step_id for entry in manifest}
    missing = [step for step in needed if step not in reported]
    return [Problem("missing-steps", phrases.missing_steps(missing))] if missing else []


def _find_unexpected(activity: Activity, manifest: Sequence[StepReport]) -> list[Problem]:
    known = {step.id for step in activity.all_steps}
    unknown = [entry.step_id for entry in manifest if entry.step_id not in known]
    return [Problem("unexpected-steps", phrases.unexpected_steps(dict.fromkeys(unknown)))] if unknown else []


def _find_repeated(activity: Activity, manifest: Sequence[StepReport]) -> list[Problem]:
    declared, in_loops = Counter(step.id for step in activity.steps), {step.id for step in activity.loop_steps}
    counts = Counter(entry.step_id for entry in manifest)
    twice = [step for step, count in counts.items() if 0 < declared[step] < count and step not in in_loops]
    return [Problem("repeated-steps", phrases.repeated_steps(twice))] if twice else []


def _find_out_of_order(activity: Activity, manifest: Sequence[StepReport]) -> list[Problem]:
    order = {name: number for number, name in enumerate(dict.fromkeys(step.id for step in activity.steps))}
    reported = [step for step in dict.fromkeys(entry.step_id for entry in manifest) if step in order]
    numbers = [order[step] for step in reported]
    if numbers == sorted(numbers):
        return []
    in_order = _find_longest_increasing_subsequence(numbers)
    return [Problem("step-order", phrases.order_mismatch([step for step in reported if order[step] not in in_order]))]


def _find_longest_increasing_subsequence(numbers: Sequence[int]) -> set[int]:
    """The members of a longest increasing subsequence: the other numbers are the fewest that are out of order."""
    tails: list[int] = []
    chain: dict[int, int | None] = {}
    for number in numbers:
        index = bisect_left(tails, number)
        chain[number] = tails[index - 1] if index else None
        tails[index : index + 1] = [number]
    members, current = set[int](), tails[-1] if tails else None
    while current is not None:
        members.add(current)
        current = chain[current]
    return members


def _find_empty(manifest: Sequence[StepReport]) -> list[Problem]:
    empty = [entry.step_id for entry in manifest if is_blank(entry.output)]
    return [Problem("empty-output", phrases.empty_output(dict.fromkeys(empty)))] if empty else []


def _check_activity_report(workflow: Workflow, entry: ActivityReport) -> Iterable[Problem]:
    activity = workflow.activity(entry.activity_id)
    if activity is None and entry.activity_id not in workflow.broken:
        yield Problem("activity-manifest", phrases.unknown_activity(entry.activity_id), advisory=True)
    if is_blank(entry.outcome):
        yield Problem("activity-manifest", phrases.empty_outcome(entry.activity_id), advisory=True)
    if activity is not None and entry.transition_condition and not matches_any_transition(entry.transition_condition, activity):
        yield Problem(
            "activity-manifest", phrases.unknown_condition_claim(entry.activity_id, entry.transition_condition), advisory=True
        )
