"""The trace: every call on a session, from the ledger, and tokens that commit to a stretch of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fidelio.engine.record import CALLED, Record
from fidelio.errors import FidelioError, SessionNotFound
from fidelio.ledger.model import Event
from fidelio.workflows.desk import Decision, Desk, Opened, Outcome
from fidelio.workflows.gate import Gate, refuse_while_waiting
from fidelio.workflows.moving import Moved
from fidelio.workflows.tokens import Claims, Segment

# Reading the trace and the status is looking, not working: it would only bury what happened.
LOOKING = frozenset({"get_trace", "get_workflow_status"})
PAGE = 1000


class Trace(msgspec.Struct, frozen=True):
    """Calls in order. `errors` are the trace tokens that could not be resolved, each with its reason."""

    source: str
    events: tuple[dict[str, Any], ...]
    errors: tuple[str, ...] = ()


class Tracing:
    """Everything about the trace."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def seal(self, outcome: Outcome[Moved]) -> str:
        """A token that commits to the events of the stretch that a move has closed."""
        last = outcome.events[-1]
        segment = Segment(
            outcome.session, outcome.result.left, outcome.result.first_event, last.seq, last.hash, last.time // 1000
        )
        return self._desk.tokens.make_trace(segment)

    async def trace(self, token: str, tokens: Sequence[str], *, gate: Gate = refuse_while_waiting) -> Outcome[Trace]:
        async def decide(opened: Opened) -> Decision[Trace]:
            gate(opened.record, "read the trace")
            found = await self._resolved(opened, tokens) if tokens else await self._whole(opened)
            return Decision(found)

        return await self._desk.perform("get_trace", token, decide)

    async def calls(self, session: str, record: Record) -> tuple[dict[str, Any], ...]:
        """Every call on a session, in order."""
        found: list[dict[str, Any]] = []
        after = 0
        while events := await self._desk.ledger.events(session, after=after, types=[CALLED], limit=PAGE):
            found += [_call(event, record) for event in events if event.body.get("name") not in LOOKING]
            after = events[-1].seq
        return tuple(found)

    async def _whole(self, opened: Opened) -> Trace:
        return Trace("memory", await self.calls(opened.session.id, opened.record))

    async def _resolved(self, opened: Opened, tokens: Sequence[str]) -> Trace:
        found: list[dict[str, Any]] = []
        errors: list[str] = []
        for number, token in enumerate(tokens):
            try:
                found += await self._segment(opened, self._desk.tokens.open_trace(token))
            except FidelioError as error:
                errors.append(f"trace_tokens[{number}]: {error.sentence}")
        return Trace("tokens", tuple(found), tuple(errors))

    async def _segment(self, opened: Opened, segment: Segment) -> list[dict[str, Any]]:
        """The calls that the token commits to; a stretch that was changed since does not resolve."""
        other = await self._desk.open_claims(Claims(sid=segment.sid))
        events = await self._desk.ledger.events(segment.sid, after=segment.first - 1, limit=segment.last - segment.first + 1)
        if not events or events[-1].hash != segment.head:
            raise SessionNotFound("The events that this trace token commits to are not in the ledger.")
        calls = [event for event in events if event.type == CALLED and event.body.get("name") not in LOOKING]
        foreign = not _related(opened, other)
        return [{**_call(event, other.record), **({"foreign": True} if foreign else {})} for event in calls]


def _related(one: Opened, other: Opened) -> bool:
    """Whether the two are the same session, or one has started the other."""
    parents = {(side.record.parent.session if side.record.parent else "") for side in (one, other)}
    return one.session.id == other.session.id or bool(parents & {one.session.id, other.session.id})


def _call(event: Event, record: Record) -> dict[str, Any]:
    body = event.body
    call = {
        "traceId": event.session,
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
        call["psid"] = record.parent.session
    return call
