"""The end of sessions: ended or archived by a person, and what a child leaves of the budget of its parent.

What a child has neither used nor reserved for children of its own goes back to its parent, once: in the transaction that closes
the child, or, if a wake of it was cut off, after that wake, because a request may still have been under way.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from fidelio.errors import SessionNotFound, UsageProblem
from fidelio.inbox import dismiss_all
from fidelio.ledger.model import NewEvent
from fidelio.ledger.unit_of_work import LinkedChange, SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.budgets import plan_resumption
from fidelio.runtime.delegation.rules import MAX_DEPTH, BudgetMember, plan_returns
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.stores import refuse_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext

# A session and those above it, nearest first.
_Line: TypeAlias = tuple[LoadedRuntime, ...]
# The events that close a session; None if nothing is to be done.
_Events: TypeAlias = tuple[NewEvent, ...] | None


async def archive_session(context: RuntimeContext, session: str, *, by: str) -> None:
    """Keep a session as it is: nothing is sent to it, it is not woken any more, and what it asks for is dismissed."""

    def archive(current: LoadedRuntime) -> _Events:
        refuse_store(current)
        if current.record.wakes.current:
            raise UsageProblem(f"Session {session} is at work.", remedy="Interrupt it, or wait until it is idle.")
        return None if current.record.is_archived else (NewEvent(type=e.SESSION_ARCHIVED, body={}, actor=by),)

    await _commit(context, session, archive, by)


async def end_session(context: RuntimeContext, session: str, *, by: str) -> None:
    """End a session and what it asks for. Its record stays. The caller stops its sandbox."""

    def end(current: LoadedRuntime) -> _Events:
        refuse_store(current)
        event = NewEvent(type=e.ENDED, body={"reason": "ended by a person"}, actor=by)
        return None if current.record.status == "terminated" else (event,)

    await _commit(context, session, end, by)


async def return_share(context: RuntimeContext, session: str, *, by: str = "system") -> None:
    """Return what a closed child has left of its share, unless that was done. Its last wake must be over."""

    def find_closed(current: LoadedRuntime) -> _Events:
        return () if current.record.is_closed else None

    with suppress(SessionNotFound):  # it was deleted, and has returned it before
        await _commit(context, session, find_closed, by)


async def _find_open_requests(context: RuntimeContext, record: RuntimeRecord) -> list[str]:
    """What the session asks for: approvals, results of custom tools, learnings to be promoted."""
    names = [
        *(name for name, approval in record.approvals.items() if approval.state == "open"),
        *(call.request for call in record.wakes.open_calls if call.state == "custom" and call.request),
        *record.memory.open_requests,
    ]
    if not record.is_archived:
        return names
    # The record of an archived session still shows what was dismissed with that.
    return [name for name in names if (await context.ledger.request(name)).state == "open"]


async def _commit(context: RuntimeContext, session: str, decide: Callable[[LoadedRuntime], _Events], by: str) -> None:
    """Commit the events that close a session, none if it is closed, with what the sessions above it get back."""

    async def decide_line(line: _Line) -> SessionDecision[None] | None:
        events, record = decide(line[0]), line[0].record
        if events is None:
            return None
        requests = dismiss_all(await _find_open_requests(context, record), by=by) if events else ()
        linked = () if record.wakes.current else _plan_linked(line, by, context.clock())
        return SessionDecision(None, events=events, requests=requests, linked=linked) if events or linked else None

    async def commit(line: _Line, decision: SessionDecision[None] | None) -> None:
        if decision is not None:
            await context.unit.commit(line[0], decision)

    await context.unit.run(lambda: _load_line(context, session), decide_line, commit)


async def _load_line(context: RuntimeContext, session: str) -> _Line:
    """A session and the sessions above it, up to the first of its family, or up to a deleted session."""
    line = [await context.unit.load(session)]
    for _ in range(MAX_DEPTH):
        parent = line[-1].session.parent
        if not line[-1].record.depth or parent is None:
            break
        try:
            line.append(await context.unit.load(parent))
        except SessionNotFound:
            break
    return tuple(line)


def _plan_linked(line: _Line, by: str, now: int) -> tuple[LinkedChange[RuntimeRecord], ...]:
    amounts = plan_returns([BudgetMember(member.id, member.record.share, member.record.wakes) for member in line])
    linked = []
    for child, parent, amount in zip(line, line[1:], amounts, strict=False):
        body = {"childSessionId": child.id, "budget": amount}
        returned = NewEvent(type=e.CHILD_BUDGET_RETURNED, body=body, actor=by)
        waited = bool(amount) and not parent.record.is_closed and parent.record.wakes.stop_reason == "budget_reached"
        more, jobs = plan_resumption(parent.id, parent.record.wakes, now) if waited else ((), ())
        linked.append(LinkedChange(parent.id, (returned, *more), parent.record, jobs=jobs))
    return tuple(linked)
