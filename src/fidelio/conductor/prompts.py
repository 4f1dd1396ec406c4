"""What a worker is told: its activity and the key to it, what is missing, and what a person has answered.

A worker gets the token of one activity. It never moves the session: that is for whoever gave it the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fidelio.definitions.models import Activity, Workflow
from fidelio.engine.record import Answer

MANIFEST = (
    'End with one JSON object and nothing after it: {"steps": [{"step_id": "...", "output": "what came of it"}, ...], '
    '"variables": {"name": value}}. List every step you did, in order, and every variable of the workflow that you found out.'
)


def brief(workflow: Workflow, activity: Activity, token: str) -> str:
    """The first message."""
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
            MANIFEST,
        ]
    )


def answered(answers: Sequence[Answer], token: str) -> str:
    """Goes on behind checkpoints that were answered."""
    lines = [f"- {one.checkpoint}: {one.option or 'dismissed'}" for one in answers]
    return "\n".join(
        [
            "Your checkpoint was answered:",
            *lines,
            "",
            f"session_token: {token}",
            "",
            "Call resume_checkpoint with this session_token, then go on with the next step.",
            MANIFEST,
        ]
    )


def missing(problems: Iterable[str], token: str) -> str:
    """What has to be there before the activity can end."""
    return "\n".join(
        [
            "The activity is not finished:",
            *(f"- {problem}" for problem in problems),
            "",
            f"session_token: {token}",
            "",
            "Do what is missing, then report the whole activity again.",
            MANIFEST,
        ]
    )


def undecided(variables: Sequence[str]) -> str:
    """One of the problems that `missing` lists."""
    return f"Where the workflow goes on depends on what you found out: report {', '.join(variables)} under variables."
