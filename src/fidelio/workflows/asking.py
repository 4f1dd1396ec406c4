"""Checkpoints: a worker stops at one, an orchestrator or a person answers it once, the worker goes on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from fidelio.definitions.library import Version
from fidelio.definitions.models import Checkpoint, Workflow
from fidelio.engine import phrases
from fidelio.engine.checkpoints import asking, current_checkpoint, effect_of
from fidelio.engine.claims import check_drift
from fidelio.engine.record import ANSWERED, RESUMED, YIELDED, Answer, Asked, Record
from fidelio.engine.resolving import Choice, Circumstances, Resolution, demands_person, resolve
from fidelio.engine.variables import check_variables, too_much
from fidelio.engine.verdicts import Refusal, refusal, warnings
from fidelio.errors import PartNotFound, PersonNeeded, RequestNotFound, WorkflowRefusal
from fidelio.inbox import assurance_of, new_request
from fidelio.ledger.model import CloseRequest, NewEvent, OpenRequest, Request
from fidelio.workflows.desk import Decision, Desk, Opened, Outcome
from fidelio.workflows.gate import refuse_while_waiting, refused
from fidelio.workflows.moving import reported
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


class Resolved(msgspec.Struct, frozen=True):
    """What became of an answer."""

    checkpoint: str
    resolution: Resolution
    changed: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Asking:
    """Everything about checkpoints."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def yield_(self, token: str, checkpoint_id: str, variables: Mapping[str, Any]) -> Outcome[Yielded]:
        """Closes the gate. A question that was answered in this visit does not close it again."""

        async def decide(opened: Opened) -> Decision[Yielded]:
            refuse_while_waiting(opened.record, f"yield checkpoint '{checkpoint_id}'")
            version, checkpoint = self._definition(opened.record, checkpoint_id)
            said, workflow = self._told(version, opened.record, variables), version.workflow
            asked = asking(workflow, opened.record, checkpoint_id)
            answer = opened.record.answer_for(asked)
            told = reported(variables, opened.agent)
            if answer is not None:
                about = About(checkpoint_id, answer.request)
                return Decision(Yielded(checkpoint_id, answer.request, answer), events=told, warnings=said, about=about)
            request = self._question(workflow, opened.record, checkpoint, asked)
            body = {"checkpoint": checkpoint_id, "request": request.id, "iteration": asked.iteration}
            event = NewEvent(type=YIELDED, body=body, actor=opened.agent)
            yielded = Yielded(checkpoint_id, request.id)
            return Decision(yielded, events=(*told, event), requests=(request,), warnings=said)

        return await self._desk.perform("yield_checkpoint", token, decide)

    async def present(self, token: str) -> Outcome[Presented]:
        async def decide(opened: Opened) -> Decision[Presented]:
            asked, answer, request = await self._meant(opened)
            workflow = self._desk.library.workflow(opened.record.workflow)
            checkpoint = _find(workflow, asked)
            person = demands_person(workflow, checkpoint, server=self._desk.rules.answered_by_person)
            known = answer or opened.record.answer_for(asked)
            return Decision(Presented(checkpoint, request, known, person), about=About(checkpoint.id, request))

        return await self._desk.perform("present_checkpoint", token, decide)

    async def respond(self, token: str, choice: Choice, *, asked_person: Collection[str] = ()) -> Outcome[Resolved]:
        """An answer that the model passes on.

        `asked_person` are the requests that this very call has put to a person: it learns what they said, whatever the model
        had passed on before they spoke.
        """

        async def decide(opened: Opened) -> Decision[Resolved]:
            asked, answer, request = await self._meant(opened)
            version = self._desk.library.version(opened.record.workflow)
            workflow = version.workflow
            given = answer or opened.record.answer_for(asked)
            if given is not None and request in asked_person:
                resolution: Resolution | Refusal = Resolution(asked, given.mode, given.option, given.effect, repeated=True)
            else:
                resolution = self._resolution(workflow, opened.record, choice, asked, answer)
            if isinstance(resolution, Refusal):
                raise _no(resolution, workflow, asked, request)
            decision = _record_answer(resolution, opened, request)
            return msgspec.structs.replace(decision, warnings=self._told(version, opened.record, {}))

        return await self._desk.perform("respond_checkpoint", token, decide)

    def _resolution(
        self, workflow: Workflow, record: Record, choice: Choice, asked: Asked, answer: Answer | None
    ) -> Resolution | Refusal:
        rules = self._desk.rules
        how = Circumstances(self._desk.clock(), demands_person=rules.answered_by_person, min_response_ms=rules.min_response_ms)
        return resolve(workflow, record, choice, how, asked=asked, earlier=answer)

    async def resume(self, token: str, variables: Mapping[str, Any]) -> Outcome[Answer]:
        """The worker takes note of the answer. Doing it again changes nothing."""

        async def decide(opened: Opened) -> Decision[Answer]:
            refuse_while_waiting(opened.record, "resume")
            answer = opened.record.last
            if answer is None:
                raise WorkflowRefusal(
                    "There is no resolved checkpoint in this session.", remedy="Yield one with yield_checkpoint first."
                )
            said = self._told(self._desk.library.version(opened.record.workflow), opened.record, variables)
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
            activity = self._desk.library.activity(record.workflow, record.activity)
            known = ", ".join(known.id for known in activity.checkpoints) or "none"
            raise PartNotFound(
                phrases.checkpoint_not_found(checkpoint_id, record.activity), remedy=f"Its checkpoints are: {known}."
            )
        return version, checkpoint

    def _told(self, version: Version, record: Record, variables: Mapping[str, Any]) -> tuple[str, ...]:
        """The warnings of a call that may report variables; raises where they amount to a refusal."""
        drift = check_drift(record, version.workflow.version, version.hash)
        problems = [*drift, *check_variables(version.workflow, variables)]
        no = too_much(record.variables, variables) or refusal(problems, record.fidelity)
        if no is not None:
            raise refused(no)
        return tuple(warnings(problems))

    def _question(self, workflow: Workflow, record: Record, checkpoint: Checkpoint, asked: Asked) -> OpenRequest:
        options = tuple(
            {
                "id": option.id,
                "label": option.label,
                "description": option.description or "",
                "effect": effect_of(option.effect),
            }
            for option in checkpoint.options
        )
        person = demands_person(workflow, checkpoint, server=self._desk.rules.answered_by_person)
        place = {"workflow": record.workflow, "activity": asked.activity, "checkpoint": checkpoint.id}
        times = {"visit": asked.visit, "iteration": asked.iteration}
        return new_request(
            "checkpoint",
            asked.key,
            checkpoint.message,
            options,
            {**place, **times, "answered_by": "person" if person else "any"},
        )

    async def _meant(self, opened: Opened) -> tuple[Asked, Answer | None, str]:
        """The asking that a handle means: the one it was made for, else the one that waits."""
        named = opened.claims.req
        waiting = opened.record.waiting
        if named is None:
            if waiting is None:
                raise _not_active()
            return waiting.asked, None, waiting.request
        if waiting is not None and waiting.request == named:
            return waiting.asked, None, waiting.request
        return await self._earlier(opened, named)

    async def _earlier(self, opened: Opened, named: str) -> tuple[Asked, Answer | None, str]:
        try:
            request = await self._desk.ledger.request(named)
        except RequestNotFound:
            raise _not_active() from None
        if request.session != opened.session.id:
            raise _not_active()
        asked = Asked(
            request.detail["checkpoint"], request.detail["activity"], request.detail["visit"], request.detail["iteration"]
        )
        return asked, _answer_of(request, asked), request.id


def _no(refusal: Refusal, workflow: Workflow, asked: Asked, request: str) -> WorkflowRefusal:
    if refusal.code != "checkpoint.person":
        return refused(refusal)
    definition = _find(workflow, asked)
    needed = PersonNeeded(refusal.sentence, remedy=refusal.remedy, request=request, definition=definition)
    needed.reason = refusal.code
    return needed


def _record_answer(resolution: Resolution, opened: Opened, request: str) -> Decision[Resolved]:
    resolved = Resolved(resolution.asked.checkpoint, resolution, resolution.effect.get("setVariable", {}))
    about = About(resolution.asked.checkpoint, request)
    if resolution.repeated:
        return Decision(resolved, about=about)
    channel = "timer" if resolution.mode == "auto_advance" else "relayed"
    assurance, by = assurance_of(channel), f"agent:{opened.agent}"
    body = resolution.body(by=by, channel=channel, assurance=assurance)
    close = CloseRequest(
        id=resolution.request,
        state="dismissed" if resolution.dismissed else "answered",
        answer={"option": resolution.option, "mode": resolution.mode},
        by=by,
        channel=channel,
        assurance=assurance,
    )
    event = NewEvent(type=ANSWERED, body=body, actor=opened.agent)
    return Decision(resolved, events=(event,), requests=(close,), about=about)


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


def _not_active() -> WorkflowRefusal:
    return WorkflowRefusal(phrases.NO_ACTIVE_CHECKPOINT, remedy="The worker yields the checkpoint first.")
