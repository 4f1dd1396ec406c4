"""One service for workflow sessions; every dialect translates to it.

Each call walks the same way: open the session from its token, bring the record up to date, ask the rules, append in one
transaction what was decided. When somebody else appended in between, the decision is made again on the newer record.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from msgspec import json

from fidelio.clock import Clock, now_ms
from fidelio.definitions.library import Library
from fidelio.definitions.models import Activity, Checkpoint
from fidelio.engine import record as events
from fidelio.engine.conditions import Truth
from fidelio.engine.record import Record, as_json, fold, from_json
from fidelio.engine.transitions import ends_workflow, outgoing, with_defaults
from fidelio.errors import PartNotFound, SequenceConflict, WorkflowRefusal
from fidelio.ids import new_session_id
from fidelio.inbox import new_request
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, NewEvent, NewSession, OpenRequest, Session
from fidelio.ledger.prepared import digest_of
from fidelio.workflows.tokens import SessionTokens

T = TypeVar("T")
ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Opened:
    """A session as a call finds it."""

    session: Session
    record: Record
    agent: str
    token: str


@dataclass(frozen=True, slots=True)
class Way:
    """A way out of the current activity, and whether it is open now."""

    to: str
    holds: Truth
    default: bool


class WorkflowService:
    """Leads agents through workflows."""

    def __init__(self, ledger: Ledger, library: Library, tokens: SessionTokens, *, clock: Clock = now_ms) -> None:
        self._ledger = ledger
        self._tokens = tokens
        self._clock = clock
        self.library = library

    async def start(self, workflow_id: str, *, agent: str) -> Opened:
        workflow = self.library.workflow(workflow_id)
        snapshot = json.encode(self.library.snapshot(workflow_id))
        digest = digest_of(snapshot)
        body = {"workflow": workflow.id, "version": workflow.version, "definition": digest, "agent": agent}
        started = NewEvent(type=events.STARTED, body=body, actor=agent, blobs=(digest,))
        create = NewSession(kind="workflow")
        change = Change(session=new_session_id(), create=create, events=(started,), blobs=(snapshot,))
        return await self._commit(change, Record(), agent=agent)

    async def status(self, token: str) -> Opened:
        return await self._open(token)

    async def enter(self, token: str, activity_id: str, *, condition: str = "") -> Opened:
        """Moves the session to an activity, or to its end."""

        async def decide(opened: Opened) -> Opened:
            _refuse_while_waiting(opened, f"enter {activity_id}")
            workflow = self.library.workflow(opened.record.workflow)
            if ends_workflow(workflow, activity_id):
                event = NewEvent(type=events.COMPLETED, body={"from": opened.record.activity}, actor=opened.agent)
                return await self._append(opened, event)
            activity = self.library.activity(workflow.id, activity_id)
            body = {"activity": activity.id, "from": opened.record.activity, "condition": condition}
            return await self._append(opened, NewEvent(type=events.ENTERED, body=body, actor=opened.agent))

        return await self._deciding(token, decide)

    async def current(self, token: str) -> tuple[Opened, Activity]:
        opened = await self._open(token)
        _refuse_while_waiting(opened, "read the activity")
        return opened, self._activity(opened.record)

    def ways(self, record: Record) -> list[Way]:
        """The ways out of the current activity."""
        workflow = self.library.workflow(record.workflow)
        known = with_defaults(workflow, record.variables)
        return [Way(edge.to, edge.holds(known), edge.default) for edge in outgoing(self._activity(record))]

    async def yield_checkpoint(self, token: str, checkpoint_id: str) -> Opened:
        """Closes the gate until a person has answered; an answered checkpoint does not close it again."""

        async def decide(opened: Opened) -> Opened:
            _refuse_while_waiting(opened, f"yield {checkpoint_id}")
            checkpoint = self._checkpoint(opened.record, checkpoint_id)
            if opened.record.answer_to(checkpoint_id) is not None:
                return opened
            request = _question(opened.record, checkpoint)
            body = {"checkpoint": checkpoint.id, "request": request.id}
            return await self._append(opened, NewEvent(type=events.YIELDED, body=body, actor=opened.agent), request)

        return await self._deciding(token, decide)

    async def resume(self, token: str) -> Opened:
        async def decide(opened: Opened) -> Opened:
            _refuse_while_waiting(opened, "resume")
            if not opened.record.answers:
                raise WorkflowRefusal("No checkpoint has been resolved in this session.", remedy="Yield one first.")
            if opened.record.answers[-1].resumed:
                return opened
            return await self._append(opened, NewEvent(type=events.RESUMED, actor=opened.agent))

        return await self._deciding(token, decide)

    def _activity(self, record: Record) -> Activity:
        if not record.activity:
            raise WorkflowRefusal("No current activity in this session.", remedy="Enter one with next_activity first.")
        return self.library.activity(record.workflow, record.activity)

    def _checkpoint(self, record: Record, checkpoint_id: str) -> Checkpoint:
        activity = self._activity(record)
        for checkpoint in activity.checkpoints:
            if checkpoint.id == checkpoint_id:
                return checkpoint
        known = ", ".join(checkpoint.id for checkpoint in activity.checkpoints) or "none"
        raise PartNotFound(
            f"Checkpoint {checkpoint_id} not found in activity {activity.id}.", remedy=f"Its checkpoints are: {known}."
        )

    async def _open(self, token: str) -> Opened:
        payload = self._tokens.open(token)
        session = await self._ledger.session(payload["sid"])
        record = from_json(session.record)
        missed = await self._ledger.events(session.id, after=record.seq) if session.last_seq > record.seq else ()
        return Opened(session, fold(record, missed), payload.get("aid", "orchestrator"), token)

    async def _deciding(self, token: str, decide: Callable[[Opened], Awaitable[T]]) -> T:
        for _ in range(ATTEMPTS - 1):
            try:
                return await decide(await self._open(token))
            except SequenceConflict:
                continue
        return await decide(await self._open(token))

    async def _append(self, opened: Opened, event: NewEvent, request: OpenRequest | None = None) -> Opened:
        change = Change(session=opened.session.id, events=(event,), requests=(request,) if request else ())
        return await self._commit(change, opened.record, agent=opened.agent)

    async def _commit(self, change: Change, before: Record, *, agent: str) -> Opened:
        """Writes the events together with the record they lead to, or raises when the session has moved on meanwhile."""
        timed = tuple(replace(event, time=self._clock()) for event in change.events)
        after = fold(before, (Foreseen(before.seq + number, event) for number, event in enumerate(timed, start=1)))
        whole = replace(change, expect=before.seq, events=timed, status=after.status, record=as_json(after))
        (done,) = await self._ledger.commit(whole)
        return Opened(done.session, after, agent, self._tokens.make(done.session.id, after, agent=agent))


@dataclass(frozen=True, slots=True)
class Foreseen:
    """An event as the rules will see it once it is written."""

    seq: int
    event: NewEvent

    @property
    def type(self) -> str:
        return self.event.type

    @property
    def time(self) -> int:
        return self.event.time or 0

    @property
    def body(self) -> dict[str, Any]:
        return dict(self.event.body)


def _refuse_while_waiting(opened: Opened, action: str) -> None:
    waiting = opened.record.open
    if waiting is not None:
        raise WorkflowRefusal(
            f"Cannot {action}: Active checkpoint {waiting.checkpoint} in activity {waiting.activity} waits for an answer.",
            remedy=f"A person answers it: fidelio answer {waiting.request} OPTION.",
        )


def _question(record: Record, checkpoint: Checkpoint) -> OpenRequest:
    options = tuple(option.model_dump(mode="json", exclude_defaults=True) for option in checkpoint.options)
    key = f"{record.activity}/{checkpoint.id}#{record.visit}"
    detail = {"workflow": record.workflow, "activity": record.activity, "checkpoint": checkpoint.id, "visit": record.visit}
    return new_request("checkpoint", key, checkpoint.message, options, detail)
