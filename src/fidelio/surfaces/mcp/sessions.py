"""The `sessions` dialect: an opaque token names the session, the orchestrator moves it, a worker reads one activity at a time.

Tools translate only: arguments into calls of the service, results into the shapes that clients know.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from fidelio.surfaces.mcp.house import House
from fidelio.surfaces.mcp.tools import Done, Tool, ToolTable

if TYPE_CHECKING:
    from fidelio.workflows.service import Opened

INSTRUCTIONS = (
    "Fidelio leads you through a workflow one activity at a time. Call list_workflows, then start_session with a workflow_id, "
    "then next_activity with its first activity and get_activity to read it. At a checkpoint call yield_checkpoint and stop "
    "until a person has answered; then call resume_checkpoint. Always pass the newest session_token."
)

Token = Annotated[str, msgspec.Meta(min_length=1, description="The newest session_token, exactly as it was returned.")]


class Nothing(msgspec.Struct):
    """A tool without parameters."""


class StartSession(msgspec.Struct):
    """What start_session takes."""

    workflow_id: Annotated[str, msgspec.Meta(description="Which workflow to start; list_workflows names them.")] = "meta"
    agent_id: Annotated[str, msgspec.Meta(description="Who is calling; it is recorded.")] = "orchestrator"


class WithToken(msgspec.Struct):
    """What a tool of a running session takes."""

    session_token: Token


class NextActivity(msgspec.Struct):
    """What next_activity takes."""

    session_token: Token
    activity_id: Annotated[str, msgspec.Meta(min_length=1, description="The activity to enter.")]
    transition_condition: Annotated[str, msgspec.Meta(description="The condition that led there.")] = ""


class YieldCheckpoint(msgspec.Struct):
    """What yield_checkpoint takes."""

    session_token: Token
    checkpoint_id: Annotated[str, msgspec.Meta(min_length=1, description="A checkpoint of the current activity.")]


class SessionsDialect:
    """The tools of the dialect over one house."""

    def __init__(self, house: House) -> None:
        self._house = house

    def tools(self) -> ToolTable:
        return ToolTable(
            [
                Tool(
                    "list_workflows",
                    "List workflows",
                    "Lists the workflows that can be started, each with id, title, version and tags.",
                    Nothing,
                    self._list,
                    read_only=True,
                ),
                Tool(
                    "start_session",
                    "Start a session",
                    "Starts a session of a workflow and returns its session_token.",
                    StartSession,
                    self._start,
                ),
                Tool(
                    "next_activity",
                    "Enter an activity",
                    "Moves the session to an activity, or to its end with `__terminal__`. Read it with get_activity.",
                    NextActivity,
                    self._next,
                ),
                Tool(
                    "get_activity",
                    "Read the activity",
                    "Returns the whole definition of the current activity.",
                    WithToken,
                    self._activity,
                    read_only=True,
                ),
                Tool(
                    "yield_checkpoint",
                    "Stop at a checkpoint",
                    "Stops the session until a person has answered the checkpoint.",
                    YieldCheckpoint,
                    self._yield,
                ),
                Tool(
                    "resume_checkpoint",
                    "Go on after a checkpoint",
                    "Returns the answer to the checkpoint and lets the session go on.",
                    WithToken,
                    self._resume,
                ),
                Tool(
                    "get_workflow_status",
                    "Where the session stands",
                    "Returns the position, the variables and the checkpoint that waits, if any.",
                    WithToken,
                    self._status,
                    read_only=True,
                ),
            ]
        )

    async def _list(self, _: Nothing) -> Done:
        service = await self._house.workflows()
        entries = [entry for entry in service.library.list() if entry.id != "meta"]
        return _reply([{"id": e.id, "title": e.title, "version": e.version, "tags": list(e.tags)} for e in entries])

    async def _start(self, asked: StartSession) -> Done:
        service = await self._house.workflows()
        opened = await service.start(asked.workflow_id, agent=asked.agent_id)
        workflow = service.library.workflow(asked.workflow_id)
        about = {"id": workflow.id, "version": workflow.version, "title": workflow.title, "description": workflow.description}
        return _reply({"workflow": about, "session_token": opened.token}, token=opened.token)

    async def _next(self, asked: NextActivity) -> Done:
        service = await self._house.workflows()
        opened = await service.enter(asked.session_token, asked.activity_id, condition=asked.transition_condition)
        body = {"activity_id": asked.activity_id, "status": opened.record.status, "session_token": opened.token}
        return _reply(body, token=opened.token)

    async def _activity(self, asked: WithToken) -> Done:
        service = await self._house.workflows()
        opened, activity = await service.current(asked.session_token)
        text = service.library.toon("activity", activity.id, workflow=opened.record.workflow)
        ways = [{"to": way.to, "holds": way.holds, "default": way.default} for way in service.ways(opened.record)]
        meta = {"session_token": opened.token, "transitions": ways}
        return Done(f"session_token: {opened.token}\n\n{text}", meta)

    async def _yield(self, asked: YieldCheckpoint) -> Done:
        service = await self._house.workflows()
        opened = await service.yield_checkpoint(asked.session_token, asked.checkpoint_id)
        return _reply({"checkpoint_id": asked.checkpoint_id, **_yielded(opened, asked.checkpoint_id)}, token=opened.token)

    async def _resume(self, asked: WithToken) -> Done:
        service = await self._house.workflows()
        opened = await service.resume(asked.session_token)
        answer = opened.record.answers[-1]
        body = {"status": "resumed", "checkpoint_id": answer.checkpoint, "option_id": answer.option, "effect": answer.effect}
        return _reply({**body, "variables": opened.record.variables}, token=opened.token)

    async def _status(self, asked: WithToken) -> Done:
        service = await self._house.workflows()
        opened = await service.status(asked.session_token)
        record = opened.record
        body = {
            "status": record.status,
            "current_activity": record.activity or "none",
            "completed_activities": list(record.completed),
            "variables": record.variables,
            "open_checkpoint": record.open.checkpoint if record.open else None,
            "workflow": {"id": record.workflow, "version": record.version},
            "session_token": opened.token,
        }
        return _reply(body, token=opened.token)


def _yielded(opened: Opened, checkpoint: str) -> dict[str, Any]:
    answer = opened.record.answer_to(checkpoint)
    if answer is not None:
        known = {"already_resolved": True, "resolved_option": answer.option, "effect": answer.effect}
        return {"status": "yielded", **known, "checkpoint_handle": opened.token}
    request = opened.record.open.request if opened.record.open else ""
    message = f"Stop here until a person has answered: `fidelio answer {request} OPTION`. Then call resume_checkpoint."
    return {"status": "yielded", "checkpoint_handle": opened.token, "request_id": request, "message": message}


def _reply(body: object, *, token: str = "") -> Done:
    return Done(json.dumps(body, indent=2, ensure_ascii=False), {"session_token": token} if token else {})
