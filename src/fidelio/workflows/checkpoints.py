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
from fidelio.engine.problems import Refusal, build_refusal, list_warnings
from fidelio.engine.record import ANSWERED, RESUMED, CheckpointAnswer, CheckpointInstance, Record, fold_drafts
from fidelio.engine.transition_checks import check_drift
from fidelio.engine.variables import check_report, check_size, draft_report
from fidelio.errors import ComponentNotFound, PersonNeeded, RequestNotFound, WorkflowRefusal
from fidelio.inbox import assurance_of
from fidelio.ledger.model import NewEvent
from fidelio.workflows.checkpoint_lookup import Meant, meant_by_handle, meant_by_name, standing
from fidelio.workflows.gate import no_activity, refuse_while_waiting, refused
from fidelio.workflows.missing import definition_of
from fidelio.workflows.requests import as_asked, as_it_would_be_asked, closing, put
from fidelio.workflows.tokens import About
from fidelio.workflows.unit_of_work import Decision, Desk, Opened, Outcome, written


class Yielded(msgspec.Struct, frozen=True):
    """A question that waits, or the answer that it got before in this visit."""

    checkpoint: str
    request: str
    answer: CheckpointAnswer | None = None


class Presented(msgspec.Struct, frozen=True):
    """A question in the words in which it is asked, and the answer on record, if there is one."""

    definition: Checkpoint
    request: str
    answer: CheckpointAnswer | None
    demands_person: bool
    condition_holds: Truth = None


class Resolved(msgspec.Struct, frozen=True):
    """What became of an answer."""

    checkpoint: str
    resolution: Resolution
    workflow: Workflow


class Asking:
    """Everything about checkpoints."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def yield_(self, token: str, checkpoint_id: str, variables: Mapping[str, Any]) -> Outcome[Yielded]:
        """Closes the gate. A question that was answered in this visit does not close it again; one that waits is handed on."""

        async def decide(opened: Opened) -> Decision[Yielded]:
            record = opened.record
            armed = record.find_pending(checkpoint_id) if record.open is None else None
            if armed is None:
                refuse_while_waiting(record, f"yield checkpoint '{checkpoint_id}'")
            version, checkpoint = self._definition(opened, checkpoint_id)
            said, workflow = self.told(version, record, variables), version.workflow
            answer = record.find_answer_of(find_instance(workflow, record, checkpoint_id))
            told = self.telling(version, opened, variables)
            if (known := answer or armed) is not None:
                yielded = Yielded(checkpoint_id, known.request, answer)
                return Decision(yielded, events=told, warnings=said, about=About(checkpoint_id, known.request))
            informed = fold_drafts(record, told, self._desk.clock())
            draft, request = put(workflow, informed, checkpoint, person=self._desk.rules.asks_person)
            events = (*told, *written([draft], opened.agent))
            return Decision(Yielded(checkpoint_id, request.id), events=events, requests=(request,), warnings=said)

        return await self._desk.perform("yield_checkpoint", token, decide)

    async def present(self, token: str) -> Outcome[Presented]:
        async def decide(opened: Opened) -> Decision[Presented]:
            meant = await meant_by_handle(self._desk.ledger, opened)
            workflow = definition_of(self._desk, opened).workflow
            presented = await self._presented(workflow, opened.record, _find(workflow, meant.instance), meant)
            return Decision(presented, about=About(presented.definition.id, meant.request))

        return await self._desk.perform("present_checkpoint", token, decide)

    async def read(self, token: str, activity_id: str, checkpoint_id: str) -> Outcome[Presented]:
        """A checkpoint of any activity. Looking at it moves nothing."""

        async def decide(opened: Opened) -> Decision[Presented]:
            version = definition_of(self._desk, opened)
            activity = self._desk.library.activity(version.workflow.id, activity_id)
            checkpoint = find_checkpoint(activity, checkpoint_id)
            if checkpoint is None:
                raise _no_checkpoint(activity, checkpoint_id)
            here = activity.id == opened.record.activity
            meant = standing(opened.record, checkpoint_id) if here else None
            return Decision(
                await self._presented(version.workflow, opened.record, checkpoint, meant),
                warnings=self.told(version, opened.record, {}),
            )

        return await self._desk.perform("get_checkpoint", token, decide)

    async def _presented(self, workflow: Workflow, record: Record, checkpoint: Checkpoint, meant: Meant | None) -> Presented:
        person = needs_person(workflow, record, checkpoint, server=self._desk.rules.answered_by_person)
        truth = evaluate_condition(workflow, record, checkpoint)
        if meant is None:
            return Presented(as_it_would_be_asked(workflow, record, checkpoint), "", None, person, truth)
        worded = await self._worded(workflow, record, checkpoint, meant.request)
        return Presented(worded, meant.request, meant.answer or record.find_answer_of(meant.instance), person, truth)

    async def _worded(self, workflow: Workflow, record: Record, checkpoint: Checkpoint, request: str) -> Checkpoint:
        try:
            return as_asked(checkpoint, await self._desk.ledger.request(request))
        except RequestNotFound:
            # It was asked and answered on the server that the session comes from.
            return as_it_would_be_asked(workflow, record, checkpoint)

    async def respond(self, token: str, choice: AnswerChoice, *, asked_person: Collection[str] = ()) -> Outcome[Resolved]:
        """An answer that the model passes on, to the question that the handle stands for.

        `asked_person` are the requests that this very call has put to a person: it learns what they said, whatever the model
        had passed on before they spoke.
        """

        async def decide(opened: Opened) -> Decision[Resolved]:
            return self._answered(opened, await meant_by_handle(self._desk.ledger, opened), choice, asked_person)

        return await self._desk.perform("respond_checkpoint", token, decide)

    async def respond_to(
        self, token: str, checkpoint_id: str, choice: AnswerChoice, *, asked_person: Collection[str] = ()
    ) -> Outcome[Resolved]:
        """The same for one of several questions that wait. The token of the reply stands for the first that is left."""

        async def decide(opened: Opened) -> Decision[Resolved]:
            meant = await meant_by_name(self._desk.ledger, opened, checkpoint_id)
            return msgspec.structs.replace(self._answered(opened, meant, choice, asked_person), about=None)

        return await self._desk.perform("respond_checkpoint", token, decide)

    def _answered(
        self, opened: Opened, meant: Meant, choice: AnswerChoice, asked_person: Collection[str]
    ) -> Decision[Resolved]:
        version = definition_of(self._desk, opened)
        workflow = version.workflow
        given = meant.answer or opened.record.find_answer_of(meant.instance)
        if given is not None and meant.request in asked_person:
            resolution: Resolution | Refusal = Resolution(meant.instance, given.mode, given.option, given.effect, repeated=True)
        else:
            resolution = self._resolution(workflow, opened.record, choice, meant)
        if isinstance(resolution, Refusal):
            raise refused_answer(resolution, meant.request)
        decision = _record_answer(resolution, opened, meant.request, workflow)
        return msgspec.structs.replace(decision, warnings=self.told(version, opened.record, {}))

    def _resolution(self, workflow: Workflow, record: Record, choice: AnswerChoice, meant: Meant) -> Resolution | Refusal:
        rules = self._desk.rules
        how = AnswerContext(self._desk.clock(), demands_person=rules.answered_by_person, min_response_ms=rules.min_response_ms)
        return resolve_answer(workflow, record, choice, how, instance=meant.instance, earlier=meant.answer)

    async def resume(self, token: str, variables: Mapping[str, Any]) -> Outcome[CheckpointAnswer]:
        """The worker takes note of the answer. Doing it again changes nothing."""

        async def decide(opened: Opened) -> Decision[CheckpointAnswer]:
            refuse_while_waiting(opened.record, "resume")
            answer = opened.record.last
            if answer is None or answer.visit != opened.record.visit:
                raise _nothing_resolved(opened.record)
            version = definition_of(self._desk, opened)
            said = self.told(version, opened.record, variables)
            body = {"checkpoint": answer.checkpoint, "option": answer.option}
            event = () if answer.resumed else (NewEvent(type=RESUMED, body=body, actor=opened.agent),)
            return Decision(answer, events=(*event, *self.telling(version, opened, variables)), warnings=said)

        return await self._desk.perform("resume_checkpoint", token, decide)

    def _definition(self, opened: Opened, checkpoint_id: str) -> tuple[WorkflowVersion, Checkpoint]:
        version, record = definition_of(self._desk, opened), opened.record
        if not record.activity:
            raise no_activity()
        checkpoint = find_current_checkpoint(version.workflow, record, checkpoint_id)
        if checkpoint is None:
            raise _no_checkpoint(self._desk.library.activity(record.workflow, record.activity), checkpoint_id)
        return version, checkpoint

    def telling(self, version: WorkflowVersion, opened: Opened, variables: Mapping[str, Any]) -> tuple[NewEvent, ...]:
        """What puts the variables that an agent reports on record."""
        person = self._desk.rules.answered_by_person
        return written(draft_report(version.workflow, opened.record, variables, opened.agent, person=person), opened.agent)

    def told(self, version: WorkflowVersion, record: Record, variables: Mapping[str, Any]) -> tuple[str, ...]:
        """The warnings of a call that may report variables; raises where they amount to a refusal."""
        drift, person = check_drift(record, version.workflow.version, version.hash), self._desk.rules.answered_by_person
        problems = [*drift, *check_report(version.workflow, record, variables, person=person)]
        no = check_size(record.variables, variables) or build_refusal(problems, self._desk.fidelity(record))
        if no is not None:
            raise refused(no)
        return tuple(list_warnings(problems))


def refused_answer(refusal: Refusal, request: str) -> WorkflowRefusal:
    """The refusal of an answer, for whoever can reach a person where only a person may give one."""
    if refusal.code != "checkpoint.person":
        return refused(refusal)
    return PersonNeeded(refusal.sentence, remedy=refusal.remedy, reason=refusal.code, request=request)


def _nothing_resolved(record: Record) -> WorkflowRefusal:
    """What was answered in an earlier activity, or in an earlier visit of this one, is not what the worker stopped at."""
    return WorkflowRefusal(
        f"There is no resolved checkpoint in this visit of '{record.activity or 'the start'}'.",
        remedy="Yield one with yield_checkpoint first.",
        reason="checkpoint.not-resolved",
    )


def _record_answer(resolution: Resolution, opened: Opened, request: str, workflow: Workflow) -> Decision[Resolved]:
    resolved = Resolved(resolution.instance.checkpoint, resolution, workflow)
    about = About(resolution.instance.checkpoint, request)
    if resolution.repeated:
        return Decision(resolved, about=about)
    channel = "timer" if resolution.mode == "auto_advance" else "relayed"
    assurance, by = assurance_of(channel), f"agent:{opened.agent}"
    body = resolution.body(by=by, channel=channel, assurance=assurance)
    event = NewEvent(type=ANSWERED, body=body, actor=opened.agent)
    return Decision(resolved, events=(event,), requests=(closing(body),), about=about)


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
