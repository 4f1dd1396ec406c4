"""Handlers of the `gates` dialect: entering an activity opens all its checkpoints, and each has to be answered first.

Tools translate only: arguments into calls of the service, results into the shapes that clients know.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fidelio.app.application import Application
from fidelio.errors import PersonNeeded
from fidelio.surfaces.mcp.dialects.common import (
    Dialect,
    offered_workflows,
    procedure,
    started_json,
    trace_json,
    transitions_json,
)
from fidelio.surfaces.mcp.dialects.gates.parameters import (
    GetCheckpoint,
    GetResource,
    GetSkill,
    GetWorkflow,
    RespondCheckpoint,
    StartSession,
)
from fidelio.surfaces.mcp.dialects.gates.replies import (
    DefinitionEncoder,
    checkpoint_json,
    document,
    pending_json,
    reply,
    resolved_json,
    skill_json,
)
from fidelio.surfaces.mcp.dialects.sessions.parameters import GetTrace, NextActivity, Nothing, WithToken, move_of, none_if_unset
from fidelio.surfaces.mcp.endpoint import ServedTools
from fidelio.toolkit import CallContext, Done, Outcome, ToolTable

INSTRUCTIONS = (
    "Fidelio leads you through a workflow one activity at a time. Call discover for the procedure and the workflows: "
    "start_session, get_skills, get_workflow, next_activity. Entering an activity asks its checkpoints; answer every pending "
    "one with respond_checkpoint before you go on. Always pass the newest session_token."
)


class GatesDialect(Dialect):
    """The twelve tools of the dialect."""

    def __init__(self, house: Application) -> None:
        super().__init__(house)
        self._encoder = DefinitionEncoder()

    def tools(self) -> ServedTools:
        from fidelio.surfaces.mcp.dialects.gates.declarations import rows  # noqa: PLC0415  # the descriptions are read only when they are listed

        return ServedTools(
            ToolTable(rows(self), on_misuse=self.record_refused_call, render_error=self.render_error),
            instructions=INSTRUCTIONS,
            program=self.house.program,
            ask=self.house.ask,
        )

    async def discover(self, _: Nothing, context: CallContext) -> Done:
        library = await self.house.library()
        listed = [{"id": entry.id, "title": entry.title, "version": entry.version} for entry in offered_workflows(library)]
        about = {"server": self.house.settings.server_name, "version": self.house.settings.server_version}
        guide = procedure(library, INSTRUCTIONS, "bootstrap-gates")
        return document(context, {**about, "available_workflows": listed, "discovery": guide})

    async def list_workflows(self, _: Nothing, __: CallContext) -> Done:
        listed = [
            {"id": entry.id, "title": entry.title, "version": entry.version, "description": entry.description}
            for entry in offered_workflows(await self.house.library())
        ]
        return Done(msgspec.json.encode(listed).decode())

    async def health_check(self, _: Nothing, context: CallContext) -> Done:
        return reply(context, await self.health())

    async def start_session(self, arguments: StartSession, context: CallContext) -> Done:
        from fidelio.workflows.start import StartInput  # noqa: PLC0415  # everything heavy waits for the first call

        service = await self.house.workflows()
        token, agent = none_if_unset(arguments.session_token) or "", none_if_unset(arguments.agent_id)
        outcome = await service.sessions.start(StartInput(arguments.workflow_id, agent, token, exact=True))
        return reply(context, started_json(outcome), outcome)

    async def get_workflow(self, arguments: GetWorkflow, context: CallContext) -> Done:
        from fidelio.workflows.content import SUMMARY_WITH_ROLES, summarize_workflow  # noqa: PLC0415  # waits for the first call
        from fidelio.workflows.unit_of_work import refuse_while_pending  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        outcome = await service.reads.workflow(arguments.session_token, gate=refuse_while_pending)
        workflow, token = outcome.result.workflow, {"session_token": outcome.token}
        if arguments.summary:
            return document(context, {**summarize_workflow(workflow, SUMMARY_WITH_ROLES), **token}, outcome)
        return self._encoder.document(context, workflow, token, outcome)

    async def next_activity(self, arguments: NextActivity, context: CallContext) -> Done:
        service = await self.house.workflows()
        outcome = await service.moves.enter(arguments.session_token, move_of(arguments))
        workflow, activity, record = outcome.result.workflow, outcome.result.activity, outcome.record
        meta = {"trace_token": service.moves.make_trace_token(outcome), "transitions": transitions_json(workflow, record)}
        if activity is None:
            ended = {"activity_id": arguments.activity_id, "name": "Completed", "status": record.status}
            return document(context, {**ended, "session_token": outcome.token}, outcome, **meta)
        more = {"pending_checkpoints": pending_json(workflow, record), "session_token": outcome.token}
        return self._encoder.document(context, activity, more, outcome, **meta)

    async def get_checkpoint(self, arguments: GetCheckpoint, context: CallContext) -> Done:
        service = await self.house.workflows()
        outcome = await service.checkpoints.read(arguments.session_token, arguments.activity_id, arguments.checkpoint_id)
        return reply(context, {**checkpoint_json(outcome.result), "session_token": outcome.token}, outcome)

    async def respond_checkpoint(self, arguments: RespondCheckpoint, context: CallContext) -> Outcome:
        from fidelio.engine.answers import AnswerChoice  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        choice = AnswerChoice(none_if_unset(arguments.option_id), arguments.auto_advance, arguments.condition_not_met)
        try:
            outcome = await service.checkpoints.respond_to(
                arguments.session_token, arguments.checkpoint_id, choice, elicited=context.person_requests
            )
        except PersonNeeded as needed:
            return await self.ask(context, needed, "respond_checkpoint", arguments.session_token)
        transitions = transitions_json(outcome.result.workflow, outcome.record)
        return reply(context, resolved_json(outcome), outcome, transitions=transitions)

    async def get_skills(self, arguments: WithToken, context: CallContext) -> Done:
        from fidelio.workflows.unit_of_work import allow_always  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        outcome = await service.reads.workflow_skills(arguments.session_token, supporting=True, gate=allow_always)
        workflow = outcome.record.workflow
        found = {one.id: skill_json(service.reads, one, workflow) for one in outcome.result if one.loaded is not None}
        body: dict[str, Any] = {"scope": "workflow", "skills": found, "session_token": outcome.token}
        if failed := [one.id for one in outcome.result if one.loaded is None]:
            body["failed_skills"] = failed
        return document(context, body, outcome)

    async def get_skill(self, arguments: GetSkill, context: CallContext) -> Done:
        from fidelio.workflows.unit_of_work import refuse_while_pending  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        outcome = await service.reads.skill(arguments.session_token, arguments.step_id, gate=refuse_while_pending)
        skill = skill_json(service.reads, outcome.result, outcome.record.workflow)
        return document(context, {"skill": skill, "session_token": outcome.token}, outcome)

    async def get_resource(self, arguments: GetResource, context: CallContext) -> Done:
        from fidelio.workflows.unit_of_work import refuse_while_pending  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        outcome = await service.reads.resource(arguments.session_token, arguments.resource_index, gate=refuse_while_pending)
        found = outcome.result
        resource = {"index": found.reference, "id": found.id, "version": found.version, "content": found.content}
        return document(context, {"resource": resource, "session_token": outcome.token}, outcome)

    async def get_trace(self, arguments: GetTrace, context: CallContext) -> Done:
        from fidelio.workflows.unit_of_work import allow_always  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        outcome = await service.traces.trace(
            arguments.session_token, arguments.trace_tokens, after=arguments.after, gate=allow_always
        )
        return document(context, trace_json(outcome), outcome)
