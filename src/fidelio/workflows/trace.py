"""The trace: every call on a session, from the ledger, and tokens that commit to a range of its events.

A session may have a hundred thousand calls, and a caller may pass a thousand tokens. So a reply is bounded and contains a
cursor for the next one, and the event loop is released between two reads of the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from fidelio.engine.record import CALLED, Record
from fidelio.errors import FidelioError, LedgerPutBack, SessionNotFound
from fidelio.ledger.model import Event, Session
from fidelio.workflows.refusals import Gate, refuse_while_waiting
from fidelio.workflows.tokens import Claims, Segment, mask_session_id
from fidelio.workflows.unit_of_work import CallResult, WorkflowCall, WorkflowDecision, WorkflowUnit

# Calls that only read the trace or the status are left out: they would outnumber the calls that matter.
READING_TOOLS = frozenset({"get_trace", "get_workflow_status"})
PAGE_SIZE = 200
# Bounds of a reply: calls in it, and events that are read for it.
MAX_CALLS = 1000
MAX_SCANNED = 10_000
MAX_TOKENS = 100
# A longer chain of parents than this is treated as unrelated.
MAX_ANCESTORS = 64


class TraceCursor(msgspec.Struct, frozen=True):
    """Where the next reply starts: after the event `after`, in the range of the token number `done`."""

    after: int
    done: int = 0


class Trace(msgspec.Struct, frozen=True):
    """Calls in order. `errors` lists the trace tokens that could not be resolved, each with its reason."""

    source: str
    events: tuple[dict[str, Any], ...]
    errors: tuple[str, ...] = ()
    rest: TraceCursor | None = None


class TraceService:
    """Carries out `get_trace`."""

    def __init__(self, unit: WorkflowUnit) -> None:
        self._unit = unit

    async def trace(
        self, token: str, tokens: Sequence[str], *, after: int = 0, gate: Gate = refuse_while_waiting
    ) -> CallResult[Trace]:
        async def decide(call: WorkflowCall) -> WorkflowDecision[Trace]:
            gate(call.record, "read the trace")
            reader = _TraceReader(self._unit, call)
            return WorkflowDecision(await (reader.read_ranges(tokens, after) if tokens else reader.read_session(after)))

        # What was counted until now belongs to the trace.
        await self._unit.write_repeated_reads(self._unit.open_token(token).sid, but=READING_TOOLS)
        return await self._unit.perform("get_trace", token, decide, reading="")


class _TraceReader:
    """Reads the calls of a single reply, within its bounds."""

    def __init__(self, unit: WorkflowUnit, call: WorkflowCall) -> None:
        self._unit = unit
        self._call = call
        self._found: list[dict[str, Any]] = []
        self._errors: list[str] = []
        self._scanned = 0
        self._seen = set[str]()
        self._sessions = dict[str, tuple[WorkflowCall, bool]]()

    async def read_session(self, after: int) -> Trace:
        rest = await self._read(self._call, after, self._call.record.seq)
        return Trace("memory", tuple(self._found), rest=None if rest is None else TraceCursor(rest))

    async def read_ranges(self, tokens: Sequence[str], after: int) -> Trace:
        """Read the range of each token; a repeated token is read once."""
        for count, token in enumerate(dict.fromkeys(tokens)):
            number = tokens.index(token)
            end = 0 if count == MAX_TOKENS else await self._read_token(number, token, after)
            if end is not None:
                return Trace("tokens", tuple(self._found), tuple(self._errors), TraceCursor(end, number))
            after = 0
        return Trace("tokens", tuple(self._found), tuple(self._errors))

    async def _read_token(self, number: int, token: str, after: int) -> int | None:
        try:
            return await self._read_range(self._unit.tokens.open_trace(token), after)
        except FidelioError as error:
            self._errors.append(f"trace_tokens[{number}]: {error.sentence}")
            return None

    async def _read_range(self, segment: Segment, after: int) -> int | None:
        """Read the range of a trace token; raise if its events were changed or removed."""
        call, is_foreign = await self._load_session(segment.sid)
        head = await self._unit.ledger.events(segment.sid, after=segment.last - 1, limit=1)
        if segment.last > call.session.last_seq:
            raise LedgerPutBack(segment.sid, segment.last, call.session.last_seq)
        if not head or head[0].hash != segment.head:
            raise SessionNotFound("The events that this trace token commits to are not in the ledger.")
        return await self._read(call, max(segment.first - 1, after), segment.last, foreign=is_foreign)

    async def _read(self, call: WorkflowCall, after: int, last: int, *, foreign: bool = False) -> int | None:
        """Read the calls up to `last`. If the reply is full before that, return the number of the last event it contains."""
        while after < last:
            limit = min(PAGE_SIZE, MAX_CALLS - len(self._found), MAX_SCANNED - self._scanned)
            if limit <= 0:
                return after
            events = await self._unit.ledger.events(call.session.id, after=after, types=[CALLED], limit=limit)
            for event in events:
                calls = list_calls(event, call.record, foreign=foreign) if self._is_new_call(event, last) else []
                if self._found and len(self._found) + len(calls) > MAX_CALLS:
                    self._seen.discard(event.id)
                    return after
                self._found += calls
                after, self._scanned = event.seq, self._scanned + 1
            after = after if len(events) == limit else last
            await asyncio.sleep(0)
        return None

    def _is_new_call(self, event: Event, last: int) -> bool:
        """Whether a call is in the range and not in the reply yet: ranges may overlap."""
        if event.seq > last or event.id in self._seen or event.body.get("name") in READING_TOOLS:
            return False
        self._seen.add(event.id)
        return True

    async def _load_session(self, session: str) -> tuple[WorkflowCall, bool]:
        """Load the session of a trace token, and whether it is foreign: neither ancestor nor descendant of the caller's."""
        if session not in self._sessions:
            call, own = await self._unit.load_claims(Claims(sid=session)), self._call.session
            is_related = await self._descends(call.session, own.id) or await self._descends(own, session)
            self._sessions[session] = call, not is_related
        return self._sessions[session]

    async def _descends(self, session: Session, ancestor: str) -> bool:
        """Whether the session is the ancestor or descends from it."""
        for _ in range(MAX_ANCESTORS):
            if session.id == ancestor or session.parent is None:
                return session.id == ancestor
            session = await self._unit.ledger.session(session.parent)
        return False


def list_calls(event: Event, record: Record, *, foreign: bool = False) -> list[dict[str, Any]]:
    """The calls that an event stands for: itself, or as many as equal reads were counted. Very many are a single entry."""
    call = call_json(event, record, foreign=foreign)
    count = call.get("reads", 1)
    if not 1 <= count <= MAX_CALLS:
        return [call]
    call.pop("reads", None)
    return [call, *({**call, "spanId": f"{event.id}.{number}"} for number in range(2, count + 1))]


def call_json(event: Event, record: Record, *, foreign: bool = False) -> dict[str, Any]:
    """Render a call for clients. In the trace of a foreign session the session ids are masked."""
    body, render_id = event.body, mask_session_id if foreign else str
    call = {
        "traceId": render_id(event.session),
        "spanId": event.id,
        "name": body.get("name", ""),
        "ts": event.time // 1000,
        "ms": body.get("ms", 0),
        "s": body.get("s", "ok"),
        "wf": record.workflow,
        "act": body.get("act", ""),
        "aid": body.get("aid", ""),
    }
    call |= {key: body[key] for key in ("err", "vw", "reads") if key in body}
    if record.parent is not None:
        call["psid"] = render_id(record.parent.session)
    return {**call, "foreign": True} if foreign else call
