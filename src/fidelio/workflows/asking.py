"""Checkpoints: a worker stops at one, an orchestrator or a person answers it once, the worker goes on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from fidelio.definitions.library import Version
from fidelio.definitions.models import Activity, Checkpoint, Workflow
from fidelio.engine import phrases
from fidelio.engine.checkpoints import asking, condition_holds, current_checkpoint, find_checkpoint
from fidelio.engine.claims import check_drift
from fidelio.engine.conditions import Truth
from fidelio.engine.record import ANSWERED, RESUMED, YIELDED, Answer, Asked, Record
from fidelio.engine.resolving import Choice, Circumstances, Resolution, demands_person, resolve
from fidelio.engine.variables import check_variables, too_much
from fidelio.engine.verdicts import Refusal, refusal, warnings
from fidelio.errors import PartNotFound, PersonNeeded, RequestNotFound, WorkflowRefusal
from fidelio.inbox import assurance_of
from fidelio.ledger.model import NewEvent, Request
from fidelio.workflows.desk import Decision, Desk, Opened, Outcome
from fidelio.workflows.gate import refuse_while_waiting, refused
from fidelio.workflows.moving import reported
from fidelio.workflows.questions import closing, question
from fidelio.workflows.tokens import About


class Yielded(msgspec.Struct, frozen=True):
    """A question that waits, or the answer that it got before in this visit."""

    checkpoint: str
    request: str
    answer: Answer | None = None


class Presented(msgspec.Struct, frozen=True):
    """A question as its definition writes it, and the answer on record, if there is one."""

    definition: Checkpoint
    request: str
    answer: Answer | None
    demands_person: bool
    condition_holds: Truth = None


class Resolved(msgspec.Struct, frozen=True):
    """What became of an answer."""

    checkpoint: str
    resolution: Resolution
    workflow: Workflow


class _Meant(msgspec.Struct, frozen=True):
    """The asking that a call is about, the request that stands for it, and its answer where it has one."""

    asked: Asked
    request: str
    answer: Answer | None = None


class Asking:
    """Everything about checkpoints."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def yield_(self, token: str, checkpoint_id: str, variables: Mapping[str, Any]) -> Outcome[Yielded]:
        """Closes the gate. A question that was answered in this visit does not close it again; one that waits is handed on."""

        async def decide(opened: Opened) -> Decision[Yielded]:
            record = opened.record
            armed = record.pending_as(checkpoint_id) if record.open is None else None
            if armed is None:
                refuse_while_waiting(record, f"yield checkpoint '{checkpoint_id}'")
            version, checkpoint = self._definition(record, checkpoint_id)
            said, workflow = self.told(version, record, variables), version.workflow
            asked = asking(workflow, record, checkpoint_id)
            answer = record.answer_for(asked)
            told = reported(variables, opened.agent)
            if (known := answer or armed) is not None:
                yielded = Yielded(checkpoint_id, known.request, answer)
                return Decision(yielded, events=told, warnings=said, about=About(checkpoint_id, known.request))
            request = question(workflow, checkpoint, asked, person=self._desk.rules.answered_by_person)
            body = {"checkpoint": checkpoint_id, "request": request.id, "iteration": asked.iteration}
            event = NewEvent(type=YIELDED, body=body, actor=opened.agent)
            yielded = Yielded(checkpoint_id, request.id)
            return Decision(yielded, events=(*told, event), requests=(request,), warnings=said)

        return await self._desk.perform("yield_checkpoint", token, decide)

    async def present(self, token: str) -> Outcome[Presented]:
        async def decide(opened: Opened) -> Decision[Presented]:
            meant = await self._meant(opened)
            workflow = self._desk.library.workflow(opened.record.workflow)
            presented = self._presented(workflow, opened.record, _find(workflow, meant.asked), meant)
            return Decision(presented, about=About(presented.definition.id, meant.request))

        return await self._desk.perform("present_checkpoint", token, decide)

    async def read(self, token: str, activity_id: str, checkpoint_id: str) -> Outcome[Presented]:
        """A checkpoint of any activity. Looking at it moves nothing."""

        async def decide(opened: Opened) -> Decision[Presented]:
            version = self._desk.library.version(opened.record.workflow)
            activity = self._desk.library.activity(version.workflow.id, activity_id)
            checkpoint = find_checkpoint(activity, checkpoint_id)
            if checkpoint is None:
                raise _no_checkpoint(activity, checkpoint_id)
            here = activity.id == opened.record.activity
            meant = _standing(opened.record, checkpoint_id) if here else None
            return Decision(
                self._presented(version.workflow, opened.record, checkpoint, meant),
                warnings=self.told(version, opened.record, {}),
            )

        return await self._desk.perform("get_checkpoint", token, decide)

    def _presented(self, workflow: Workflow, record: Record, checkpoint: Checkpoint, meant: _Meant | None) -> Presented:
        person = demands_person(workflow, checkpoint, server=self._desk.rules.answered_by_person)
        truth = condition_holds(workflow, record, checkpoint)
        if meant is None:
            return Presented(checkpoint, "", None, person, truth)
        return Presented(checkpoint, meant.request, meant.answer or record.answer_for(meant.asked), person, truth)

    async def respond(self, token: str, choice: Choice, *, asked_person: Collection[str] = ()) -> Outcome[Resolved]:
        """An answer that the model passes on, to the question that the handle stands for.

        `asked_person` are the requests that this very call has put to a person: it learns what they said, whatever the model
        had passed on before they spoke.
        """

        async def decide(opened: Opened) -> Decision[Resolved]:
            return self._answered(opened, await self._meant(opened), choice, asked_person)

        return await self._desk.perform("respond_checkpoint", token, decide)

    async def respond_to(
        self, token: str, checkpoint_id: str, choice: Choice, *, asked_person: Collection[str] = ()
    ) -> Outcome[Resolved]:
        """The same for one of several questions that wait. The token of the reply stands for the first that is left."""

        async def decide(opened: Opened) -> Decision[Resolved]:
            meant = _standing(opened.record, checkpoint_id)
            if meant is None:
                raise _not_pending(opened.record, checkpoint_id)
            return msgspec.structs.replace(self._answered(opened, meant, choice, asked_person), about=None)

        return await self._desk.perform("respond_checkpoint", token, decide)

    def _answered(self, opened: Opened, meant: _Meant, choice: Choice, asked_person: Collection[str]) -> Decision[Resolved]:
        version = self._desk.library.version(opened.record.workflow)
        workflow = version.workflow
        given = meant.answer or opened.record.answer_for(meant.asked)
        if given is not None and meant.request in asked_person:
            resolution: Resolution | Refusal = Resolution(meant.asked, given.mode, given.option, given.effect, repeated=True)
        else:
            resolution = self._resolution(workflow, opened.record, choice, meant)
        if isinstance(resolution, Refusal):
            raise refused_answer(resolution, workflow, meant.asked, meant.request)
        decision = _record_answer(resolution, opened, meant.request, workflow)
        return msgspec.structs.replace(decision, warnings=self.told(version, opened.record, {}))

    def _resolution(self, workflow: Workflow, record: Record, choice: Choice, meant: _Meant) -> Resolution | Refusal:
        rules = self._desk.rules
        how = Circumstances(self._desk.clock(), demands_person=rules.answered_by_person, min_response_ms=rules.min_response_ms)
        return resolve(workflow, record, choice, how, asked=meant.asked, earlier=meant.answer)

    async def resume(self, token: str, variables: Mapping[str, Any]) -> Outcome[Answer]:
        """The worker takes note of the answer. Doing it again changes nothing."""

        async def decide(opened: Opened) -> Decision[Answer]:
            refuse_while_waiting(opened.record, "resume")
            answer = opened.record.last
            if answer is None:
                raise WorkflowRefusal(
                    "There is no resolved checkpoint in this session.", remedy="Yield one with yield_checkpoint first."
                )
            said = self.told(self._desk.library.version(opened.record.workflow), opened.record, variables)
            body = {"checkpoint": answer.checkpoint, "option": answer.option}
            event = () if answer.resumed else (NewEvent(type=RESUMED, body=body, actor=opened.agent),)
            return Decision(answer, events=(*event, *reported(variables, opened.agent)), warnings=said)

        return await self._desk.perform("resume_checkpoint", token, decide)

    def _definition(self, record: Record, checkpoint_id: str) -> tuple[Version, Checkpoint]:
        version = self._desk.library.version(record.workflow)
        if not record.activity:
            raise WorkflowRefusal(phrases.NO_CURRENT_ACTIVITY, remedy="Call next_activity first.")
        checkpoint = current_checkpoint(version.workflow, record, checkpoint_id)
        if checkpoint is None:
            raise _no_checkpoint(self._desk.library.activity(record.workflow, record.activity), checkpoint_id)
        return version, checkpoint

    def told(self, version: Version, record: Record, variables: Mapping[str, Any]) -> tuple[str, ...]:
        """The warnings of a call that may report variables; raises where they amount to a refusal."""
        drift = check_drift(record, version.workflow.version, version.hash)
        problems = [*drift, *check_variables(version.workflow, variables)]
        no = too_much(record.variables, variables) or refusal(problems, record.fidelity)
        if no is not None:
            raise refused(no)
        return tuple(warnings(problems))

    async def _meant(self, opened: Opened) -> _Meant:
        """The asking that a handle means: the one it was made for, else the one that waits."""
        named = opened.claims.req
        waiting = opened.record.waiting
        if waiting is not None and named in (None, waiting.request):
            return _Meant(waiting.asked, waiting.request)
        if named is None:
            raise _not_active()
        return await self._earlier(opened, named)

    async def _earlier(self, opened: Opened, named: str) -> _Meant:
        try:
            request = await self._desk.ledger.request(named)
        except RequestNotFound:
            raise _not_active() from None
        if request.session != opened.session.id:
            raise _not_active()
        asked = Asked(
            request.detail["checkpoint"], request.detail["activity"], request.detail["visit"], request.detail["iteration"]
        )
        return _Meant(asked, request.id, _answer_of(request, asked))


def _standing(record: Record, checkpoint_id: str) -> _Meant | None:
    """The question as it stands in the present visit: it waits, or it has got its answer."""
    if (waiting := record.pending_as(checkpoint_id)) is not None:
        return _Meant(waiting.asked, waiting.request)
    answer = record.answer_to(checkpoint_id)
    return _Meant(answer.asked, answer.request, answer) if answer is not None else None


def refused_answer(refusal: Refusal, workflow: Workflow, asked: Asked, request: str) -> WorkflowRefusal:
    """The refusal of an answer, for whoever can reach a person where only a person may give one."""
    if refusal.code != "checkpoint.person":
        return refused(refusal)
    definition = _find(workflow, asked)
    needed = PersonNeeded(refusal.sentence, remedy=refusal.remedy, request=request, definition=definition)
    needed.reason = refusal.code
    return needed


def _record_answer(resolution: Resolution, opened: Opened, request: str, workflow: Workflow) -> Decision[Resolved]:
    resolved = Resolved(resolution.asked.checkpoint, resolution, workflow)
    about = About(resolution.asked.checkpoint, request)
    if resolution.repeated:
        return Decision(resolved, about=about)
    channel = "timer" if resolution.mode == "auto_advance" else "relayed"
    assurance, by = assurance_of(channel), f"agent:{opened.agent}"
    body = resolution.body(by=by, channel=channel, assurance=assurance)
    event = NewEvent(type=ANSWERED, body=body, actor=opened.agent)
    return Decision(resolved, events=(event,), requests=(closing(body),), about=about)


def _answer_of(request: Request, asked: Asked) -> Answer | None:
    if request.state not in ("answered", "dismissed"):
        return None
    option = request.answer.get("option", "")
    effect: dict[str, Any] = next((known["effect"] for known in request.options if known["id"] == option), {})
    return Answer(
        asked.checkpoint,
        asked.activity,
        asked.visit,
        option,
        effect,
        request.answered_by,
        request.channel,
        request.assurance,
        request.closed_at or 0,
        resumed=True,
        iteration=asked.iteration,
        mode=request.answer.get("mode", "option"),
        request=request.id,
    )


def _find(workflow: Workflow, asked: Asked) -> Checkpoint:
    activity = workflow.activity(asked.activity)
    for checkpoint in activity.checkpoints if activity else ():
        if checkpoint.id == asked.checkpoint:
            return checkpoint
    raise PartNotFound(phrases.checkpoint_not_found(asked.checkpoint, asked.activity), remedy="Its definition has changed.")


def _no_checkpoint(activity: Activity, checkpoint_id: str) -> PartNotFound:
    known = ", ".join(known.id for known in activity.checkpoints) or "none"
    sentence = phrases.checkpoint_not_found(checkpoint_id, activity.id)
    return PartNotFound(sentence, remedy=f"Its checkpoints are: {known}.")


def _not_pending(record: Record, checkpoint_id: str) -> WorkflowRefusal:
    waiting = [one.checkpoint for one in record.pending]
    error = WorkflowRefusal(
        phrases.not_pending(checkpoint_id, waiting),
        remedy="Answer one of those." if waiting else "Nothing waits for an answer: go on with next_activity.",
    )
    error.reason = "checkpoint.not-pending"
    return error


def _not_active() -> WorkflowRefusal:
    return WorkflowRefusal(phrases.NO_ACTIVE_CHECKPOINT, remedy="The worker yields the checkpoint first.")
