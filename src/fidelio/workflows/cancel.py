"""Cancellation of a session by a person: it ends at once, together with the sessions that it has started.

Agents cannot do this: they end a session with a move, which is checked. Open requests are withdrawn, and a parent that waits
for the session goes on. All of it is one transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec

from fidelio.engine.record import CANCELLED, EventDraft, Record
from fidelio.engine.state import ChildSession
from fidelio.engine.triggers import draft_child_finished
from fidelio.errors import SessionNotFound
from fidelio.inbox import RequestChange, assurance_of, dismiss_all
from fidelio.ledger.encoding import DELETED
from fidelio.ledger.model import Request
from fidelio.ledger.paging import all_pages
from fidelio.ledger.unit_of_work import LinkedChange
from fidelio.workflows.refusals import refuse_ended
from fidelio.workflows.tokens import Claims
from fidelio.workflows.unit_of_work import CallResult, WorkflowCall, WorkflowDecision, WorkflowUnit, build_events

# The name of the call in the trace, and the outcome of the session in the record of its parent.
END_SESSION = "end_session"
CANCELLED_OUTCOME = "cancelled"


class Cancellation(msgspec.Struct, frozen=True):
    """Who cancels a session, over which channel, and why."""

    by: str
    reason: str = ""
    channel: str = "cli"

    def draft(self, record: Record, root: str = "") -> EventDraft:
        """Draft the last event of a session; `root` is the cancelled session that started it, directly or not."""
        body: dict[str, Any] = {"from": record.activity, "by": self.by, "channel": self.channel}
        body |= {"assurance": assurance_of(self.channel), "reason": self.reason}
        body |= {"withdrawn": [waiting.request for waiting in record.pending], **({"with": root} if root else {})}
        return EventDraft(CANCELLED, body)

    def dismiss_requests(self, record: Record) -> tuple[RequestChange, ...]:
        return dismiss_all((waiting.request for waiting in record.pending), by=self.by, channel=self.channel)


async def cancel_session(unit: WorkflowUnit, session: str, cancellation: Cancellation) -> CallResult[tuple[str, ...]]:
    """Cancel a session and its unfinished descendants; return the sessions that this call has ended.

    Repeating the call changes nothing. A completed session is refused.
    """

    async def decide(call: WorkflowCall) -> WorkflowDecision[tuple[str, ...]]:
        record = call.record
        if record.status == "completed":
            refuse_ended(record)
        children = [loaded async for loaded in _iter_unfinished(unit, session)]
        ended = tuple(child.session.id for child in children)
        linked = [_cancel_child(child, cancellation, session) for child in children]
        if record.ended:
            return WorkflowDecision(ended, linked=tuple(linked), unfinished=not linked)
        return WorkflowDecision(
            (session, *ended),
            events=build_events([cancellation.draft(record)], call.agent),
            requests=cancellation.dismiss_requests(record),
            linked=(*linked, *await _release_parent(unit, call)),
        )

    return await unit.perform(END_SESSION, Claims(sid=session), decide, agent=cancellation.by)


def is_withdrawn(request: Request) -> bool:
    """Whether the end of its session dismissed the request. A dismissal because of a condition has an answer."""
    return request.state == "dismissed" and not request.answer


async def _iter_unfinished(unit: WorkflowUnit, session: str) -> AsyncIterator[WorkflowCall]:
    """Iterate over the unfinished sessions that a session has started, and those that they have started."""
    async for child in all_pages(partial(unit.ledger.sessions, kind="workflow", parent=session)):
        if child.status == DELETED:
            continue
        loaded = await unit.load_claims(Claims(sid=child.id))
        if not loaded.record.ended:
            yield loaded
        async for descendant in _iter_unfinished(unit, child.id):
            yield descendant


def _cancel_child(child: WorkflowCall, cancellation: Cancellation, root: str) -> LinkedChange[Record]:
    events = build_events([cancellation.draft(child.record, root)], cancellation.by)
    return LinkedChange(child.session.id, events, child.record, requests=cancellation.dismiss_requests(child.record))


async def _release_parent(unit: WorkflowUnit, call: WorkflowCall) -> tuple[LinkedChange[Record], ...]:
    """Let a parent that waits for the session go on. A cancelled session returns no variables."""
    if (waiting := await find_waiting_parent(unit, call)) is None:
        return ()
    parent, child = waiting
    events = build_events([draft_child_finished(child, {}, CANCELLED_OUTCOME)], call.agent)
    return (LinkedChange(parent.session.id, events, parent.record),)


async def find_waiting_parent(unit: WorkflowUnit, call: WorkflowCall) -> tuple[WorkflowCall, ChildSession] | None:
    """Load the parent that waits for the end of a session, and its entry for the session."""
    if call.record.parent is None:
        return None
    try:
        parent = await unit.load_claims(Claims(sid=call.record.parent.session))
    except SessionNotFound:
        return None
    child = next((child for child in parent.record.children if child.session == call.session.id), None)
    return None if child is None else (parent, child)
