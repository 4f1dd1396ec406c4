"""Checkpoints: a worker stops at one, an orchestrator or a person answers it once, the worker goes on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from fidelio.definitions.conditions import Truth
from fidelio.definitions.library import WorkflowVersion
from fidelio.definitions.models import Activity, Checkpoint, Workflow
from fidelio.engine import phrases
from fidelio.engine.answers import AnswerChoice, AnswerContext, Resolution, resolve_answer
from fidelio.engine.checkpoints import evaluate_condition, find_checkpoint, find_current_checkpoint, find_instance, needs_person
from fidelio.engine.record import ANSWERED, RESUMED, CheckpointAnswer, CheckpointInstance, Record, fold_drafts
from fidelio.engine.state import Refusal, build_refusal, list_warnings
from fidelio.engine.transition_events import check_drift
from fidelio.engine.variables import check_report, check_size, draft_report
from fidelio.errors import ComponentNotFound, PersonNeeded, RequestNotFound, WorkflowRefusal
from fidelio.inbox import assurance_of
from fidelio.ledger.model import NewEvent
from fidelio.workflows.checkpoint_lookup import CheckpointReference, find_by_handle, find_by_name, find_current
from fidelio.workflows.missing import load_definition
from fidelio.workflows.requests import close_with_answer, word_as_asked, word_as_of_now, yield_request
from fidelio.workflows.tokens import About
from fidelio.workflows.unit_of_work import (
    CallResult,
    WorkflowCall,
    WorkflowDecision,
    WorkflowUnit,
    new_events,
    no_activity,
    refusal_error,
    refuse_while_waiting,
)


class YieldedCheckpoint(msgspec.Struct, frozen=True):
    """A question that waits, or the answer that it got before in this visit."""

    checkpoint: str
    request: str
    answer: CheckpointAnswer | None = None


class PresentedCheckpoint(msgspec.Struct, frozen=True):
    """A question in the words in which it is asked, and the answer on record, if there is one."""

    definition: Checkpoint
    request: str
    answer: CheckpointAnswer | None
    demands_person: bool
    condition_holds: Truth = None


class ResolvedCheckpoint(msgspec.Struct, frozen=True):
    """What became of an answer."""

    checkpoint: str
    resolution: Resolution
    workflow: Workflow


class CheckpointService:
    """Everything about checkpoints."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit

    async def yield_(self, token: str, checkpoint_id: str, variables: Mapping[str, Any]) -> CallResult[YieldedCheckpoint]:
        """Closes the gate. A question that was answered in this visit does not close it again; one that waits is handed on."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[YieldedCheckpoint]:
            record = call.record
            armed = record.find_pending(checkpoint_id) if record.open is None else None
            if armed is None:
                refuse_while_waiting(record, f"yield checkpoint '{checkpoint_id}'")
            version, checkpoint = self._definition(call, checkpoint_id)
            said, workflow = self.variable_warnings(version, record, variables), version.workflow
            answer = record.find_answer_of(find_instance(workflow, record, checkpoint_id))
            told = self.variable_events(version, call, variables)
            if (known := answer or armed) is not None:
                yielded = YieldedCheckpoint(checkpoint_id, known.request, answer)
                return WorkflowDecision(yielded, events=told, warnings=said, about=About(checkpoint_id, known.request))
            informed = fold_drafts(record, told, self._unit.clock())
            draft, request = yield_request(workflow, informed, checkpoint, person=self._unit.policy.asks_person)
            events = (*told, *new_events([draft], call.agent))
            return WorkflowDecision(
                YieldedCheckpoint(checkpoint_id, request.id), events=events, requests=(request,), warnings=said
            )

        return await self._unit.perform("yield_checkpoint", token, decide)

    async def present(self, token: str) -> CallResult[PresentedCheckpoint]:
        async def decide(call: WorkflowCall) -> WorkflowDecision[PresentedCheckpoint]:
            meant = await find_by_handle(self._unit.ledger, call)
            workflow = load_definition(self._unit, call).workflow
            presented = await self._presented(workflow, call.record, _find(workflow, meant.instance), meant)
            return WorkflowDecision(presented, about=About(presented.definition.id, meant.request))

        return await self._unit.perform("present_checkpoint", token, decide)

    async def read(self, token: str, activity_id: str, checkpoint_id: str) -> CallResult[PresentedCheckpoint]:
        """A checkpoint of any activity. Looking at it moves nothing."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[PresentedCheckpoint]:
            version = load_definition(self._unit, call)
            activity = self._unit.library.activity(version.workflow.id, activity_id)
            checkpoint = find_checkpoint(activity, checkpoint_id)
            if checkpoint is None:
                raise _no_checkpoint(activity, checkpoint_id)
            here = activity.id == call.record.activity
            meant = find_current(call.record, checkpoint_id) if here else None
            return WorkflowDecision(
                await self._presented(version.workflow, call.record, checkpoint, meant),
                warnings=self.variable_warnings(version, call.record, {}),
            )

        return await self._unit.perform("get_checkpoint", token, decide)

    async def _presented(
        self, workflow: Workflow, record: Record, checkpoint: Checkpoint, meant: CheckpointReference | None
    ) -> PresentedCheckpoint:
        person = needs_person(workflow, record, checkpoint, server=self._unit.policy.answered_by_person)
        truth = evaluate_condition(workflow, record, checkpoint)
        if meant is None:
            return PresentedCheckpoint(word_as_of_now(workflow, record, checkpoint), "", None, person, truth)
        worded = await self._worded(workflow, record, checkpoint, meant.request)
        return PresentedCheckpoint(worded, meant.request, meant.answer or record.find_answer_of(meant.instance), person, truth)

    async def _worded(self, workflow: Workflow, record: Record, checkpoint: Checkpoint, request: str) -> Checkpoint:
        try:
            return word_as_asked(checkpoint, await self._unit.ledger.request(request))
        except RequestNotFound:
            # It was asked and answered on the server that the session comes from.
            return word_as_of_now(workflow, record, checkpoint)

    async def respond(
        self, token: str, choice: AnswerChoice, *, asked_person: Collection[str] = ()
    ) -> CallResult[ResolvedCheckpoint]:
        """An answer that the model passes on, to the question that the handle stands for.

        `asked_person` are the requests that this very call has put to a person: it learns what they said, whatever the model
        had passed on before they spoke.
        """

        async def decide(call: WorkflowCall) -> WorkflowDecision[ResolvedCheckpoint]:
            return self._answered(call, await find_by_handle(self._unit.ledger, call), choice, asked_person)

        return await self._unit.perform("respond_checkpoint", token, decide)

    async def respond_to(
        self, token: str, checkpoint_id: str, choice: AnswerChoice, *, asked_person: Collection[str] = ()
    ) -> CallResult[ResolvedCheckpoint]:
        """The same for one of several questions that wait. The token of the reply stands for the first that is left."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[ResolvedCheckpoint]:
            meant = await find_by_name(self._unit.ledger, call, checkpoint_id)
            return msgspec.structs.replace(self._answered(call, meant, choice, asked_person), about=None)

        return await self._unit.perform("respond_checkpoint", token, decide)

    def _answered(
        self, call: WorkflowCall, meant: CheckpointReference, choice: AnswerChoice, asked_person: Collection[str]
    ) -> WorkflowDecision[ResolvedCheckpoint]:
        version = load_definition(self._unit, call)
        workflow = version.workflow
        given = meant.answer or call.record.find_answer_of(meant.instance)
        if given is not None and meant.request in asked_person:
            resolution: Resolution | Refusal = Resolution(meant.instance, given.mode, given.option, given.effect, repeated=True)
        else:
            resolution = self._resolution(workflow, call.record, choice, meant)
        if isinstance(resolution, Refusal):
            raise answer_refusal(resolution, meant.request)
        decision = _record_answer(resolution, call, meant.request, workflow)
        return msgspec.structs.replace(decision, warnings=self.variable_warnings(version, call.record, {}))

    def _resolution(
        self, workflow: Workflow, record: Record, choice: AnswerChoice, meant: CheckpointReference
    ) -> Resolution | Refusal:
        rules = self._unit.policy
        how = AnswerContext(self._unit.clock(), demands_person=rules.answered_by_person, min_response_ms=rules.min_response_ms)
        return resolve_answer(workflow, record, choice, how, instance=meant.instance, earlier=meant.answer)

    async def resume(self, token: str, variables: Mapping[str, Any]) -> CallResult[CheckpointAnswer]:
        """The worker takes note of the answer. Doing it again changes nothing."""

        async def decide(call: WorkflowCall) -> WorkflowDecision[CheckpointAnswer]:
            refuse_while_waiting(call.record, "resume")
            answer = call.record.last
            if answer is None or answer.visit != call.record.visit:
                raise _nothing_resolved(call.record)
            version = load_definition(self._unit, call)
            said = self.variable_warnings(version, call.record, variables)
            body = {"checkpoint": answer.checkpoint, "option": answer.option}
            event = () if answer.resumed else (NewEvent(type=RESUMED, body=body, actor=call.agent),)
            return WorkflowDecision(answer, events=(*event, *self.variable_events(version, call, variables)), warnings=said)

        return await self._unit.perform("resume_checkpoint", token, decide)

    def _definition(self, call: WorkflowCall, checkpoint_id: str) -> tuple[WorkflowVersion, Checkpoint]:
        version, record = load_definition(self._unit, call), call.record
        if not record.activity:
            raise no_activity()
        checkpoint = find_current_checkpoint(version.workflow, record, checkpoint_id)
        if checkpoint is None:
            raise _no_checkpoint(self._unit.library.activity(record.workflow, record.activity), checkpoint_id)
        return version, checkpoint

    def variable_events(
        self, version: WorkflowVersion, call: WorkflowCall, variables: Mapping[str, Any]
    ) -> tuple[NewEvent, ...]:
        """What puts the variables that an agent reports on record."""
        person = self._unit.policy.answered_by_person
        return new_events(draft_report(version.workflow, call.record, variables, call.agent, person=person), call.agent)

    def variable_warnings(self, version: WorkflowVersion, record: Record, variables: Mapping[str, Any]) -> tuple[str, ...]:
        """The warnings of a call that may report variables; raises where they amount to a refusal."""
        drift, person = check_drift(record, version.workflow.version, version.hash), self._unit.policy.answered_by_person
        problems = [*drift, *check_report(version.workflow, record, variables, person=person)]
        no = check_size(record.variables, variables) or build_refusal(problems, self._unit.fidelity(record))
        if no is not None:
            raise refusal_error(no)
        return tuple(list_warnings(problems))


def answer_refusal(refusal: Refusal, request: str) -> WorkflowRefusal:
    """The refusal of an answer, for whoever can reach a person where only a person may give one."""
    if refusal.code != "checkpoint.person":
        return refusal_error(refusal)
    return PersonNeeded(refusal.sentence, remedy=refusal.remedy, reason=refusal.code, request=request)


def _nothing_resolved(record: Record) -> WorkflowRefusal:
    """What was answered in an earlier activity, or in an earlier visit of this one, is not what the worker stopped at."""
    return WorkflowRefusal(
        f"There is no resolved checkpoint in this visit of '{record.activity or 'the start'}'.",
        remedy="Yield one with yield_checkpoint first.",
        reason="checkpoint.not-resolved",
    )


def _record_answer(
    resolution: Resolution, call: WorkflowCall, request: str, workflow: Workflow
) -> WorkflowDecision[ResolvedCheckpoint]:
    resolved = ResolvedCheckpoint(resolution.instance.checkpoint, resolution, workflow)
    about = About(resolution.instance.checkpoint, request)
    if resolution.repeated:
        return WorkflowDecision(resolved, about=about)
    channel = "timer" if resolution.mode == "auto_advance" else "relayed"
    assurance, by = assurance_of(channel), f"agent:{call.agent}"
    body = resolution.body(by=by, channel=channel, assurance=assurance)
    event = NewEvent(type=ANSWERED, body=body, actor=call.agent)
    return WorkflowDecision(resolved, events=(event,), requests=(close_with_answer(body),), about=about)


def _find(workflow: Workflow, asked: CheckpointInstance) -> Checkpoint:
    activity = workflow.activity(asked.activity)
    for checkpoint in activity.checkpoints if activity else ():
        if checkpoint.id == asked.checkpoint:
            return checkpoint
    raise ComponentNotFound(
        phrases.checkpoint_not_found(asked.checkpoint, asked.activity), remedy="Its definition has changed."
    )


def _no_checkpoint(activity: Activity, checkpoint_id: str) -> ComponentNotFound:
    known = ", ".join(known.id for known in activity.checkpoints) or "none"
    sentence = phrases.checkpoint_not_found(checkpoint_id, activity.id)
    return ComponentNotFound(sentence, remedy=f"Its checkpoints are: {known}.")
