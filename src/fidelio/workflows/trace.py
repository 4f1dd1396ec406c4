"""The trace: every call on a session, from the ledger, and tokens that commit to a range of its events.

A session may have a hundred thousand calls and a caller may bring a thousand tokens. So a reply holds a bounded part of what
was asked for and says where it ends; and between two looks into the ledger everybody else has a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from fidelio.engine.record import CALLED, Record
from fidelio.errors import FidelioError, SessionNotFound
from fidelio.ledger.model import Event, Session
from fidelio.workflows.tokens import Claims, Segment, alias
from fidelio.workflows.unit_of_work import CallResult, Gate, WorkflowCall, WorkflowDecision, WorkflowUnit, refuse_while_waiting

# Reading the trace and the status is looking, not working: it would only bury what happened.
READING_TOOLS = frozenset({"get_trace", "get_workflow_status"})
PAGE = 200
# What one reply holds, and how much is looked through for it.
MOST_CALLS = 1000
MOST_LOOKED_AT = 10_000
MOST_TOKENS = 100
# Sessions start sessions, but a longer line than this is a mistake.
LONGEST_LINE = 64


class TraceCursor(msgspec.Struct, frozen=True):
    """Where the next reply goes on: behind `after`, in the stretch of the first token that is not among the `done` ones."""

    after: int
    done: int = 0


class Trace(msgspec.Struct, frozen=True):
    """Calls in order. `errors` are the trace tokens that could not be resolved, each with its reason."""

    source: str
    events: tuple[dict[str, Any], ...]
    errors: tuple[str, ...] = ()
    rest: TraceCursor | None = None


class TraceService:
    """Everything about the trace."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit

    async def trace(
        self, token: str, tokens: Sequence[str], *, after: int = 0, gate: Gate = refuse_while_waiting
    ) -> CallResult[Trace]:
        async def decide(call: WorkflowCall) -> WorkflowDecision[Trace]:
            gate(call.record, "read the trace")
            reading = _Reading(self._unit, call)
            return WorkflowDecision(await (reading.stretches(tokens, after) if tokens else reading.whole(after)))

        return await self._unit.perform("get_trace", token, decide)


class _Reading:
    """What one reply is put together from."""

    def __init__(self, unit: WorkflowUnit, call: WorkflowCall) -> None:
        self._unit = unit
        self._call = call
        self._found: list[dict[str, Any]] = []
        self._errors: list[str] = []
        self._looked_at = 0
        self._seen = set[str]()
        self._others = dict[str, tuple[WorkflowCall, bool]]()

    async def whole(self, after: int) -> Trace:
        rest = await self._read(self._call, after, self._call.record.seq)
        return Trace("memory", tuple(self._found), rest=None if rest is None else TraceCursor(rest))

    async def stretches(self, tokens: Sequence[str], after: int) -> Trace:
        """Every stretch once, also where its token is repeated."""
        for place, token in enumerate(dict.fromkeys(tokens)):
            number = tokens.index(token)
            reached = 0 if place == MOST_TOKENS else await self._resolved(number, token, after)
            if reached is not None:
                return Trace("tokens", tuple(self._found), tuple(self._errors), TraceCursor(reached, number))
            after = 0
        return Trace("tokens", tuple(self._found), tuple(self._errors))

    async def _resolved(self, number: int, token: str, after: int) -> int | None:
        try:
            return await self._stretch(self._unit.tokens.open_trace(token), after)
        except FidelioError as error:
            self._errors.append(f"trace_tokens[{number}]: {error.sentence}")
            return None

    async def _stretch(self, segment: Segment, after: int) -> int | None:
        """A stretch that was changed since does not resolve."""
        other, foreign = await self._other(segment.sid)
        head = await self._unit.ledger.events(segment.sid, after=segment.last - 1, limit=1)
        if not head or head[0].hash != segment.head:
            raise SessionNotFound("The events that this trace token commits to are not in the ledger.")
        return await self._read(other, max(segment.first - 1, after), segment.last, foreign=foreign)

    async def _read(self, of: WorkflowCall, after: int, last: int, *, foreign: bool = False) -> int | None:
        """Takes in the calls up to `last`. When the reply is full before that, the number of the last event it has got to."""
        while after < last:
            room = min(PAGE, MOST_CALLS - len(self._found), MOST_LOOKED_AT - self._looked_at)
            if room <= 0:
                return after
            events = await self._unit.ledger.events(of.session.id, after=after, types=[CALLED], limit=room)
            self._looked_at += len(events)
            self._found += [call_json(event, of.record, foreign=foreign) for event in events if self._is_wanted(event, last)]
            after = events[-1].seq if len(events) == room else last
            await asyncio.sleep(0)
        return None

    def _is_wanted(self, event: Event, last: int) -> bool:
        """Whether a call belongs there and was not shown before: stretches may overlap."""
        if event.seq > last or event.id in self._seen or event.body.get("name") in READING_TOOLS:
            return False
        self._seen.add(event.id)
        return True

    async def _other(self, session: str) -> tuple[WorkflowCall, bool]:
        """The session of a trace token, and whether it is foreign to the one that asks."""
        if session not in self._others:
            other, mine = await self._unit.load_claims(Claims(sid=session)), self._call.session
            related = await self._descends(other.session, mine.id) or await self._descends(mine, session)
            self._others[session] = other, not related
        return self._others[session]

    async def _descends(self, session: Session, ancestor: str) -> bool:
        """Whether the session is that one, or was started by it, directly or through others."""
        for _ in range(LONGEST_LINE):
            if session.id == ancestor or session.parent is None:
                return session.id == ancestor
            session = await self._unit.ledger.session(session.parent)
        return False


def call_json(event: Event, record: Record, *, foreign: bool = False) -> dict[str, Any]:
    """A call as clients read it. To a foreign session the names of sessions are told so that they open nothing."""
    body, named = event.body, alias if foreign else str
    call = {
        "traceId": named(event.session),
        "spanId": event.id,
        "name": body.get("name", ""),
        "ts": event.time // 1000,
        "ms": body.get("ms", 0),
        "s": body.get("s", "ok"),
        "wf": record.workflow,
        "act": body.get("act", ""),
        "aid": body.get("aid", ""),
    }
    call |= {key: body[key] for key in ("err", "vw") if key in body}
    if record.parent is not None:
        call["psid"] = named(record.parent.session)
    return {**call, "foreign": True} if foreign else call
