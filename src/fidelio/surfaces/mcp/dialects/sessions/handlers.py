"""The `sessions` dialect: an opaque token names the session, the orchestrator moves it, a worker reads one activity at a time.

Tools translate only: arguments into calls of the service, results into the shapes that clients know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fidelio.errors import DefinitionError, PersonNeeded, UsageProblem
from fidelio.surfaces.mcp.asked import asked_person
from fidelio.surfaces.mcp.dialects.common import (
    EITHER,
    Dialect,
    answer_json,
    document,
    headed,
    listing,
    offered,
    procedure,
    reply,
    resolved_json,
    started_json,
    trace_json,
    transitions,
    with_warnings,
)
from fidelio.surfaces.mcp.dialects.sessions.parameters import (
    GetResource,
    GetSkill,
    GetTrace,
    GetWorkflow,
    NextActivity,
    Nothing,
    PresentCheckpoint,
    RespondCheckpoint,
    ResumeCheckpoint,
    StartSession,
    WithToken,
    YieldCheckpoint,
    given,
    move_of,
)
from fidelio.surfaces.mcp.hints import typed_here
from fidelio.surfaces.mcp.resources import schema_resources
from fidelio.toolkit.tools import Done, Outcome, ToolTable

if TYPE_CHECKING:
    from fidelio.definitions.models import Workflow
    from fidelio.engine.record import Record
    from fidelio.workflows.checkpoints import Yielded
    from fidelio.workflows.service import WorkflowService
    from fidelio.workflows.unit_of_work import Outcome as Performed

INSTRUCTIONS = (
    "Fidelio leads you through a workflow one activity at a time. Call discover for the procedure: list_workflows, "
    "start_session, get_workflow, next_activity, get_activity. At a checkpoint call yield_checkpoint and stop until it was "
    "answered; then call resume_checkpoint. Always pass the newest session_token."
)


class SessionsDialect(Dialect):
    """The sixteen tools over one house."""

    _newest: tuple[Workflow, str] | None = None

    def tools(self) -> ToolTable:
        from fidelio.surfaces.mcp.dialects.sessions.declarations import rows  # noqa: PLC0415  # the descriptions are read only when they are listed

        return ToolTable(
            rows(self),
            instructions=INSTRUCTIONS,
            resources=schema_resources(),
            misused=self.note_misuse,
            worded=self.worded,
            program=self.house.program,
        )

    async def discover(self, _: Nothing) -> Done:
        service = await self.house.workflows()
        lines = [f"server: {self.house.settings.server_name}", f"version: {self.house.settings.server_version}"]
        return Done("\n".join([*lines, "", procedure(service, INSTRUCTIONS)]))

    async def list_workflows(self, _: Nothing) -> Done:
        from fidelio.definitions.toon_writer import encode_toon  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        listed = [{"id": e.id, "title": e.title, "version": e.version, "tags": list(e.tags)} for e in offered(service)]
        return Done(encode_toon(listed))

    async def health_check(self, _: Nothing) -> Done:
        return reply(await self.health())

    async def start_session(self, asked: StartSession) -> Done:
        from fidelio.workflows.start import Asked  # noqa: PLC0415  # everything heavy waits for the first call

        service = await self.house.workflows()
        outcome = await service.sessions.start(
            Asked(asked.workflow_id, asked.agent_id, asked.session_token, asked.parent_session_token, given(asked.fidelity))
        )
        return reply(started_json(outcome), outcome)

    async def get_workflow_status(self, asked: WithToken) -> Done:
        from fidelio.engine.checkpoints import describe_last_checkpoint  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        outcome = await service.status(asked.session_token)
        record = outcome.record
        body: dict[str, Any] = {
            "status": record.status,
            "current_activity": record.activity or "none",
            "completed_activities": list(record.completed),
            "workflow": _workflow_json(service, record.workflow),
            "variables": record.variables,
            "open_checkpoint": record.waiting.checkpoint if record.waiting else None,
            "transitions": _ways_if_known(service, record),
            "session_token": outcome.token,
        }
        if record.armed:
            body["pending_checkpoints"] = [one.checkpoint for one in record.pending]
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
        return reply(body, outcome)

    async def get_workflow(self, asked: GetWorkflow) -> Done:
        from fidelio.definitions.toon_writer import encode_toon  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        outcome = await service.reads.workflow(asked.session_token)
        found = outcome.result
        skill = f"{found.primary_skill.rstrip()}\n\n---\n\n" if found.primary_skill else ""
        if asked.summary:
            text = (
                f"{self._summary(found.workflow)}\n{encode_toon(with_warnings({}, outcome) | {'session_token': outcome.token})}"
            )
        else:
            text = headed(outcome, found.source)
        return document(skill + text, outcome)

    def _summary(self, workflow: Workflow) -> str:
        """Writing it takes longer than all the rest of a call, and every session asks for it: the newest is kept."""
        from fidelio.definitions.toon_writer import encode_toon  # noqa: PLC0415  # waits for the first call
        from fidelio.workflows.content import SUMMARY, summary_of  # noqa: PLC0415  # waits for the first call

        if self._newest is None or self._newest[0] is not workflow:
            self._newest = workflow, encode_toon(summary_of(workflow, SUMMARY))
        return self._newest[1]

    async def next_activity(self, asked: NextActivity) -> Done:
        service = await self.house.workflows()
        outcome = await service.moves.move(asked.session_token, move_of(asked))
        activity = outcome.result.activity
        name, title = (activity.id, activity.name) if activity is not None else (asked.activity_id, "Completed")
        body = {"activity_id": name, "name": title}
        ways = transitions(outcome.result.workflow, outcome.record)
        more = {"status": outcome.record.status, "transitions": ways, "session_token": outcome.token}
        return reply({**body, **more}, outcome, trace_token=service.traces.seal(outcome), transitions=ways)

    async def get_activity(self, asked: WithToken) -> Done:
        from fidelio.engine.checkpoints import find_unattached_checkpoints  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        outcome = await service.reads.activity(asked.session_token)
        found = outcome.result
        free = [checkpoint.id for checkpoint in find_unattached_checkpoints(found.activity)]
        ways = transitions(found.workflow, outcome.record)
        return document(headed(outcome, found.source), outcome, transitions=ways, unattached_checkpoints=free)

    async def yield_checkpoint(self, asked: YieldCheckpoint) -> Done:
        service = await self.house.workflows()
        outcome = await service.checkpoints.yield_(asked.session_token, asked.checkpoint_id, asked.variables)
        return reply(_yielded_json(outcome), outcome)

    async def resume_checkpoint(self, asked: ResumeCheckpoint) -> Done:
        service = await self.house.workflows()
        outcome = await service.checkpoints.resume(asked.session_token, asked.variables)
        answer = outcome.result
        body = {
            "status": "resumed",
            "message": "The checkpoint is resolved. Go on with the step behind it.",
            "checkpoint_id": answer.checkpoint,
            **answer_json(answer),
            "variables": answer.effect.get("setVariable", {}),
            "session_token": outcome.token,
        }
        return reply(body, outcome)

    async def present_checkpoint(self, asked: PresentCheckpoint) -> Done:
        from fidelio.definitions.toon_writer import encode_toon  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        outcome = await service.checkpoints.present(_handle(asked))
        presented = outcome.result
        body = presented.definition.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
        body["blocking"] = presented.definition.blocking
        if presented.demands_person:
            body["answered_by"] = "person"
        if presented.answer is not None:
            body["answer"] = answer_json(presented.answer)
        return document(encode_toon({**body, "checkpoint_handle": outcome.token}), outcome)

    async def respond_checkpoint(self, asked: RespondCheckpoint) -> Outcome:
        from fidelio.engine.answers import AnswerChoice  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        choice = AnswerChoice(given(asked.option_id), asked.auto_advance, asked.condition_not_met)
        try:
            outcome = await service.checkpoints.respond(_handle(asked), choice, asked_person=asked_person())
        except PersonNeeded as needed:
            return await self.ask(service, needed, "respond_checkpoint", _handle(asked))
        return reply(resolved_json(outcome.result, outcome.token), outcome)

    async def get_skills(self, asked: WithToken) -> Done:
        service = await self.house.workflows()
        outcome = await service.reads.workflow_skills(asked.session_token, supporting=False)
        skill = outcome.result[0] if outcome.result else None
        head = ["scope: workflow", f"session_token: {outcome.token}"]
        if skill is not None and not skill.text:
            head.append(f"failed_skills: {skill.id}")
        body = ["", "---", "", skill.text] if skill is not None and skill.text else [""]
        return document("\n".join([*head, *body]), outcome)

    async def get_skill(self, asked: GetSkill) -> Done:
        service = await self.house.workflows()
        outcome = await service.reads.skill(asked.session_token, given(asked.step_id))
        return document(headed(outcome, outcome.result.text), outcome)

    async def get_resource(self, asked: GetResource) -> Done:
        service = await self.house.workflows()
        outcome = await service.reads.resource(asked.session_token, asked.resource_id)
        found = outcome.result
        named = {"resource_id": found.reference, "id": found.id, "version": found.version}
        lines = [f"{key}: {value}" for key, value in named.items() if value]
        return document(headed(outcome, found.content, *lines), outcome)

    async def get_trace(self, asked: GetTrace) -> Done:
        service = await self.house.workflows()
        outcome = await service.traces.trace(asked.session_token, asked.trace_tokens, after=asked.after)
        return listing(trace_json(outcome), outcome)


def _handle(asked: PresentCheckpoint | RespondCheckpoint) -> str:
    token = asked.checkpoint_handle or asked.session_token
    if not token:
        raise UsageProblem(EITHER, remedy="Pass the checkpoint_handle that yield_checkpoint returned.")
    return token


def _yielded_json(outcome: Performed[Yielded]) -> dict[str, Any]:
    yielded = outcome.result
    body = {"status": "yielded", "checkpoint_id": yielded.checkpoint, "checkpoint_handle": outcome.token}
    if yielded.answer is not None:
        known = {"already_resolved": True, "resolved_option": yielded.answer.option or None, "effect": yielded.answer.effect}
        return {**body, **known, "message": "This checkpoint was answered before in this visit. Go on."}
    from fidelio.workflows.gate import only_a_person  # noqa: PLC0415  # the first reply does not wait for it

    waiting = outcome.record.waiting
    demands = waiting is not None and waiting.request == yielded.request and waiting.person
    also = f"A person can also answer with: fidelio answer {yielded.request} OPTION"
    message = (
        "Stop here. Give the checkpoint_handle to the orchestrator in a <checkpoint_yield> block and wait; when it is "
        f"resolved, call resume_checkpoint. {only_a_person(yielded.request) if demands else also}"
    )
    return {**body, "request_id": yielded.request, "message": typed_here(message)}


def _workflow_json(service: WorkflowService, workflow_id: str) -> dict[str, Any]:
    try:
        entry = service.library.entry(workflow_id)
    except DefinitionError:
        return {"id": workflow_id}
    return {"id": entry.id, "version": entry.version, "title": entry.title}


def _ways_if_known(service: WorkflowService, record: Record) -> list[dict[str, Any]]:
    """The status of a session can be read also when its definition has gone or is broken."""
    try:
        return transitions(service.library.workflow(record.workflow), record)
    except DefinitionError:
        return []
