"""What a worker is told: its activity and the key to it, what is missing, and what a person has answered.

A worker gets the token of one activity. It never moves the session: that is for whoever gave it the work.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fidelio.definitions.models import Activity, Workflow
from fidelio.engine.phrases import list_names
from fidelio.engine.progress import count_iterations
from fidelio.engine.record import CheckpointAnswer, Record
from fidelio.engine.scope import find_running_loop
from fidelio.engine.variables import suggest_report

if TYPE_CHECKING:
    from fidelio.conductor.segments import Stretch

MANIFEST = (
    'End with one JSON object and nothing after it: {"steps": [{"step_id": "...", "output": "what came of it"}, ...], '
    '"variables": {"name": value}}. List every step you did, in order, and every variable of the workflow that you found out.'
)
# A value that is longer is in the variables of the session; the prompt only has to say which is meant.
LONGEST_VALUE = 2_000
_WHOLE = "The activity", "the whole activity"
_PART = "Your part of the activity", "all the steps that are listed here"


def brief(workflow: Workflow, activity: Activity, token: str, part: Sequence[str] = ()) -> str:
    """The first message. `part` says which part of the activity is meant, where it is not the whole."""
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
            *part,
            *([""] if part else ()),
            MANIFEST,
        ]
    )


def part_of(workflow: Workflow, record: Record, stretch: Stretch, ended: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is to be done now of an activity that is led stretch by stretch; `ended` are the workflows that have come back."""
    if stretch.whole:
        return []
    return [
        *_ended(ended),
        *_pass(workflow, record),
        "Of this activity you do only the steps that are listed here, and nothing that comes before or after them.",
        *these_steps(stretch),
        *_starts(stretch),
        *([undecided(workflow, stretch.wants)] if stretch.wants else ()),
        *(to_ask(name) for name in stretch.asks),
    ]


def these_steps(stretch: Stretch) -> list[str]:
    """The line that workers without a mind go by, too."""
    return [] if stretch.whole else [f"steps: {', '.join(stretch.names) or '-'}"]


def go_on(answers: Sequence[CheckpointAnswer], problems: Sequence[str], token: str, stretch: Stretch) -> str:
    """What there is to know after a turn: checkpoints that were answered, and what is missing before the activity goes on."""
    part, all_of_it = _WHOLE if stretch.whole else _PART
    return "\n".join(
        [
            *_listed("Your checkpoint was answered:", [f"{one.checkpoint}: {one.option or 'dismissed'}" for one in answers]),
            *_listed(f"{part} is not finished:", problems),
            f"session_token: {token}",
            "",
            *(["Call resume_checkpoint with this session_token, then go on with the next step."] if answers else ()),
            *([f"Do what is missing, then report {all_of_it} again."] if problems else ()),
            *these_steps(stretch),
            MANIFEST,
        ]
    )


def undecided(workflow: Workflow, variables: Sequence[str]) -> str:
    """One of the problems that `go_on` lists."""
    return f"Where the workflow goes on depends on {', '.join(variables)}. {suggest_report(workflow, variables)}"


def to_ask(checkpoint: str) -> str:
    return f"Checkpoint '{checkpoint}' has not been asked: call yield_checkpoint with it, and end your message."


def out_of_turn(steps: Iterable[str], due: Sequence[str]) -> str:
    only = f"only {', '.join(due)}" if due else "no step"
    return f"It is not yet the turn of {list_names(steps)}: do and report {only} now."


def _listed(head: str, lines: Sequence[str]) -> list[str]:
    return [head, *(f"- {line[:LONGEST_VALUE]}" for line in lines), ""] if lines else []


def _ended(ended: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for one in ended:
        back = f" It brought back: {_short(one['variables'])}" if one.get("variables") else ""
        yield f"The workflow {one['workflow']} ({one['session']}) has ended: {one['outcome']}.{back}"


def _pass(workflow: Workflow, record: Record) -> Iterable[str]:
    for place in (*record.outer, record.here):
        loop, running = find_running_loop(workflow, place), place.running
        if loop is None or running is None:
            continue
        total = count_iterations(loop, running)
        item = f": {loop.variable} is {_short(running.item)}" if loop.variable and running.items is not None else ""
        yield f"This is pass {running.iteration}{f' of {total}' if total else ''} of the loop {loop.id}{item}"


def _starts(stretch: Stretch) -> Iterable[str]:
    for step in stretch.steps:
        for trigger in step.triggers:
            given = ", ".join(trigger.pass_context)
            yield (
                f"The step {step.id} starts the workflow {trigger.workflow}. You neither start it nor wait for it: it is "
                "carried out when you have reported, and what follows it is not yet your business."
                + (f" It is given {given}: report what you know of them." if given else "")
            )


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}... (the whole is in get_workflow_status)"
