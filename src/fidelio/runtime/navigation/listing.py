"""Tools that list sessions: session_list and session_list_children.

A list considers at most `MAX_SESSIONS` of the newest sessions of the agent in the project, found among at most `MAX_ROWS` of
the newest of all agents there, and always the parent, the children and the siblings of this session, at most `MAX_RELATED` of
each. So a list costs the same at any number of sessions: what it considers, and not what there is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from fidelio.errors import BadRecord, SessionNotFound
from fidelio.ledger.model import Session
from fidelio.ledger.unit_of_work import LoadedSession
from fidelio.runtime.navigation.parameters import FindChildren, FindSessions, Lineage
from fidelio.runtime.navigation.summaries import ListedSession, describe_listed, find_relation, render_summary
from fidelio.runtime.navigation.verdicts import find_verdict
from fidelio.runtime.navigation.visibility import (
    environment_key,
    is_same_agent,
    load_agent_readers,
    load_networks,
    load_visible,
    may_read,
)
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.tools.model import LoadedRuntime, Preparation, RuntimeContext, ToolCall, ToolResult

MAX_SESSIONS = 150
MAX_ROWS = 600
MAX_RELATED = 50
_PAGE = 150
_TRENDS = {"improving": 3, "first_iteration": 2, "stable": 1, "regressing": 0}
_RELATIONS = {"parent": 2, "child": 2, "sibling": 1}
_LINEAGES: dict[Lineage, frozenset[str]] = {
    "related": frozenset({"parent", "child", "sibling"}),
    "parent": frozenset({"parent"}),
    "children": frozenset({"child"}),
    "siblings": frozenset({"sibling"}),
}


async def list_sessions(call: ToolCall, arguments: FindSessions, _: Preparation) -> ToolResult:
    own = call.session.session
    related = await _read_related(call.context, own)
    rows = related if arguments.lineage is not None else [own, *related, *await _read_newest(call.context, call.record, own)]
    if arguments.lineage is not None:
        wanted = _LINEAGES[arguments.lineage]
        rows = [row for row in rows if find_relation(own, row) in wanted]
    if not arguments.includeCurrent:
        rows = [row for row in rows if row.id != own.id]
    candidates = await describe_visible(call, rows)
    chosen = sorted((each for each in candidates if matches(each, arguments, now=call.context.clock())), key=rank, reverse=True)
    shown = await _render(call, chosen[: arguments.limit])
    return ToolResult(
        output={"agentId": call.record.agent, "count": len(shown), "considered": len(candidates), "sessions": shown}
    )


async def list_children(call: ToolCall, arguments: FindChildren, _: Preparation) -> ToolResult:
    parent = await load_visible(call, arguments.sessionId)
    rows = (await call.context.ledger.sessions(parent=parent.id, limit=MAX_RELATED)).items
    candidates = await describe_visible(call, rows)
    chosen = sorted((each for each in candidates if matches(each, arguments, now=call.context.clock())), key=rank, reverse=True)
    shown = await _render(call, chosen[: arguments.limit])
    return ToolResult(
        output={"parentSessionId": parent.id, "count": len(shown), "considered": len(candidates), "sessions": shown}
    )


async def describe_visible(call: ToolCall, rows: Iterable[Session]) -> list[ListedSession]:
    """The sessions that the caller may read, each once."""
    loaded = [await _load(call, row) for row in {row.id: row for row in rows}.values()]
    found = [each for each in loaded if each is not None and is_same_agent(call.record, each.record)]
    networks = await load_networks(call.context, (call.record, *_select_by_environment(found)))
    readers = ""
    if not all(may_read(call.record, each.record, networks) for each in found):
        readers = await load_agent_readers(call.context, call.record.project, call.record.agent)
    now = call.context.clock()
    return [
        describe_listed(call.session, each.session, each.record, now=now)
        for each in found
        if each.id == call.session.id or may_read(call.record, each.record, networks, readers)
    ]


def _select_by_environment(sessions: Iterable[LoadedRuntime]) -> Collection[RuntimeRecord]:
    return {environment_key(each.record): each.record for each in sessions}.values()


async def _load(call: ToolCall, row: Session) -> LoadedRuntime | None:
    if row.id == call.session.id:
        return call.session
    try:
        return LoadedSession(row, await call.context.unit.load_record(row))
    except (SessionNotFound, BadRecord):
        # It was deleted meanwhile, or its record is damaged: the others are still listed.
        return None


async def _read_newest(context: RuntimeContext, record: RuntimeRecord, own: Session) -> list[Session]:
    """The newest sessions of the agent in the namespace of its project."""
    # Other agents of the project share the namespace; looking for the name is cheaper than decoding every record.
    mark = f'"agent":{msgspec.json.encode(record.agent).decode()}'
    found: list[Session] = []
    cursor: str | None = None
    for _ in range(MAX_ROWS // _PAGE):
        page = await context.ledger.sessions(kind="runtime", namespace=own.namespace, cursor=cursor, limit=_PAGE)
        found += (row for row in page.items if mark in row.raw)
        cursor = page.next
        if cursor is None or len(found) >= MAX_SESSIONS:
            break
    return found[:MAX_SESSIONS]


async def _read_related(context: RuntimeContext, own: Session) -> list[Session]:
    """The parent, the children and the siblings."""
    ledger = context.ledger
    found = list((await ledger.sessions(parent=own.id, limit=MAX_RELATED)).items)
    if own.parent is not None:
        found += [await ledger.session(own.parent), *(await ledger.sessions(parent=own.parent, limit=MAX_RELATED)).items]
    return [row for row in found if row.id != own.id]


async def _render(call: ToolCall, listed: Iterable[ListedSession]) -> list[dict[str, Any]]:
    return [await _render_entry(call, each) for each in listed]


async def _render_entry(call: ToolCall, listed: ListedSession) -> dict[str, Any]:
    # Only what is shown gets the whole verdict: it takes ten times as long as what the order needs.
    session = listed.session.id
    other = session if session != call.session.id else ""
    verdict = find_verdict(listed.record, call.tools, now=call.context.clock(), session=other)
    return render_summary(listed, await count_children(call.context, session), call.tools, next_outcome_step=verdict.next_step)


async def count_children(context: RuntimeContext, session: str) -> int:
    """The number of sessions that a session has delegated to, counted up to `MAX_RELATED`."""
    return len((await context.ledger.sessions(parent=session, limit=MAX_RELATED)).items)


def matches(listed: ListedSession, filters: FindSessions | FindChildren, *, now: int) -> bool:
    """Whether a session meets the filters of a list."""
    return all(_check(listed, filters, now))


def _check(listed: ListedSession, filters: FindSessions | FindChildren, now: int) -> Iterator[bool]:
    standing = listed.standing
    if filters.status is not None:
        yield _has_status(listed, filters.status)
    if filters.hasOutcome is not None:
        yield bool(listed.record.outcomes.outcomes) == filters.hasOutcome
    if filters.promotionReady is not None:
        yield standing.promotion_ready == filters.promotionReady
    if filters.outcomeStatus is not None:
        yield standing.status == filters.outcomeStatus
    if filters.outcomeTrend is not None:
        yield standing.trend == filters.outcomeTrend
    if filters.activeMinutes is not None:
        yield (now - listed.session.updated_at) // 60_000 <= filters.activeMinutes


def _has_status(listed: ListedSession, status: str) -> bool:
    return listed.standing.pending is not None if status == "requires_action" else listed.record.status == status


def rank(listed: ListedSession) -> tuple[int, int, int, int, int, int]:
    """The order of a list: the highest first."""
    return (
        int(listed.setup_matches is True),
        int(listed.outcome_matches),
        int(listed.standing.pending is not None),
        _TRENDS.get(listed.standing.trend or "", -1),
        _RELATIONS.get(listed.relation or "", 0),
        listed.session.updated_at,
    )
