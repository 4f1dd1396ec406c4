"""Handlers and replies of the `sessions` dialect: a token names the session, a worker reads the current activity.

Handlers translate arguments into calls of the service. Small replies are JSON, documents are text with header lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from fidelio.definitions.library import WorkflowSummary
from fidelio.definitions.models import Workflow
from fidelio.definitions.toon_writer import encode_toon
from fidelio.engine.answers import AnswerChoice
from fidelio.engine.checkpoints import describe_last_checkpoint, find_unattached_checkpoints
from fidelio.engine.record import Record
from fidelio.errors import Command, Hint, PersonNeeded, UsageProblem
from fidelio.surfaces.mcp.dialects.common import (
    UNCHANGED,
    Dialect,
    add_warnings,
    answer_json,
    as_json,
    build_meta,
    build_move,
    describe_list,
    find_repeated,
    forget_delivered,
    load_procedure,
    none_if_unset,
    resolution_json,
    skill_key,
    started_json,
    trace_json,
    transitions_json,
)
from fidelio.surfaces.mcp.dialects.sessions.declarations import INSTRUCTIONS
from fidelio.surfaces.mcp.dialects.sessions.parameters import (
    GetResource,
    GetSkill,
    GetSkills,
    GetStatus,
    GetTrace,
    GetWorkflow,
    NextActivity,
    NoParameters,
    PresentCheckpoint,
    RespondCheckpoint,
    ResumeCheckpoint,
    StartSession,
    TokenReference,
    YieldCheckpoint,
)
from fidelio.toolkit import CallContext, Done, Outcome
from fidelio.workflows.checkpoints import ResolvedCheckpoint, YieldedCheckpoint
from fidelio.workflows.content import SUMMARY, SkillText, WorkflowText, summarize_workflow
from fidelio.workflows.refusals import person_remedy
from fidelio.workflows.start import StartInput
from fidelio.workflows.unit_of_work import CallResult

MISSING_HANDLE = "Either checkpoint_handle or session_token must be provided."


def render_reply(context: CallContext, body: Mapping[str, Any], outcome: CallResult[Any] | None = None, **meta: Any) -> Done:
    """Return a small reply: JSON as text, and the same as structured content."""
    whole = add_warnings(context, body, outcome)
    return Done(as_json(whole), {**build_meta(context, outcome), **meta}, structured=whole)


def render_listing(context: CallContext, body: Mapping[str, Any], outcome: CallResult[Any]) -> Done:
    """Return a reply that grows with its session: JSON without indentation, as text alone."""
    return render_document(context, msgspec.json.encode(add_warnings(context, body, outcome)).decode(), outcome)


def render_document(context: CallContext, text: str, outcome: CallResult[Any], **meta: Any) -> Done:
    """Return a large text alone: clients show the model structured content instead of the text if both are there."""
    return Done(text, {**build_meta(context, outcome), **meta})


def add_header(outcome: CallResult[Any], text: str, *header_lines: str) -> str:
    """Put header lines and an empty line before the text."""
    return "\n".join([*header_lines, f"session_token: {outcome.text_token}", "", text])


def _repeated_lines(skill: SkillText, digest: str) -> list[str]:
    """The lines that stand for a skill that is not sent again."""
    return [f"skill: {skill.id}", f"digest: {digest}", "", UNCHANGED]


def resolved_json(resolved: ResolvedCheckpoint, handle: str) -> dict[str, Any]:
    body = {"checkpoint_id": resolved.checkpoint, "resolved": True, "checkpoint_handle": handle}
    return {**body, **resolution_json(resolved)}


def yielded_json(context: CallContext, outcome: CallResult[YieldedCheckpoint]) -> dict[str, Any]:
    yielded = outcome.result
    body = {"status": "yielded", "checkpoint_id": yielded.checkpoint, "checkpoint_handle": outcome.text_token}
    if yielded.answer is not None:
        answer = {"already_resolved": True, "resolved_option": yielded.answer.option or None, "effect": yielded.answer.effect}
        return {**body, **answer, "message": "This checkpoint was answered before in this visit. Go on."}
    waiting = outcome.record.waiting
    is_personal = waiting is not None and waiting.request == yielded.request and waiting.person
    hint = Hint("A person can also answer with: ", Command("answer", yielded.request, "OPTION"))
    message = Hint(
        "Stop here. Give the checkpoint_handle to the orchestrator in a <checkpoint_yield> block and wait; when it is "
        "resolved, call resume_checkpoint. ",
        person_remedy(waiting) if waiting is not None and is_personal else hint,
    )
    return {**body, "request_id": yielded.request, "message": context.render(message)}


def workflow_json(workflow: Workflow | None, record: Record) -> dict[str, Any]:
    """Describe the workflow of a session; with its id and version alone if its definition is not available."""
    title = {"title": workflow.title} if workflow is not None else {}
    return {"id": record.workflow, "version": record.version if workflow is None else workflow.version, **title}


def _encode_list(entries: Sequence[WorkflowSummary]) -> str:
    described = zip(describe_list(entries), entries, strict=True)
    return encode_toon([{**body, "tags": list(entry.tags)} for body, entry in described])


def encode_summary(workflow: Workflow, *, source: str) -> str:
    """The summary of a workflow if it is shorter than its file; else the file, with a list of activities that it does not have.

    Files of a few lines are shorter, because a summary names what is missing and lists the activities of other files.
    """
    summary = summarize_workflow(workflow, SUMMARY)
    text = encode_toon(summary)
    if len(text) < len(source):
        return text
    if "\nactivities[" in source:
        return source
    return min(text, f"{source.rstrip()}\n{encode_toon({'activities': summary['activities']})}", key=len)


class SessionsDialect(Dialect):
    """Handlers of the sixteen tools of the dialect."""

    async def discover(self, _: NoParameters, __: CallContext) -> Done:
        header_lines = [f"server: {self.app.settings.server_name}", f"version: {self.app.settings.server_version}"]
        return Done("\n".join([*header_lines, "", load_procedure(await self.app.library(), INSTRUCTIONS)]))

    async def list_workflows(self, _: NoParameters, context: CallContext) -> Done:
        return self.render_list(await self.app.library(), context, _encode_list)

    async def health_check(self, _: NoParameters, context: CallContext) -> Done:
        return render_reply(context, await self.describe_health())

    async def start_session(self, arguments: StartSession, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.sessions.start(
            StartInput(
                arguments.workflow_id,
                arguments.agent_id,
                arguments.session_token,
                arguments.parent_session_token,
                none_if_unset(arguments.fidelity),
            )
        )
        forget_delivered(context, outcome, arguments.session_token)
        return render_reply(context, started_json(outcome), outcome)

    async def get_workflow_status(self, arguments: GetStatus, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.status(arguments.session_token, wait_seconds=arguments.wait_seconds)
        record, workflow = outcome.record, outcome.result
        body: dict[str, Any] = {
            "status": record.status,
            "current_activity": record.activity or "none",
            "completed_activities": list(record.completed),
            "workflow": workflow_json(workflow, record),
            "variables": record.variables,
            "open_checkpoint": record.waiting.checkpoint if record.waiting else None,
            **(transitions_json(workflow, record) if workflow is not None else {"transitions": []}),
            "session_token": outcome.text_token,
        }
        if record.armed:
            body["pending_checkpoints"] = [checkpoint.checkpoint for checkpoint in record.pending]
        if record.parent is not None:
            parent = record.parent
            ids = {"session_id": parent.session, "workflow_id": parent.workflow}
            body["parent"] = {**ids, "activity": parent.activity, "version": parent.version}
        if (last := describe_last_checkpoint(record)) is not None:
            body["last_checkpoint"] = last
        if record.suspended_by:
            body["suspended_by"] = record.suspended_by
        if record.unverified:
            body |= {"unverified": True, "claims_to_continue": record.claims_to_continue or None}
        return render_reply(context, body, outcome)

    async def get_workflow(self, arguments: GetWorkflow, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.reads.workflow(arguments.session_token)
        skill = outcome.result.primary_skill
        text = self._render_workflow(arguments, context, outcome)
        if skill is not None and skill.text:
            digest = find_repeated(context, outcome, arguments, skill_key(skill), skill.text)
            head = "\n".join(_repeated_lines(skill, digest)) if digest else skill.text.rstrip()
            text = f"{head}\n\n---\n\n{text}"
        return render_document(context, text, outcome)

    def _render_workflow(self, arguments: GetWorkflow, context: CallContext, outcome: CallResult[WorkflowText]) -> str:
        workflow, source = outcome.result.workflow, outcome.result.source
        text = self.texts.get_or_encode(workflow, partial(encode_summary, source=source)) if arguments.summary else source
        name = "workflow summary" if arguments.summary else "workflow"
        if digest := find_repeated(context, outcome, arguments, name, text):
            text = encode_toon({"id": workflow.id, "version": workflow.version, "digest": digest, "unchanged": UNCHANGED})
        if not arguments.summary:
            return add_header(outcome, text)
        extra = add_warnings(context, {}, outcome) | {"session_token": outcome.text_token}
        return f"{text}\n{encode_toon(extra)}"

    async def next_activity(self, arguments: NextActivity, context: CallContext) -> Done:
        service = await self.app.workflows()
        await self.require_free_session(context, "next_activity", arguments.session_token)
        outcome = await service.moves.move(arguments.session_token, build_move(arguments))
        activity = outcome.result.activity
        name, title = (activity.id, activity.name) if activity is not None else (arguments.activity_id, "Completed")
        body = {"activity_id": name, "name": title}
        transitions = transitions_json(outcome.result.workflow, outcome.record)
        more = {"status": outcome.record.status, **transitions, "session_token": outcome.text_token}
        return render_reply(
            context, {**body, **more}, outcome, trace_token=service.moves.make_trace_token(outcome), **transitions
        )

    async def get_activity(self, arguments: TokenReference, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.reads.activity(arguments.session_token)
        found = outcome.result
        meta = {
            **transitions_json(found.workflow, outcome.record),
            "unattached_checkpoints": [checkpoint.id for checkpoint in find_unattached_checkpoints(found.activity)],
        }
        return render_document(context, add_header(outcome, found.source), outcome, **meta)

    async def yield_checkpoint(self, arguments: YieldCheckpoint, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.checkpoints.yield_(arguments.session_token, arguments.checkpoint_id, arguments.variables)
        return render_reply(context, yielded_json(context, outcome), outcome)

    async def resume_checkpoint(self, arguments: ResumeCheckpoint, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.checkpoints.resume(arguments.session_token, arguments.variables)
        answer = outcome.result
        body = {
            "status": "resumed",
            "message": "The checkpoint is resolved. Go on with the step behind it.",
            "checkpoint_id": answer.checkpoint,
            **answer_json(answer),
            "variables": answer.effect.get("setVariable", {}),
            "session_token": outcome.text_token,
        }
        return render_reply(context, body, outcome)

    async def present_checkpoint(self, arguments: PresentCheckpoint, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.checkpoints.present(_find_handle(arguments))
        presented = outcome.result
        body = presented.definition.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
        body["blocking"] = presented.definition.blocking
        if presented.demands_person:
            body["answered_by"] = "person"
        if presented.answer is not None:
            body["answer"] = answer_json(presented.answer)
        return render_document(context, encode_toon({**body, "checkpoint_handle": outcome.text_token}), outcome)

    async def respond_checkpoint(self, arguments: RespondCheckpoint, context: CallContext) -> Outcome:
        service = await self.app.workflows()
        await self.require_free_session(context, "respond_checkpoint", _find_handle(arguments))
        choice = AnswerChoice(none_if_unset(arguments.option_id), arguments.auto_advance, arguments.condition_not_met)
        try:
            outcome = await service.checkpoints.respond(_find_handle(arguments), choice, elicited=context.person_requests)
        except PersonNeeded as needed:
            return await self.ask_person(context, needed, "respond_checkpoint", _find_handle(arguments))
        return render_reply(context, resolved_json(outcome.result, outcome.text_token), outcome)

    async def get_skills(self, arguments: GetSkills, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.reads.workflow_skills(arguments.session_token, supporting=False)
        skill = outcome.result[0] if outcome.result else None
        head = ["scope: workflow", f"session_token: {outcome.text_token}"]
        if skill is not None and not skill.text:
            head.append(f"failed_skills: {skill.id}")
        body = [""]
        if skill is not None and skill.text:
            digest = find_repeated(context, outcome, arguments, skill_key(skill), skill.text)
            body = _repeated_lines(skill, digest) if digest else ["", "---", "", skill.text]
        return render_document(context, "\n".join([*head, *body]), outcome)

    async def get_skill(self, arguments: GetSkill, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.reads.skill(arguments.session_token, none_if_unset(arguments.step_id))
        skill = outcome.result
        if digest := find_repeated(context, outcome, arguments, skill_key(skill), skill.text):
            lines = [f"session_token: {outcome.text_token}", *_repeated_lines(skill, digest)]
            return render_document(context, "\n".join(lines), outcome)
        return render_document(context, add_header(outcome, skill.text), outcome)

    async def get_resource(self, arguments: GetResource, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.reads.resource(arguments.session_token, arguments.resource_id)
        found = outcome.result
        header = {"resource_id": found.reference, "id": found.id, "version": found.version, "warning": found.problem}
        digest = find_repeated(context, outcome, arguments, f"resource {found.reference}", found.content)
        header_lines = [f"{key}: {value}" for key, value in {**header, "digest": digest}.items() if value]
        return render_document(context, add_header(outcome, UNCHANGED if digest else found.content, *header_lines), outcome)

    async def get_trace(self, arguments: GetTrace, context: CallContext) -> Done:
        service = await self.app.workflows()
        outcome = await service.traces.trace(arguments.session_token, arguments.trace_tokens, after=arguments.after)
        return render_listing(context, trace_json(outcome), outcome)


def _find_handle(arguments: PresentCheckpoint | RespondCheckpoint) -> str:
    token = arguments.checkpoint_handle or arguments.session_token
    if not token:
        raise UsageProblem(MISSING_HANDLE, remedy="Pass the checkpoint_handle that yield_checkpoint returned.")
    return token
