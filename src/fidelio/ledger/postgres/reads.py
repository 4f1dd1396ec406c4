"""SQL for reading sessions and events, and the integrity check."""

from __future__ import annotations

from collections.abc import Sequence

from fidelio.errors import LedgerDamaged
from fidelio.ledger.checks import name_not_found, session_not_found
from fidelio.ledger.model import Event, Page, Session, SessionHead, SessionKind
from fidelio.ledger.paging import clamp_page_size, decode_number_cursor
from fidelio.ledger.postgres.apply import EVENT, require_session
from fidelio.ledger.postgres.database import Connection
from fidelio.ledger.rows import LAST_CHARACTER, SESSION, STRAY_SESSIONS, to_event, to_head, to_page, to_session

# Must imply the WHERE clause of the partial indexes, or the planner does not use them.
NOT_DELETED = "status <> 'deleted'"
# Statements that read every row with its large values, so that the server reports unreadable pages.
_READ_ALL = (
    "SELECT sum(length(record)) FROM sessions",
    "SELECT sum(length(raw) + length(hash)) FROM events",
    "SELECT sum(length(question) + length(options) + length(detail) + length(answer)) FROM requests",
    "SELECT sum(length(content)) FROM blobs",
    "SELECT sum(length(payload)) FROM jobs",
)
_SELECT_WRONG_HEAD = """
SELECT s.id FROM sessions AS s LEFT JOIN events AS e ON e.session = s.id AND e.seq = s.last_seq
WHERE s.last_seq > 0 AND e.hash IS DISTINCT FROM s.head LIMIT 1
"""


async def read_session(connection: Connection, session: str) -> Session:
    row = await connection.fetchrow(f"SELECT {SESSION} FROM sessions WHERE id = $1", session)
    if row is None:
        raise session_not_found(session)
    return to_session(row)


async def read_session_by_name(connection: Connection, name: str, *, namespace: str = "") -> Session:
    row = await connection.fetchrow(f"SELECT {SESSION} FROM sessions WHERE namespace = $1 AND name = $2", namespace, name)
    if row is None:
        raise name_not_found(name)
    return to_session(row)


async def list_sessions(  # noqa: PLR0913  # the filters of the contract
    connection: Connection,
    *,
    kind: SessionKind | None = None,
    status: str | None = None,
    namespace: str | None = None,
    parent: str | None = None,
    name: str | None = None,
    without: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
    oldest_first: bool = False,
) -> Page[Session]:
    filters = {"kind": kind, "status": status, "namespace": namespace, "parent": parent, "name": name}
    others = None if without is None else f"{without}%"
    beyond, order = ("number >", "ASC") if oldest_first else ("number <", "DESC")
    more: dict[str, object] = {"namespace NOT LIKE": others, beyond: decode_number_cursor(cursor, "sessions")}
    values, where = _where(filters, more, first=2)
    size = clamp_page_size(limit)
    rows = await connection.fetch(
        f"SELECT number, {SESSION} FROM sessions WHERE {where} ORDER BY number {order} LIMIT $1", size + 1, *values
    )
    return to_page("sessions", rows, size, to_session)


async def list_all_sessions(connection: Connection, *, cursor: str | None = None, limit: int = 50) -> Page[Session]:
    before, size = decode_number_cursor(cursor, "sessions"), clamp_page_size(limit)
    rows = await connection.fetch(
        f"SELECT number, {SESSION} FROM sessions WHERE $1::bigint IS NULL OR number < $1 ORDER BY number DESC LIMIT $2",
        before,
        size + 1,
    )
    return to_page("sessions", rows, size, to_session)


async def list_sessions_by_id(connection: Connection, beginning: str, *, limit: int = 50) -> tuple[Session, ...]:
    rows = await connection.fetch(
        f"SELECT {SESSION} FROM sessions WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $3",
        beginning,
        beginning + LAST_CHARACTER,
        clamp_page_size(limit),
    )
    return tuple([to_session(row) for row in rows])


async def list_sessions_by_name(
    connection: Connection, namespace: str, ending: str, *, after: str = "", limit: int = 50
) -> tuple[Session, ...]:
    rows = await connection.fetch(
        f"""SELECT {SESSION} FROM sessions WHERE namespace = $1 AND name COLLATE "C" > $2 AND right(name, length($3)) = $3
        AND {NOT_DELETED} ORDER BY name COLLATE "C" LIMIT $4""",
        namespace,
        after,
        ending,
        clamp_page_size(limit),
    )
    return tuple([to_session(row) for row in rows])


_HEADS = """
SELECT s.number, s.id, e.seq, e.hash FROM sessions AS s
LEFT JOIN LATERAL (SELECT seq, hash FROM events WHERE session = s.id ORDER BY seq DESC LIMIT 1) AS e ON true
WHERE $1::bigint IS NULL OR s.number < $1 ORDER BY s.number DESC LIMIT $2
"""


async def list_heads(connection: Connection, *, cursor: str | None = None, limit: int = 50) -> Page[SessionHead]:
    before, size = decode_number_cursor(cursor, "sessions"), clamp_page_size(limit)
    return to_page("sessions", await connection.fetch(_HEADS, before, size + 1), size, to_head)


async def list_stray_sessions(connection: Connection) -> tuple[str, ...]:
    return tuple([row["session"] for row in await connection.fetch(STRAY_SESSIONS)])


async def is_listed(connection: Connection, session: str) -> bool:
    listed = await connection.fetchval(f"SELECT {NOT_DELETED} FROM sessions WHERE id = $1", session)
    if listed is None:
        raise session_not_found(session)
    return bool(listed)


async def count_sessions(
    connection: Connection, *, kind: SessionKind | None = None, status: str | None = None, namespace: str | None = None
) -> int:
    values, where = _where({"kind": kind, "status": status, "namespace": namespace}, {}, first=1)
    return int(await connection.fetchval(f"SELECT count(*) FROM sessions WHERE {where}", *values))


def _where(filters: dict[str, str | None], more: dict[str, object], *, first: int) -> tuple[list[object], str]:
    """Build the WHERE clause of filters that are not None, and its values; `first` numbers the first placeholder.

    Their columns are never input of a caller.
    """
    candidates = {f"{column} =": value for column, value in filters.items()} | more
    values = {comparison: value for comparison, value in candidates.items() if value is not None}
    conditions = [f"{comparison} ${number}" for number, comparison in enumerate(values, first)]
    return list(values.values()), " AND ".join(conditions if filters.get("status") else [*conditions, NOT_DELETED])


async def list_events(
    connection: Connection, session: str | None = None, *, after: int = 0, types: Sequence[str] = (), limit: int = 1000
) -> tuple[Event, ...]:
    values: list[object] = [clamp_page_size(limit), after]
    conditions, order = "position > $2", "position"
    if session is not None:
        values.append(session)
        conditions, order = "seq > $2 AND session = $3", "seq"
    if types:
        values.append(list(types))
        conditions += f" AND type = ANY(${len(values)}::text[])"
    rows = await connection.fetch(f"SELECT {EVENT} FROM events WHERE {conditions} ORDER BY {order} LIMIT $1", *values)
    if not rows and session is not None:
        await require_session(connection, session)
    return tuple([to_event(row) for row in rows])


async def list_events_naming(connection: Connection, session: str, text: str) -> tuple[Event, ...]:
    rows = await connection.fetch(
        f"SELECT {EVENT} FROM events WHERE session = $1 AND strpos(raw, $2) > 0 ORDER BY seq LIMIT 1000", session, text
    )
    return tuple([to_event(row) for row in rows])


async def read_newest_position(connection: Connection) -> int:
    return int(await connection.fetchval("SELECT coalesce(max(position), 0) FROM events"))


async def check_rows(connection: Connection) -> None:
    """Read all rows and compare the head of every session with its last event; raises `LedgerDamaged`."""
    await connection.execute("SET LOCAL statement_timeout = 0")
    for statement in _READ_ALL:
        await connection.fetchval(statement, timeout=None)
    session = await connection.fetchval(_SELECT_WRONG_HEAD, timeout=None)
    if session is not None:
        raise LedgerDamaged(
            f"Session {session} does not end with the event its row names.", remedy="Restore the database from a backup."
        )
