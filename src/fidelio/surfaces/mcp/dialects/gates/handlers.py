"""The `gates` dialect: an activity asks all its questions at the door, and nothing goes on until they are answered.

Tools translate only: arguments into calls of the service, results into the shapes that clients know.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fidelio.app.application import House
from fidelio.errors import PersonNeeded
from fidelio.surfaces.mcp.asked import asked_person
from fidelio.surfaces.mcp.dialects.common import Dialect, offered, procedure, started_json, trace_json, transitions
from fidelio.surfaces.mcp.dialects.gates.parameters import (
    GetCheckpoint,
    GetResource,
    GetSkill,
    GetWorkflow,
    RespondCheckpoint,
    StartSession,
)
from fidelio.surfaces.mcp.dialects.gates.replies import (
    Written,
    checkpoint_json,
    document,
    pending_json,
    reply,
    resolved_json,
    skill_json,
)
from fidelio.surfaces.mcp.dialects.sessions.parameters import GetTrace, NextActivity, Nothing, WithToken, given, move_of
from fidelio.toolkit.tools import Done, Outcome, ToolTable

INSTRUCTIONS = (
    "Fidelio leads you through a workflow one activity at a time. Call discover for the procedure and the workflows: "
    "start_session, get_skills, get_workflow, next_activity. Entering an activity asks its checkpoints; answer every pending "
    "one with respond_checkpoint before you go on. Always pass the newest session_token."
)


class GatesDialect(Dialect):
    """The twelve tools over one house."""

    def __init__(self, house: House) -> None:
        super().__init__(house)
        self._written = Written()

    def tools(self) -> ToolTable:
        from fidelio.surfaces.mcp.dialects.gates.declarations import rows  # noqa: PLC0415  # the descriptions are read only when they are listed

        return ToolTable(
            rows(self),
            instructions=INSTRUCTIONS,
            misused=self.note_misuse,
            worded=self.worded,
            program=self.house.program,
        )

    async def discover(self, _: Nothing) -> Done:
        service = await self.house.workflows()
        listed = [{"id": entry.id, "title": entry.title, "version": entry.version} for entry in offered(service)]
        about = {"server": self.house.settings.server_name, "version": self.house.settings.server_version}
        guide = procedure(service, INSTRUCTIONS, "bootstrap-gates")
        return document({**about, "available_workflows": listed, "discovery": guide})

    async def list_workflows(self, _: Nothing) -> Done:
        service = await self.house.workflows()
        listed = [
            {"id": entry.id, "title": entry.title, "version": entry.version, "description": entry.description}
            for entry in offered(service)
        ]
        return Done(msgspec.json.encode(listed).decode())

    async def health_check(self, _: Nothing) -> Done:
        return reply(await self.health())

    async def start_session(self, asked: StartSession) -> Done:
        from fidelio.workflows.start import Asked  # noqa: PLC0415  # everything heavy waits for the first call

        service = await self.house.workflows()
        token = given(asked.session_token) or ""
        outcome = await service.sessions.start(Asked(asked.workflow_id, given(asked.agent_id), token, exact=True))
        return reply(started_json(outcome), outcome)

    async def get_workflow(self, asked: GetWorkflow) -> Done:
        from fidelio.workflows.content import SUMMARY_WITH_ROLES, summary_of  # noqa: PLC0415  # waits for the first call
        from fidelio.workflows.gate import refuse_while_pending  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        outcome = await service.reads.workflow(asked.session_token, gate=refuse_while_pending)
        workflow, token = outcome.result.workflow, {"session_token": outcome.token}
        if asked.summary:
            return document({**summary_of(workflow, SUMMARY_WITH_ROLES), **token}, outcome)
        return self._written.document(workflow, token, outcome)

    async def next_activity(self, asked: NextActivity) -> Done:
        service = await self.house.workflows()
        outcome = await service.moves.enter(asked.session_token, move_of(asked))
        workflow, activity, record = outcome.result.workflow, outcome.result.activity, outcome.record
        meta = {"trace_token": service.traces.seal(outcome), "transitions": transitions(workflow, record)}
        if activity is None:
            ended = {"activity_id": asked.activity_id, "name": "Completed", "status": record.status}
            return document({**ended, "session_token": outcome.token}, outcome, **meta)
        more = {"pending_checkpoints": pending_json(workflow, record), "session_token": outcome.token}
        return self._written.document(activity, more, outcome, **meta)

    async def get_checkpoint(self, asked: GetCheckpoint) -> Done:
        service = await self.house.workflows()
        outcome = await service.checkpoints.read(asked.session_token, asked.activity_id, asked.checkpoint_id)
        return reply({**checkpoint_json(outcome.result), "session_token": outcome.token}, outcome)

    async def respond_checkpoint(self, asked: RespondCheckpoint) -> Outcome:
        from fidelio.engine.answers import AnswerChoice  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        choice = AnswerChoice(given(asked.option_id), asked.auto_advance, asked.condition_not_met)
        try:
            outcome = await service.checkpoints.respond_to(
                asked.session_token, asked.checkpoint_id, choice, asked_person=asked_person()
            )
        except PersonNeeded as needed:
            return await self.ask(service, needed, "respond_checkpoint", asked.session_token)
        ways = transitions(outcome.result.workflow, outcome.record)
        return reply(resolved_json(outcome), outcome, transitions=ways)

    async def get_skills(self, asked: WithToken) -> Done:
        from fidelio.workflows.gate import let_through  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        outcome = await service.reads.workflow_skills(asked.session_token, supporting=True, gate=let_through)
        workflow = outcome.record.workflow
        found = {one.id: skill_json(service.reads, one, workflow) for one in outcome.result if one.loaded is not None}
        body: dict[str, Any] = {"scope": "workflow", "skills": found, "session_token": outcome.token}
        if failed := [one.id for one in outcome.result if one.loaded is None]:
            body["failed_skills"] = failed
        return document(body, outcome)

    async def get_skill(self, asked: GetSkill) -> Done:
        from fidelio.workflows.gate import refuse_while_pending  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        outcome = await service.reads.skill(asked.session_token, asked.step_id, gate=refuse_while_pending)
        skill = skill_json(service.reads, outcome.result, outcome.record.workflow)
        return document({"skill": skill, "session_token": outcome.token}, outcome)

    async def get_resource(self, asked: GetResource) -> Done:
        from fidelio.workflows.gate import refuse_while_pending  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        outcome = await service.reads.resource(asked.session_token, asked.resource_index, gate=refuse_while_pending)
        found = outcome.result
        resource = {"index": found.reference, "id": found.id, "version": found.version, "content": found.content}
        return document({"resource": resource, "session_token": outcome.token}, outcome)

    async def get_trace(self, asked: GetTrace) -> Done:
        from fidelio.workflows.gate import let_through  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        outcome = await service.traces.trace(asked.session_token, asked.trace_tokens, after=asked.after, gate=let_through)
        return document(trace_json(outcome), outcome)
