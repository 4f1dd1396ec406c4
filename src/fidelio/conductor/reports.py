"""Worker reports: parse the manifest of a worker's last message, and turn it into events or into a list of problems.

    {"steps": [{"step_id": "write", "output": "Wrote the greeting."}], "variables": {"tone": "warm"}}

Agents put text, code fences and other objects around it, so the last object of the message that has `steps` counts.

In an activity that is done in segments, the steps are recorded one by one, with the workflows they start. A report that lacks a
step is rejected as a whole: the worker is told what is missing and reports again. A report with all its steps is accepted even
if variables or checkpoints are still open, so that a worker is not asked twice for the same step.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from fidelio.conductor import prompts
from fidelio.conductor.segments import ActivitySegment, find_decision_segment, list_current_steps, list_remaining_steps
from fidelio.engine import phrases
from fidelio.engine.answers import AnswerContext
from fidelio.engine.apply_move import MoveActor, MoveRequest, apply_move
from fidelio.engine.manifests import StepReport, check_step_manifest
from fidelio.engine.record import EventDraft, Record, fold_drafts
from fidelio.engine.state import Refusal
from fidelio.engine.triggers import TriggerMatch, find_fired_triggers
from fidelio.engine.variables import check_report, check_size, draft_report, find_unset_variables, suggest_report
from fidelio.errors import BadRecord
from fidelio.ledger.encoding import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelio.definitions.models import Workflow

MAX_MESSAGE_LENGTH = 1_000_000
# Decoding is tried at every opening brace; without this limit a message full of braces takes quadratic time.
MAX_DECODE_FAILURES = 2_000
NO_MANIFEST = "Your last message has no JSON object with the steps you did."
_OBJECT_START = re.compile(r'\{(?=\s*["}])')
_decode = json.JSONDecoder().raw_decode


class Manifest(msgspec.Struct, frozen=True):
    """The steps that a worker has done, and the variables that it has found out."""

    steps: tuple[StepReport, ...] = ()
    variables: Mapping[str, Any] = msgspec.field(default_factory=dict)


class _ManifestStep(msgspec.Struct):
    step_id: str
    output: Any = ""
    iteration: Annotated[int, Meta(ge=1)] | None = None
    item: Any = msgspec.UNSET


class _ManifestObject(msgspec.Struct):
    """The JSON object as workers write it."""

    steps: list[_ManifestStep]
    variables: dict[str, Any] = msgspec.field(default_factory=dict)


class AcceptedReport(msgspec.Struct, frozen=True):
    """The events of a report, the record after them, and the workflows that its last step starts."""

    drafts: tuple[EventDraft, ...]
    record: Record
    triggers: tuple[TriggerMatch, ...] = ()


class RejectedReport(msgspec.Struct, frozen=True):
    """Why a report is rejected, in sentences for the worker."""

    problems: tuple[str, ...]


def parse_manifest(message: str, data: Any = None) -> Manifest | str:
    """The manifest in a worker's last message, or in its structured result `data`; else a sentence on what is wrong."""
    objects = list(_find_objects(message[-MAX_MESSAGE_LENGTH:])) if data is None else [data]
    manifests = [found for found in objects if isinstance(found, dict) and "steps" in found]
    if not manifests:
        return NO_MANIFEST
    try:
        # A value that the ledger cannot store must be refused here, where the worker can still correct it.
        encode(manifests[-1], "report")
        parsed = msgspec.convert(manifests[-1], _ManifestObject)
    except (BadRecord, msgspec.ValidationError) as error:
        return f"The JSON object with your steps cannot be read: {error}"
    steps = (StepReport(step.step_id, _render_output(step.output), step.iteration, step.item) for step in parsed.steps)
    return Manifest(tuple(steps), parsed.variables)


def validate_report(
    workflow: Workflow, record: Record, segment: ActivitySegment, manifest: Manifest, context: AnswerContext, agent: str
) -> AcceptedReport | RejectedReport:
    """Check a report against its segment, and draft its events."""
    steps = [entry for entry in manifest.steps if entry.step_id not in _completed_steps(record)]
    drafts = draft_report(workflow, record, manifest.variables, f"agent:{agent}", person=context.demands_person)
    informed = fold_drafts(record, drafts, context.now)
    problems = [
        *(problem.sentence for problem in check_report(workflow, record, manifest.variables, person=context.demands_person)),
        *(problem.sentence for problem in check_step_manifest(workflow, informed, steps, leaving=False)),
        *_list_unexpected_steps(segment, steps),
    ]
    refusal = check_size(record.variables, manifest.variables)
    if refusal is not None or problems:
        return RejectedReport(tuple(dict.fromkeys([*problems, *([refusal.sentence] if refusal is not None else [])])))
    accepted = AcceptedReport(tuple(drafts), informed)
    return _complete_steps(workflow, segment, steps, accepted, context, MoveActor(f"agent:{agent}"), earlier=record)


def reduce_manifest_on_exit(record: Record, segment: ActivitySegment, manifest: Manifest) -> Manifest | RejectedReport:
    """The manifest for leaving the activity because of an answer, without steps that start workflows: they are not started."""
    steps = [entry for entry in manifest.steps if entry.step_id not in _completed_steps(record)]
    unexpected = tuple(_list_unexpected_steps(segment, steps))
    if unexpected:
        return RejectedReport(unexpected)
    triggering = {step.id for step in segment.steps if step.triggers}
    return replace(manifest, steps=tuple(entry for entry in steps if entry.step_id not in triggering))


def drop_started_workflows(workflow: Workflow, record: Record, report: AcceptedReport, started: Counter[str]) -> AcceptedReport:
    """The report without workflows that are already started. `started` also counts those of earlier steps of the iteration."""
    earlier_steps = (step for step in list_current_steps(workflow, record) if step.id in _completed_steps(record))
    surplus = started - Counter(trigger.workflow for step in earlier_steps for trigger in step.triggers)
    triggers = list[TriggerMatch]()
    for trigger in report.triggers:
        if surplus[trigger.workflow]:
            surplus[trigger.workflow] -= 1
        else:
            triggers.append(trigger)
    return replace(report, triggers=tuple(triggers))


def list_missing(workflow: Workflow, record: Record, segment: ActivitySegment) -> list[str]:
    """What is still missing of a segment whose report is recorded."""
    checkpoints, variables = _list_open_decisions(workflow, record, segment)
    return [
        *_list_missing_steps(workflow, record, segment),
        *(prompts.request_checkpoint(name) for name in checkpoints),
        *([prompts.request_variables(workflow, variables)] if variables else ()),
    ]


def _complete_steps(
    workflow: Workflow,
    segment: ActivitySegment,
    steps: Sequence[StepReport],
    report: AcceptedReport,
    context: AnswerContext,
    actor: MoveActor,
    *,
    earlier: Record,
) -> AcceptedReport | RejectedReport:
    """Complete the reported steps; `earlier` is the record before the report."""
    before = report.record
    for entry in steps:
        request = MoveRequest("complete_step", entry.step_id, output=entry.output)
        drafts = apply_move(workflow, report.record, request, context, actor, earlier=earlier)
        if isinstance(drafts, Refusal):
            return RejectedReport((f"{drafts.sentence} {drafts.remedy!s}".strip(),))
        earlier = fold_drafts(earlier, drafts, context.now)
        report = AcceptedReport((*report.drafts, *drafts), fold_drafts(report.record, drafts, context.now))
    after = report.record
    fired = [trigger for entry in steps[-1:] for trigger in find_fired_triggers(workflow, before, after, entry.step_id)]
    if _list_missing_steps(workflow, after, segment) or _decides_nothing(workflow, after, segment):
        return RejectedReport(tuple(list_missing(workflow, after, segment)))
    return replace(report, triggers=tuple(trigger for trigger in fired if trigger.step))


def _list_missing_steps(workflow: Workflow, record: Record, segment: ActivitySegment) -> list[str]:
    remaining = [
        task for task in list_remaining_steps(workflow, record) if task.id in segment.step_ids and task.step is not None
    ]
    missing = [task.id for task in remaining if task.must]
    problems = [phrases.missing_steps(missing)] if missing else []
    for task in remaining:
        if task.step is not None and task.step.required and not task.must and task.step.condition is not None:
            names = find_unset_variables([task.step.condition], workflow, record)
            problems.append(f"{phrases.step_undecided(task.id, names)} {suggest_report(workflow, names)}")
    return problems


def _list_open_decisions(workflow: Workflow, record: Record, segment: ActivitySegment) -> tuple[list[str], list[str]]:
    """The checkpoints and the variables of the segment that are still open."""
    still_open = find_decision_segment(workflow, record) or ActivitySegment()
    checkpoints = [name for name in segment.checkpoints if name in still_open.checkpoints]
    return checkpoints, [name for name in segment.variables if name in still_open.variables]


def _decides_nothing(workflow: Workflow, record: Record, segment: ActivitySegment) -> bool:
    """Whether the segment had open decisions and the report has settled none of them."""
    requested = [*segment.checkpoints], [*segment.variables]
    return any(requested) and _list_open_decisions(workflow, record, segment) == requested


def _list_unexpected_steps(segment: ActivitySegment, steps: Sequence[StepReport]) -> Iterator[str]:
    unexpected = [entry.step_id for entry in steps if entry.step_id not in segment.step_ids]
    if unexpected:
        yield prompts.reject_steps(dict.fromkeys(unexpected), segment.step_ids)


def _completed_steps(record: Record) -> frozenset[str]:
    """The completed steps of the running iteration, else of the activity. A step elsewhere with the same id is another step."""
    return frozenset((record.here.running or record.here).done)


def _render_output(output: Any) -> str:
    return output if isinstance(output, str) else "" if output is None else json.dumps(output)


def _find_objects(text: str) -> Iterator[Any]:
    """Every outermost JSON object in the text, in order."""
    end = failures = 0
    while (start := _OBJECT_START.search(text, end)) is not None and failures < MAX_DECODE_FAILURES:
        try:
            value, end = _decode(text, start.start())
            yield value
        except (ValueError, RecursionError):
            end, failures = start.end(), failures + 1
