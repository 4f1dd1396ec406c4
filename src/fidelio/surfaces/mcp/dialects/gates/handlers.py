"""Handlers and replies of the `gates` dialect: entering an activity opens its checkpoints, and each must be answered first.

Handlers translate arguments into calls of the service. Every reply is a compact JSON object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fidelio.definitions.library import WorkflowSummary
from fidelio.definitions.models import Definition, Workflow
from fidelio.engine.answers import AnswerChoice
from fidelio.engine.checkpoints import list_pending_checkpoints
from fidelio.engine.record import Record
from fidelio.errors import PersonNeeded
from fidelio.surfaces.mcp.dialects.common import (
    UNCHANGED,
    Dialect,
    TextParameters,
    add_warnings,
    answer_json,
    build_meta,
    build_move,
    definition_json,
    describe_list,
    find_repeated,
    forget_delivered,
    list_startable_workflows,
    load_procedure,
    none_if_unset,
    resolution_json,
    skill_key,
    started_json,
    trace_json,
    transitions_json,
)
from fidelio.surfaces.mcp.dialects.gates.declarations import INSTRUCTIONS
from fidelio.surfaces.mcp.dialects.gates.parameters import (
    GetCheckpoint,
    GetResource,
    GetSkill,
    GetWorkflow,
    RespondCheckpoint,
    StartSession,
)
from fidelio.surfaces.mcp.dialects.sessions.parameters import (
    GetSkills,
    GetTrace,
    NextActivity,
    NoParameters,
)
from fidelio.toolkit import CallContext, Done, Outcome
from fidelio.workflows.checkpoints import PresentedCheckpoint, ResolvedCheckpoint
from fidelio.workflows.content import SUMMARY_WITH_ROLES, ContentService, SkillText, summarize_workflow
from fidelio.workflows.refusals import allow_always, refuse_while_pending
from fidelio.workflows.start import StartInput
from fidelio.workflows.unit_of_work import CallResult

# More than the definitions of all workflows that a server runs at a time.
MAX_CACHED_DEFINITIONS = 512


def render_reply(context: CallContext, body: Mapping[str, Any], outcome: CallResult[Any] | None = None, **meta: Any) -> Done:
    """Return a small reply: JSON as text, and the same as structured content."""
    whole = add_warnings(context, body, outcome)
    return Done(_encode_json(whole), {**build_meta(context, outcome), **meta}, structured=whole)


def render_document(context: CallContext, body: Mapping[str, Any], outcome: CallResult[Any] | None = None, **meta: Any) -> Done:
    """Return a large reply as text alone: clients show the model structured content instead of the text if both are there."""
    return Done(_encode_json(add_warnings(context, body, outcome)), {**build_meta(context, outcome), **meta})


def _encode_definition(definition: Definition) -> str:
    return _encode_json(_definition_json(definition))


def _definition_json(definition: Definition) -> dict[str, Any]:
    """The JSON of a definition in this dialect, where a workflow lists all its skills together."""
    body = definition_json(definition)
    if isinstance(definition, Workflow) and "skills" in body:
        skill_ids = (definition.skills.primary, *definition.skills.supporting)
        body["skills"] = list(dict.fromkeys(skill for skill in skill_ids if skill))
    return body


def pending_json(workflow: Workflow, record: Record) -> list[dict[str, Any]]:
    """The pending checkpoints, with `condition_holds`: true, false, or null while it is undecided."""
    return [
        {"checkpoint_id": pending.checkpoint, "condition_holds": truth, "request_id": pending.request}
        for pending, truth in list_pending_checkpoints(workflow, record)
    ]


def checkpoint_json(presented: PresentedCheckpoint) -> dict[str, Any]:
    body = {**definition_json(presented.definition), "condition_holds": presented.condition_holds}
    if presented.demands_person:
        body["answered_by"] = "person"
    if presented.request:
        body["pending"] = presented.answer is None
    if presented.answer is not None:
        body["answer"] = answer_json(presented.answer)
    return body


def resolved_json(outcome: CallResult[ResolvedCheckpoint]) -> dict[str, Any]:
    remaining = [checkpoint.checkpoint for checkpoint in outcome.record.pending]
    token = {"session_token": outcome.text_token, "remaining_checkpoints": remaining}
    return {"checkpoint_id": outcome.result.checkpoint, "resolved": True, **token, **resolution_json(outcome.result)}


def skill_json(reads: ContentService, skill: SkillText, workflow: str) -> dict[str, Any]:
    """The skill, with its resources as references that get_resource accepts."""
    if skill.loaded is None:
        return {}
    body = definition_json(skill.loaded.definition)
    body.pop("resources", None)
    skill_ids = [msgspec.to_builtins(resource) for resource in reads.list_resources(skill.loaded, workflow)]
    return {**body, "_resources": skill_ids} if skill_ids else body


def repeated_json(digest: str) -> dict[str, str]:
    """What stands for a text that is not sent again."""
    return {"digest": digest, "unchanged": UNCHANGED}


def _encode_json(body: Any) -> str:
    return msgspec.json.encode(body).decode()


def _render_skill(
    reads: ContentService, skill: SkillText, arguments: TextParameters, context: CallContext, outcome: CallResult[Any]
) -> dict[str, Any]:
    """The skill, or what stands for it if the agent got it before."""
    body = skill_json(reads, skill, outcome.record.workflow)
    digest = find_repeated(context, outcome, arguments, skill_key(skill), _encode_json(body))
    return {"id": skill.id, **repeated_json(digest)} if digest else body


def _encode_list(entries: Sequence[WorkflowSummary]) -> str:
    return _encode_json(describe_list(entries))


class GatesDialect(Dialect):
    """Handlers of the twelve tools of the dialect."""

    async def discover(self, _: NoParameters, context: CallContext) -> Done:
        library = await self.app.library()
        workflows = [
            {"id": entry.id, "title": entry.title, "version": entry.version} for entry in list_startable_workflows(library)
        ]
        server = {"server": self.app.settings.server_name, "version": self.app.settings.server_version}
        discovery = load_procedure(library, INSTRUCTIONS, "bootstrap-gates")
        return render_document(context, {**server, "available_workflows": workflows, "discovery": discovery})

    async def list_workflows(self, _: NoParameters, context: CallContext) -> Done:
        return self.render_list(await self.app.library(), context, _encode_list)

    async def health_check(self, _: NoParameters, context: CallContext) -> Done:
        return render_reply(context, await self.describe_health())

    async def start_session(self, arguments: StartSession, context: CallContext) -> Done:
        service = await self.app.workflows()
        token, agent = none_if_unset(arguments.session_token) or "", none_if_unset(arguments.agent_id)
        parent = arguments.parent_session_token
        outcome = await service.sessions.start(StartInput(arguments.workflow_id, agent, token, parent, exact=True))
        forget_delivered(context, outcome, token)
        return render_reply(context, started_json(outcome), outcome)

    async def get_workflow(self, arguments: GetWorkflow, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.reads.workflow(arguments.session_token, gate=refuse_while_pending)
        workflow, token = outcome.result.workflow, {"session_token": outcome.text_token}
        text = self.texts.get_or_encode(workflow, _encode_definition)
        name = "workflow summary" if arguments.summary else "workflow"
        if digest := find_repeated(context, outcome, arguments, name, text):
            reply = {"id": workflow.id, "version": workflow.version, **repeated_json(digest), **token}
            return render_document(context, reply, outcome)
        summary = summarize_workflow(workflow, SUMMARY_WITH_ROLES)
        # A definition of a few lines is shorter than its summary, which names what is missing.
        if arguments.summary and len(_encode_json(summary)) < len(text):
            return render_document(context, {**summary, **token}, outcome)
        return self._render_definition(context, workflow, token, outcome)

    async def next_activity(self, arguments: NextActivity, context: CallContext) -> Done:
        service = await self.app.workflows()
        await self.require_free_session(context, "next_activity", arguments.session_token)
        outcome = await service.moves.enter(arguments.session_token, build_move(arguments))
        workflow, activity, record = outcome.result.workflow, outcome.result.activity, outcome.record
        meta = {"trace_token": service.moves.make_trace_token(outcome), **transitions_json(workflow, record)}
        if activity is None:
            end = {"activity_id": arguments.activity_id, "name": "Completed", "status": record.status}
            return render_document(context, {**end, "session_token": outcome.text_token}, outcome, **meta)
        extra = {"pending_checkpoints": pending_json(workflow, record), "session_token": outcome.text_token}
        return self._render_definition(context, activity, extra, outcome, **meta)

    def _render_definition(
        self, context: CallContext, definition: Definition, body: Mapping[str, Any], outcome: CallResult[Any], **meta: Any
    ) -> Done:
        """Return the definition as reply, with the fields of `body` after its own."""
        extra = _encode_json(add_warnings(context, body, outcome))
        text = f"{self.texts.get_or_encode(definition, _encode_definition)[:-1]},{extra[1:]}"
        return Done(text, {**build_meta(context, outcome), **meta})

    async def get_checkpoint(self, arguments: GetCheckpoint, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.checkpoints.read(arguments.session_token, arguments.activity_id, arguments.checkpoint_id)
        return render_reply(context, {**checkpoint_json(outcome.result), "session_token": outcome.text_token}, outcome)

    async def respond_checkpoint(self, arguments: RespondCheckpoint, context: CallContext) -> Outcome:
        service = await self.app.workflows()
        await self.require_free_session(context, "respond_checkpoint", arguments.session_token)
        choice = AnswerChoice(none_if_unset(arguments.option_id), arguments.auto_advance, arguments.condition_not_met)
        try:
            outcome = await service.checkpoints.respond_to(
                arguments.session_token, arguments.checkpoint_id, choice, elicited=context.person_requests
            )
        except PersonNeeded as needed:
            return await self.ask_person(context, needed, "respond_checkpoint", arguments.session_token)
        transitions = transitions_json(outcome.result.workflow, outcome.record)
        return render_reply(context, resolved_json(outcome), outcome, **transitions)

    async def get_skills(self, arguments: GetSkills, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.reads.workflow_skills(arguments.session_token, supporting=True, gate=allow_always)
        loaded = [skill for skill in outcome.result if skill.loaded is not None]
        skills = {skill.id: _render_skill(service.reads, skill, arguments, context, outcome) for skill in loaded}
        body: dict[str, Any] = {"scope": "workflow", "skills": skills, "session_token": outcome.text_token}
        if failed_ids := [skill.id for skill in outcome.result if skill.loaded is None]:
            body["failed_skills"] = failed_ids
        return render_document(context, body, outcome)

    async def get_skill(self, arguments: GetSkill, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.reads.skill(arguments.session_token, arguments.step_id, gate=refuse_while_pending)
        skill = _render_skill(service.reads, outcome.result, arguments, context, outcome)
        return render_document(context, {"skill": skill, "session_token": outcome.text_token}, outcome)

    async def get_resource(self, arguments: GetResource, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.reads.resource(arguments.session_token, arguments.resource_index, gate=refuse_while_pending)
        found = outcome.result
        digest = find_repeated(context, outcome, arguments, f"resource {found.reference}", found.content)
        content = repeated_json(digest) if digest else {"content": found.content}
        problem = {"warning": found.problem} if found.problem else {}
        resource = {"index": found.reference, "id": found.id, "version": found.version, **problem, **content}
        return render_document(context, {"resource": resource, "session_token": outcome.text_token}, outcome)

    async def get_trace(self, arguments: GetTrace, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.traces.trace(
            arguments.session_token, arguments.trace_tokens, after=arguments.after, gate=allow_always
        )
        return render_document(context, trace_json(outcome), outcome)
