"""The `sessions` dialect: an opaque token names the session, the orchestrator moves it, a worker reads one activity at a time.

Tools translate only: arguments into calls of the service, results into the shapes that clients know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fidelio.clock import now_ms
from fidelio.errors import DefinitionError, FidelioError, PersonNeeded, UsageProblem
from fidelio.surfaces.mcp.house import House
from fidelio.surfaces.mcp.session_parameters import (
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
)
from fidelio.surfaces.mcp.session_replies import (
    EITHER,
    answer_json,
    document,
    headed,
    reply,
    resolved_json,
    transitions,
)
from fidelio.surfaces.mcp.tools import AskPerson, Done, Option, Outcome, ToolTable

if TYPE_CHECKING:
    from fidelio.engine.record import Record
    from fidelio.workflows.asking import Yielded
    from fidelio.workflows.desk import Outcome as Performed
    from fidelio.workflows.service import WorkflowService

INSTRUCTIONS = (
    "Fidelio leads you through a workflow one activity at a time. Call discover for the procedure: list_workflows, "
    "start_session, get_workflow, next_activity, get_activity. At a checkpoint call yield_checkpoint and stop until it was "
    "answered; then call resume_checkpoint. Always pass the newest session_token."
)


class SessionsDialect:
    """The sixteen tools over one house."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._began = now_ms()
        self._asked_person: set[str] = set()

    def tools(self) -> ToolTable:
        from fidelio.surfaces.mcp.session_tools import rows  # noqa: PLC0415  # the descriptions are read only when they are listed

        return ToolTable(rows(self), misused=self._note_misuse)

    async def _note_misuse(self, tool: str, arguments: Mapping[str, Any], error: FidelioError) -> None:
        """A call with bad arguments is on record, too, when it says which session it means."""
        token = arguments.get("session_token") or arguments.get("checkpoint_handle")
        if isinstance(token, str) and token:
            await (await self._house.workflows()).desk.note_misuse(tool, token, error)

    async def discover(self, _: Nothing) -> Done:
        service = await self._house.workflows()
        lines = [f"server: {self._house.settings.server_name}", f"version: {self._house.settings.server_version}"]
        return Done("\n".join([*lines, "", _bootstrap(service)]))

    async def list_workflows(self, _: Nothing) -> Done:
        from fidelio.definitions.writing import to_toon  # noqa: PLC0415  # waits for the first call

        service = await self._house.workflows()
        entries = [entry for entry in service.library.list() if entry.id != "meta" and not entry.broken]
        listed = [{"id": e.id, "title": e.title, "version": e.version, "tags": list(e.tags)} for e in entries]
        return Done(to_toon(listed), structured={"workflows": listed})

    async def health_check(self, _: Nothing) -> Done:
        service = await self._house.workflows()
        count = sum(entry.id != "meta" and not entry.broken for entry in service.library.list())
        return reply(
            {
                "status": "healthy",
                "server": self._house.settings.server_name,
                "version": self._house.settings.server_version,
                "workflows_available": count,
                "uptime_seconds": (now_ms() - self._began) // 1000,
            }
        )

    async def start_session(self, asked: StartSession) -> Done:
        from fidelio.workflows.starting import Asked  # noqa: PLC0415  # everything heavy waits for the first call

        service = await self._house.workflows()
        outcome = await service.sessions.start(
            Asked(asked.workflow_id, asked.agent_id, asked.session_token, asked.parent_session_token, given(asked.fidelity))
        )
        started, workflow = outcome.result, outcome.result.workflow
        about = {"id": workflow.id, "version": workflow.version, "title": workflow.title, "description": workflow.description}
        flags = {name: True for name in ("inherited", "adopted", "recovered") if getattr(started, name)}
        warning = {"warning": started.warning} if started.warning else {}
        return reply({"workflow": about, "session_token": outcome.token, **flags, **warning}, outcome)

    async def get_workflow_status(self, asked: WithToken) -> Done:
        from fidelio.engine.checkpoints import last_checkpoint  # noqa: PLC0415  # waits for the first call

        service = await self._house.workflows()
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
        if record.parent is not None:
            parent = record.parent
            ids = {"session_id": parent.session, "workflow_id": parent.workflow}
            body["parent"] = {**ids, "activity": parent.activity, "version": parent.version}
        if (last := last_checkpoint(record)) is not None:
            body["last_checkpoint"] = last
        if record.suspended_by:
            body["suspended_by"] = record.suspended_by
        if record.unverified:
            body |= {"unverified": True, "claims_to_continue": record.claims_to_continue or None}
        return reply(body, outcome)

    async def get_workflow(self, asked: GetWorkflow) -> Done:
        from fidelio.definitions.writing import to_toon  # noqa: PLC0415  # waits for the first call
        from fidelio.workflows.reading import summary_of  # noqa: PLC0415  # waits for the first call

        service = await self._house.workflows()
        outcome = await service.reads.workflow(asked.session_token)
        found = outcome.result
        skill = f"{found.primary_skill.rstrip()}\n\n---\n\n" if found.primary_skill else ""
        if asked.summary:
            text = to_toon({**summary_of(found.workflow), "session_token": outcome.token})
        else:
            text = headed(outcome, found.source)
        return document(skill + text, outcome)

    async def next_activity(self, asked: NextActivity) -> Done:
        from fidelio.engine.manifests import ActivityDone, StepDone  # noqa: PLC0415  # waits for the first call
        from fidelio.workflows.moving import Move  # noqa: PLC0415  # waits for the first call

        service = await self._house.workflows()
        steps, activities = given(asked.step_manifest), given(asked.activity_manifest)
        move = Move(
            asked.activity_id,
            given(asked.transition_condition),
            None if steps is None else [StepDone(entry.step_id, entry.output) for entry in steps],
            None
            if activities is None
            else [ActivityDone(e.activity_id, e.outcome, given(e.transition_condition)) for e in activities],
            asked.variables,
        )
        outcome = await service.moves.move(asked.session_token, move)
        activity = outcome.result.activity
        body = {"activity_id": asked.activity_id, "name": activity.name if activity else "Completed"}
        ways = transitions(outcome.result.workflow, outcome.record)
        more = {"status": outcome.record.status, "transitions": ways, "session_token": outcome.token}
        return reply({**body, **more}, outcome, trace_token=service.traces.seal(outcome), transitions=ways)

    async def get_activity(self, asked: WithToken) -> Done:
        from fidelio.engine.checkpoints import unattached  # noqa: PLC0415  # waits for the first call

        service = await self._house.workflows()
        outcome = await service.reads.activity(asked.session_token)
        found = outcome.result
        free = [checkpoint.id for checkpoint in unattached(found.activity)]
        ways = transitions(found.workflow, outcome.record)
        return document(headed(outcome, found.source), outcome, transitions=ways, unattached_checkpoints=free)

    async def yield_checkpoint(self, asked: YieldCheckpoint) -> Done:
        service = await self._house.workflows()
        outcome = await service.checkpoints.yield_(asked.session_token, asked.checkpoint_id, asked.variables)
        return reply(_yielded_json(outcome), outcome)

    async def resume_checkpoint(self, asked: ResumeCheckpoint) -> Done:
        service = await self._house.workflows()
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
        from fidelio.definitions.writing import to_toon  # noqa: PLC0415  # waits for the first call

        service = await self._house.workflows()
        outcome = await service.checkpoints.present(_handle(asked))
        presented = outcome.result
        body = presented.definition.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
        body["blocking"] = presented.definition.blocking
        if presented.demands_person:
            body["answered_by"] = "person"
        if presented.answer is not None:
            body["answer"] = answer_json(presented.answer)
        return document(to_toon({**body, "checkpoint_handle": outcome.token}), outcome)

    async def respond_checkpoint(self, asked: RespondCheckpoint) -> Outcome:
        from fidelio.engine.resolving import Choice  # noqa: PLC0415  # waits for the first call

        service = await self._house.workflows()
        choice = Choice(given(asked.option_id), asked.auto_advance, asked.condition_not_met)
        try:
            outcome = await service.checkpoints.respond(_handle(asked), choice, asked_person=self._asked_person)
        except PersonNeeded as needed:
            return self._ask(service, needed)
        return reply(resolved_json(outcome.result, outcome.token), outcome)

    async def get_skills(self, asked: WithToken) -> Done:
        service = await self._house.workflows()
        outcome = await service.reads.workflow_skill(asked.session_token)
        skill = outcome.result
        head = ["scope: workflow", f"session_token: {outcome.token}"]
        if skill is not None and not skill.text:
            head.append(f"failed_skills: {skill.id}")
        body = ["", "---", "", skill.text] if skill is not None and skill.text else [""]
        return document("\n".join([*head, *body]), outcome)

    async def get_skill(self, asked: GetSkill) -> Done:
        service = await self._house.workflows()
        outcome = await service.reads.skill(asked.session_token, given(asked.step_id))
        return document(headed(outcome, outcome.result.text), outcome)

    async def get_resource(self, asked: GetResource) -> Done:
        service = await self._house.workflows()
        outcome = await service.reads.resource(asked.session_token, asked.resource_id)
        found = outcome.result
        named = {"resource_id": found.reference, "id": found.id, "version": found.version}
        lines = [f"{key}: {value}" for key, value in named.items() if value]
        return document(headed(outcome, found.content, *lines), outcome)

    async def get_trace(self, asked: GetTrace) -> Done:
        service = await self._house.workflows()
        outcome = await service.traces.trace(asked.session_token, asked.trace_tokens)
        trace = outcome.result
        body: dict[str, Any] = {"traceId": outcome.session, "source": trace.source}
        if trace.source == "memory":
            body["tracing_enabled"] = True
        body |= {"event_count": len(trace.events), "events": list(trace.events), "session_token": outcome.token}
        if trace.errors:
            body["token_errors"] = list(trace.errors)
        return reply(body, outcome)

    def _ask(self, service: WorkflowService, needed: PersonNeeded) -> AskPerson:
        from fidelio.inbox import Inbox  # noqa: PLC0415  # waits for the first call

        inbox = Inbox(service.desk.ledger)

        async def answered(option: str, who: str) -> None:
            await inbox.answer(needed.request, option, by=f"person:{who}", channel="elicited")
            self._asked_person.add(needed.request)

        async def elsewhere() -> None:
            await inbox.closed(needed.request)

        options = tuple(Option(one.id, one.label, one.description or "") for one in needed.definition.options)
        waiting = Done(str(needed), is_error=True)
        return AskPerson(needed.request, needed.definition.message, options, answered, waiting, elsewhere)


def _bootstrap(service: WorkflowService) -> str:
    """How to begin, in the words of the library; in ours where it has none."""
    try:
        return service.library.source("resource", "00", workflow="meta").content.decode()
    except DefinitionError:
        return f"# How to begin\n\n{INSTRUCTIONS}\n"


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
    message = (
        "Stop here. Give the checkpoint_handle to the orchestrator in a <checkpoint_yield> block and wait; when it is "
        f"resolved, call resume_checkpoint. A person can also answer with: fidelio answer {yielded.request} OPTION"
    )
    return {**body, "request_id": yielded.request, "message": message}


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
