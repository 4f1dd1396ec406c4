"""Prompts for workers: the first with activity and token, later prompts with answers and what is missing.

A worker gets a token of one activity. It never moves the session; the conductor does.
The scripted worker and tests parse the lines `session_token:` and `steps:`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fidelio.definitions.models import Activity, Workflow
from fidelio.engine.due_iterations import count_iterations
from fidelio.engine.phrases import list_names
from fidelio.engine.record import CheckpointAnswer, Record
from fidelio.engine.scope import find_running_loop
from fidelio.engine.variables import suggest_report

if TYPE_CHECKING:
    from fidelio.conductor.segments import ActivitySegment

MANIFEST_INSTRUCTION = (
    'End with one JSON object and nothing after it: {"steps": [{"step_id": "...", "output": "what came of it"}, ...], '
    '"variables": {"name": value}}. List every step you did, in order, and every variable of the workflow that you found out. '
    'List each step of a loop once for every iteration, with "iteration": 1, 2 and so on.'
)
# Longer values are cut: the whole is in the variables of the session, and the prompt only has to identify it.
MAX_VALUE_LENGTH = 2_000
_WHOLE = "The activity", "the whole activity"
_PART = "Your part of the activity", "all the steps that are listed here"


def build_first_prompt(workflow: Workflow, activity: Activity, token: str, segment: Sequence[str] = ()) -> str:
    """The first message to a worker. `segment` are the lines that limit it to a part of the activity."""
    return "\n".join(
        [
            f"You carry out one activity of the workflow {workflow.title!r}: {activity.name!r} ({activity.id}).",
            "",
            f"session_token: {token}",
            "",
            "1. Call get_activity with this session_token. It gives you the steps; do them in order.",
            "2. Before a step that names a skill, call get_skill with its step_id; load resources with get_resource.",
            "3. Before a step that names a checkpoint, call yield_checkpoint, do no step behind it, and end your message.",
            "   You are called again when it was answered.",
            "4. Always pass the newest session_token. Do not call next_activity, and answer no checkpoint yourself.",
            "",
            *segment,
            *([""] if segment else ()),
            MANIFEST_INSTRUCTION,
        ]
    )


def describe_segment(
    workflow: Workflow, record: Record, segment: ActivitySegment, children: Iterable[Mapping[str, Any]]
) -> list[str]:
    """The lines that limit a worker to a segment; `children` are the child workflows that have finished."""
    if segment.is_whole:
        return []
    return [
        *_describe_children(children),
        *_describe_iterations(workflow, record),
        "Of this activity you do only the steps that are listed here, and nothing that comes before or after them.",
        *list_step_ids(segment),
        *_describe_triggers(segment),
        *([request_variables(workflow, segment.variables)] if segment.variables else ()),
        *(request_checkpoint(name) for name in segment.checkpoints),
    ]


def list_step_ids(segment: ActivitySegment) -> list[str]:
    """The line with the steps of a segment, in the form that scripted workers parse."""
    return [] if segment.is_whole else [f"steps: {', '.join(segment.step_ids) or '-'}"]


def build_next_prompt(
    answers: Sequence[CheckpointAnswer], problems: Sequence[str], token: str, segment: ActivitySegment
) -> str:
    """A later message to a worker: the checkpoints that were answered, and what is missing in its report."""
    part, expected_report = _WHOLE if segment.is_whole else _PART
    answer_lines = [f"{answer.checkpoint}: {answer.option or 'dismissed'}" for answer in answers]
    return "\n".join(
        [
            *_render_list("Your checkpoint was answered:", answer_lines),
            *_render_list(f"{part} is not finished:", problems),
            f"session_token: {token}",
            "",
            *(["Call resume_checkpoint with this session_token, then go on with the next step."] if answers else ()),
            *([f"Do what is missing, then report {expected_report} again."] if problems else ()),
            *list_step_ids(segment),
            MANIFEST_INSTRUCTION,
        ]
    )


def request_variables(workflow: Workflow, variables: Sequence[str]) -> str:
    return f"The next transition depends on {', '.join(variables)}. {suggest_report(workflow, variables)}"


def request_checkpoint(checkpoint: str) -> str:
    return f"Checkpoint '{checkpoint}' has not been asked: call yield_checkpoint with it, and end your message."


def reject_steps(steps: Iterable[str], allowed: Sequence[str]) -> str:
    only = f"only {', '.join(allowed)}" if allowed else "no step"
    return f"It is not yet the turn of {list_names(steps)}: do and report {only} now."


def _render_list(head: str, lines: Sequence[str]) -> list[str]:
    return [head, *(f"- {line[:MAX_VALUE_LENGTH]}" for line in lines), ""] if lines else []


def _describe_children(children: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for child in children:
        results = f" It brought back: {_shorten(child['variables'])}" if child.get("variables") else ""
        yield f"The workflow {child['workflow']} ({child['session']}) has ended: {child['outcome']}.{results}"


def _describe_iterations(workflow: Workflow, record: Record) -> Iterable[str]:
    """A line for every loop that is running, the outermost first."""
    for visit in (*record.outer, record.here):
        loop, running = find_running_loop(workflow, visit), visit.running
        if loop is None or running is None:
            continue
        total = count_iterations(loop, running)
        item = f": {loop.variable} is {_shorten(running.item)}" if loop.variable and running.items is not None else ""
        yield f"This is pass {running.iteration}{f' of {total}' if total else ''} of the loop {loop.id}{item}"


def _describe_triggers(segment: ActivitySegment) -> Iterable[str]:
    for step in segment.steps:
        for trigger in step.triggers:
            names = ", ".join(trigger.pass_context)
            yield (
                f"The step {step.id} starts the workflow {trigger.workflow}. You neither start it nor wait for it: it is "
                "carried out when you have reported, and later steps are assigned after that."
                + (f" It is given {names}: report what you know of them." if names else "")
            )


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}... (the whole is in get_workflow_status)"
