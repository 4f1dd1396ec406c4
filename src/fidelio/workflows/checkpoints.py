"""Service for checkpoints: a worker yields, an orchestrator or a person answers once, the worker resumes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from fidelio.definitions.conditions import Truth
from fidelio.definitions.models import Activity, Checkpoint, Workflow
from fidelio.engine import phrases
from fidelio.engine.answers import AnswerChoice, Resolution, resolve_answer
from fidelio.engine.checkpoints import evaluate_condition, find_checkpoint, find_current_checkpoint, find_instance, needs_person
from fidelio.engine.record import ANSWERED, RESUMED, CheckpointAnswer, CheckpointInstance, Record, fold_drafts
from fidelio.engine.state import Refusal
from fidelio.errors import ComponentNotFound, PersonNeeded, RequestNotFound, WorkflowRefusal
from fidelio.inbox import assurance_of
from fidelio.ledger.audit import check_request
from fidelio.ledger.model import NewEvent
from fidelio.workflows.checkpoint_lookup import CheckpointReference, find_by_handle, find_by_name, find_current
from fidelio.workflows.refusals import cancelled_error, no_activity_error, refusal_error, refuse_ended, refuse_while_waiting
from fidelio.workflows.requests import apply_request_wording, close_with_answer, render_checkpoint, yield_request
from fidelio.workflows.session_definition import SessionDefinition, find_activity, load_definition
from fidelio.workflows.tokens import TokenSubject
from fidelio.workflows.unit_of_work import CallResult, WorkflowCall, WorkflowDecision, WorkflowUnit, build_events


class YieldedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint that was yielded, with its answer if it was answered earlier in this visit."""

    checkpoint: str
    request: str
    answer: CheckpointAnswer | None = None


class PresentedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint with its rendered texts, and its recorded answer, if any."""

    definition: Checkpoint
    request: str
    answer: CheckpointAnswer | None
    demands_person: bool
    condition_holds: Truth = None


class ResolvedCheckpoint(msgspec.Struct, frozen=True):
    """The resolution of an answer to a checkpoint."""

    checkpoint: str
    resolution: Resolution
    workflow: Workflow


class CheckpointService:
    """Carries out the calls on checkpoints."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit

    async def yield_(self, token: str, checkpoint_id: str, variables: Mapping[str, Any]) -> CallResult[YieldedCheckpoint]:
        """Open a request for a checkpoint and close the gate.

        If the checkpoint was answered in this visit, its answer is returned; if it is armed, its open request is returned.
        """

        async def decide(call: WorkflowCall) -> WorkflowDecision[YieldedCheckpoint]:
            record = call.record
            armed = record.find_pending(checkpoint_id) if record.open is None else None
            if armed is None:
                refuse_while_waiting(record, f"yield checkpoint '{checkpoint_id}'")
            definition, checkpoint = await self._load_checkpoint(call, checkpoint_id)
            workflow = definition.workflow
            warnings = self._unit.check_report(workflow, record, variables, definition.drift)
            report = build_events(self._unit.draft_report(workflow, call, variables), call.agent)
            informed = fold_drafts(record, report, self._unit.clock())
            answer = record.find_answer_of(find_instance(workflow, informed, checkpoint_id))
            if (known := answer or armed) is not None:
                yielded = YieldedCheckpoint(checkpoint_id, known.request, answer)
                subject = TokenSubject(checkpoint_id, known.request)
                return WorkflowDecision(yielded, events=report, warnings=warnings, subject=subject, definition=definition)
            draft, request = yield_request(workflow, informed, checkpoint, person=self._unit.policy.requests_demand_person)
            events = (*report, *build_events([draft], call.agent))
            return WorkflowDecision(
                YieldedCheckpoint(checkpoint_id, request.id),
                events=events,
                requests=(request,),
                warnings=warnings,
                definition=definition,
            )

        return await self._unit.perform("yield_checkpoint", token, decide)

    async def present(self, token: str) -> CallResult[PresentedCheckpoint]:
        """Show the checkpoint that a handle refers to."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[PresentedCheckpoint]:
            reference = await find_by_handle(self._unit.ledger, call)
            definition = await self._load_definition(call)
            workflow = definition.workflow
            presented = await self._present(workflow, call.record, _find_checkpoint(workflow, reference.instance), reference)
            subject = TokenSubject(presented.definition.id, reference.request)
            return WorkflowDecision(presented, warnings=definition.warnings, subject=subject, definition=definition)

        return await self._unit.perform("present_checkpoint", token, decide, reading=token)

    async def read(self, token: str, activity_id: str, checkpoint_id: str) -> CallResult[PresentedCheckpoint]:
        """Show a checkpoint of any activity, without opening a request."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[PresentedCheckpoint]:
            definition = await self._load_definition(call)
            activity = find_activity(self._unit, definition, activity_id)
            checkpoint = find_checkpoint(activity, checkpoint_id)
            if checkpoint is None:
                raise _no_checkpoint(activity, checkpoint_id)
            is_current = activity.id == call.record.activity
            reference = find_current(call.record, checkpoint_id) if is_current else None
            return WorkflowDecision(
                await self._present(definition.workflow, call.record, checkpoint, reference),
                warnings=definition.warnings,
                definition=definition,
            )

        return await self._unit.perform("get_checkpoint", token, decide, reading=f"{activity_id}/{checkpoint_id}")

    async def _present(
        self, workflow: Workflow, record: Record, checkpoint: Checkpoint, reference: CheckpointReference | None
    ) -> PresentedCheckpoint:
        person = needs_person(workflow, record, checkpoint, server=self._unit.policy.demands_person)
        instance = reference.instance if reference is not None else None
        truth = evaluate_condition(workflow, record, checkpoint, instance)
        if reference is None:
            return PresentedCheckpoint(render_checkpoint(workflow, record, checkpoint), "", None, person, truth)
        rendered = await self._render(workflow, record, checkpoint, reference.request)
        answer = reference.answer or record.find_answer_of(reference.instance)
        return PresentedCheckpoint(rendered, reference.request, answer, person, truth)

    async def _render(self, workflow: Workflow, record: Record, checkpoint: Checkpoint, request: str) -> Checkpoint:
        try:
            stored = await self._unit.ledger.request(request)
            await check_request(self._unit.ledger, stored)
            return apply_request_wording(checkpoint, stored)
        except RequestNotFound:
            # The request was opened and answered in the ledger of another server, from which the session was restored.
            return render_checkpoint(workflow, record, checkpoint)

    async def respond(
        self, token: str, choice: AnswerChoice, *, elicited: Collection[str] = ()
    ) -> CallResult[ResolvedCheckpoint]:
        """Record an answer that the model relays, to the checkpoint that the handle refers to.

        `elicited` are the requests that this call has already elicited from a person: their answers are returned, and the
        choice of the model is ignored.
        """

        async def decide(call: WorkflowCall) -> WorkflowDecision[ResolvedCheckpoint]:
            return await self._resolve(call, await find_by_handle(self._unit.ledger, call), choice, elicited)

        return await self._unit.perform("respond_checkpoint", token, decide)

    async def respond_to(
        self, token: str, checkpoint_id: str, choice: AnswerChoice, *, elicited: Collection[str] = ()
    ) -> CallResult[ResolvedCheckpoint]:
        """Record an answer by checkpoint id. The token of the reply refers to the first checkpoint that still waits."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[ResolvedCheckpoint]:
            reference = await find_by_name(self._unit.ledger, call, checkpoint_id)
            return msgspec.structs.replace(await self._resolve(call, reference, choice, elicited), subject=None)

        return await self._unit.perform("respond_checkpoint", token, decide)

    async def _resolve(
        self, call: WorkflowCall, reference: CheckpointReference, choice: AnswerChoice, elicited: Collection[str]
    ) -> WorkflowDecision[ResolvedCheckpoint]:
        definition = await self._load_definition(call)
        workflow = definition.workflow
        answer = reference.answer or call.record.find_answer_of(reference.instance)
        resolution: Resolution | Refusal
        if answer is not None and reference.request in elicited:
            resolution = Resolution(reference.instance, answer.mode, answer.option, answer.effect, repeated=True)
        else:
            resolution = resolve_answer(
                workflow,
                call.record,
                choice,
                self._unit.answer_context(),
                instance=reference.instance,
                earlier=reference.answer,
            )
        if isinstance(resolution, Refusal):
            raise answer_refusal(resolution, reference.request)
        decision = _record_answer(resolution, call, reference.request, workflow)
        return msgspec.structs.replace(decision, warnings=definition.warnings, definition=definition)

    async def resume(self, token: str, variables: Mapping[str, Any]) -> CallResult[CheckpointAnswer]:
        """Record that the worker has read the answer; a repeated call changes nothing."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[CheckpointAnswer]:
            refuse_while_waiting(call.record, "resume")
            answer = call.record.last
            if answer is None or answer.visit != call.record.visit:
                raise _nothing_resolved(call.record)
            if variables or not answer.resumed:
                refuse_ended(call.record)
            definition = await self._load_definition(call)
            workflow = definition.workflow
            warnings = self._unit.check_report(workflow, call.record, variables, definition.drift)
            body = {"checkpoint": answer.checkpoint, "option": answer.option}
            event = () if answer.resumed else (NewEvent(type=RESUMED, body=body, actor=call.agent),)
            events = (*event, *build_events(self._unit.draft_report(workflow, call, variables), call.agent))
            return WorkflowDecision(answer, events=events, warnings=warnings, definition=definition)

        return await self._unit.perform("resume_checkpoint", token, decide)

    async def _load_definition(self, call: WorkflowCall) -> SessionDefinition:
        return await load_definition(self._unit, call.session.id, call.record)

    async def _load_checkpoint(self, call: WorkflowCall, checkpoint_id: str) -> tuple[SessionDefinition, Checkpoint]:
        definition, record = await self._load_definition(call), call.record
        if not record.activity:
            raise no_activity_error(record)
        checkpoint = find_current_checkpoint(definition.workflow, record, checkpoint_id)
        if checkpoint is None:
            raise _no_checkpoint(find_activity(self._unit, definition, record.activity), checkpoint_id)
        return definition, checkpoint


def answer_refusal(refusal: Refusal, request: str) -> WorkflowRefusal:
    """Turn the refusal of an answer into an error; `PersonNeeded` tells the caller to elicit it from a person."""
    if refusal.code != "checkpoint.person":
        return refusal_error(refusal)
    return PersonNeeded(refusal.sentence, remedy=refusal.remedy, reason=refusal.code, request=request)


def _nothing_resolved(record: Record) -> WorkflowRefusal:
    """The error for a worker that has not stopped at a checkpoint in this visit; earlier answers do not count."""
    if record.status == "cancelled":
        return cancelled_error()
    return WorkflowRefusal(
        f"There is no resolved checkpoint in this visit of '{record.activity or 'the start'}'.",
        remedy="Yield one with yield_checkpoint first.",
        reason="checkpoint.not-resolved",
    )


def _record_answer(
    resolution: Resolution, call: WorkflowCall, request: str, workflow: Workflow
) -> WorkflowDecision[ResolvedCheckpoint]:
    resolved = ResolvedCheckpoint(resolution.instance.checkpoint, resolution, workflow)
    subject = TokenSubject(resolution.instance.checkpoint, request)
    if resolution.repeated:
        return WorkflowDecision(resolved, subject=subject)
    channel = "timer" if resolution.mode == "auto_advance" else "relayed"
    assurance, by = assurance_of(channel), f"agent:{call.agent}"
    body = resolution.body(by=by, channel=channel, assurance=assurance)
    event = NewEvent(type=ANSWERED, body=body, actor=call.agent)
    return WorkflowDecision(resolved, events=(event,), requests=(close_with_answer(body),), subject=subject)


def _find_checkpoint(workflow: Workflow, instance: CheckpointInstance) -> Checkpoint:
    activity = workflow.activity(instance.activity)
    for checkpoint in activity.checkpoints if activity else ():
        if checkpoint.id == instance.checkpoint:
            return checkpoint
    raise ComponentNotFound(
        phrases.checkpoint_not_found(instance.checkpoint, instance.activity), remedy="Its definition has changed."
    )


def _no_checkpoint(activity: Activity, checkpoint_id: str) -> ComponentNotFound:
    known = ", ".join(known.id for known in activity.checkpoints) or "none"
    sentence = phrases.checkpoint_not_found(checkpoint_id, activity.id)
    return ComponentNotFound(sentence, remedy=f"Its checkpoints are: {known}.")
