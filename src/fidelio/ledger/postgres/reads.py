"""Reads of sessions and events: short, indexed, the same cost however much there is."""

from __future__ import annotations

from collections.abc import Sequence

from fidelio.errors import LedgerDamaged, SessionNotFound
from fidelio.ledger.model import Event, Page, Session
from fidelio.ledger.paging import from_number, page_size, to_cursor
from fidelio.ledger.postgres.apply import require_session, session_not_found
from fidelio.ledger.postgres.database import Link
from fidelio.ledger.postgres.rows import EVENT, SESSION, to_event, to_session

# Word for word the condition of the indexes that leave deleted sessions out.
NOT_DELETED = "status <> 'deleted'"
# Reads every row and every large value of it, so that a page the server cannot read is found.
_READ_ALL = (
    "SELECT sum(length(record)) FROM sessions",
    "SELECT sum(length(raw) + length(hash)) FROM events",
    "SELECT sum(length(question) + length(options) + length(detail) + length(answer)) FROM requests",
    "SELECT sum(length(content)) FROM blobs",
    "SELECT sum(length(payload)) FROM jobs",
)
_BROKEN_PROMISE = """
SELECT s.id FROM sessions AS s LEFT JOIN events AS e ON e.session = s.id AND e.seq = s.last_seq
WHERE s.last_seq > 0 AND e.hash IS DISTINCT FROM s.head LIMIT 1
"""


async def session(link: Link, id_: str) -> Session:
    row = await link.fetchrow(f"SELECT {SESSION} FROM sessions WHERE id = $1", id_)
    if row is None:
        raise session_not_found(id_)
    return to_session(row)


async def named_session(link: Link, name: str, namespace: str) -> Session:
    row = await link.fetchrow(f"SELECT {SESSION} FROM sessions WHERE namespace = $1 AND name = $2", namespace, name)
    if row is None:
        raise SessionNotFound(f"No session is called {name!r:.80}.", remedy="List them with `fidelio sessions`.")
    return to_session(row)


async def sessions(link: Link, filters: dict[str, str | None], *, cursor: str | None, limit: int) -> Page[Session]:
    """`filters` maps column names, which are ours and never a caller's, to wanted values."""
    given, where = _where(filters, {"number <": from_number(cursor, "sessions")}, first=2)
    size = page_size(limit)
    rows = await link.fetch(
        f"SELECT number, {SESSION} FROM sessions WHERE {where} ORDER BY number DESC LIMIT $1", size + 1, *given
    )
    following = to_cursor("sessions", rows[size - 1]["number"]) if len(rows) > size else None
    return Page(tuple([to_session(row) for row in rows[:size]]), following)


async def count_sessions(link: Link, filters: dict[str, str | None]) -> int:
    given, where = _where(filters, {}, first=1)
    return int(await link.fetchval(f"SELECT count(*) FROM sessions WHERE {where}", *given))


def _where(filters: dict[str, str | None], more: dict[str, object], *, first: int) -> tuple[list[object], str]:
    """The values that are asked for, and the condition they stand in; `first` is the number of the first."""
    wanted = {f"{column} =": value for column, value in filters.items()} | more
    given = {test: value for test, value in wanted.items() if value is not None}
    tests = [f"{test} ${place}" for place, test in enumerate(given, first)]
    return list(given.values()), " AND ".join(tests if filters.get("status") else [*tests, NOT_DELETED])


async def events(link: Link, session_id: str | None, *, after: int, types: Sequence[str], limit: int) -> tuple[Event, ...]:
    given: list[object] = [page_size(limit), after]
    tests, order = "position > $2", "position"
    if session_id is not None:
        given.append(session_id)
        tests, order = "seq > $2 AND session = $3", "seq"
    if types:
        given.append(list(types))
        tests += f" AND type = ANY(${len(given)}::text[])"
    rows = await link.fetch(f"SELECT {EVENT} FROM events WHERE {tests} ORDER BY {order} LIMIT $1", *given)
    if not rows and session_id is not None:
        await require_session(link, session_id)
    return tuple([to_event(row) for row in rows])


async def newest_position(link: Link) -> int:
    return int(await link.fetchval("SELECT coalesce(max(position), 0) FROM events"))


async def read_everything(link: Link) -> None:
    """In the caller's transaction; raises what the server says about pages it cannot read."""
    await link.execute("SET LOCAL statement_timeout = 0")
    for statement in _READ_ALL:
        await link.fetchval(statement, timeout=None)
    broken = await link.fetchval(_BROKEN_PROMISE, timeout=None)
    if broken is not None:
        raise LedgerDamaged(
            f"Session {broken} does not end with the event its row names.", remedy="Restore the database from a backup."
        )
