"""MCP prompts of the workflow dialects: a prompt for each workflow that can be started.

A client offers them to its user as commands, so that a person can begin a workflow without knowing its id or the tools. A
prompt names the tools of its dialect and nothing that the workflow itself says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fidelio.app.application import Application
from fidelio.definitions.library import WorkflowSummary
from fidelio.errors import UsageProblem
from fidelio.surfaces.mcp.dialects.common import list_startable_workflows, shorten_description

PAGE = 100
MAX_GOAL = 10_000
_SESSIONS = (
    "Call start_session with workflow_id {id!r}, then get_skills and get_workflow, and carry out one activity after the other "
    "with next_activity and get_activity, until the workflow is completed."
)
_HOW = {
    "sessions": f"{_SESSIONS} Stop at every checkpoint with yield_checkpoint and put it to me.",
    "gates": (
        "Call start_session with workflow_id {id!r}, then get_skills and get_workflow, and carry out one activity after the "
        "other with next_activity, until the workflow is completed. Put every pending checkpoint to me."
    ),
    "navigator": (
        "Call nav_start with workflow_id {id!r}, and make the moves that each reply offers with nav_action, until the workflow "
        "is completed. Put every checkpoint to me."
    ),
}
_ARGUMENT = {"name": "goal", "description": "What you want to achieve.", "required": False}


class WorkflowPrompts:
    """The prompts of a dialect."""

    def __init__(self, app: Application, dialect: str) -> None:
        self._app = app
        self._how = _HOW[dialect]

    async def list(self, cursor: object = None) -> dict[str, Any]:
        """A page of the prompts: the result of `prompts/list`."""
        start = _read_cursor(cursor)
        entries = list_startable_workflows(await self._app.library())
        page = {"prompts": [_describe(entry) for entry in entries[start : start + PAGE]]}
        return {**page, "nextCursor": str(start + PAGE)} if start + PAGE < len(entries) else page

    async def get(self, name: object, arguments: object) -> dict[str, Any]:
        """The prompt of a workflow: the result of `prompts/get`."""
        entry = _find(name, list_startable_workflows(await self._app.library()))
        goal = arguments.get("goal", "") if isinstance(arguments, Mapping) else ""
        text = f"Carry out the workflow “{entry.title}” with the tools of this server. {self._how.format(id=entry.id)} "
        text += "Never answer a checkpoint for me."
        if isinstance(goal, str) and goal.strip():
            text += f"\n\nWhat I want to achieve: {goal.strip()[:MAX_GOAL]}"
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return {"description": shorten_description(entry.description) or entry.title, "messages": [message]}


def _find(name: object, entries: Sequence[WorkflowSummary]) -> WorkflowSummary:
    for entry in entries:
        if entry.id == name:
            return entry
    known = ", ".join(entry.id for entry in entries[:PAGE]) or "none"
    raise UsageProblem(f"There is no prompt {str(name)[:100]!r}.", remedy=f"The prompts are: {known}.")


def _describe(entry: WorkflowSummary) -> dict[str, Any]:
    description = shorten_description(entry.description)
    head = {"name": entry.id, "title": entry.title}
    return {**head, **({"description": description} if description else {}), "arguments": [_ARGUMENT]}


def _read_cursor(cursor: object) -> int:
    if cursor is None:
        return 0
    if isinstance(cursor, str) and cursor.isascii() and cursor.isdigit() and len(cursor) < 10:
        return int(cursor)
    raise UsageProblem("This cursor was not made by this server.", remedy="Call prompts/list without a cursor.")
