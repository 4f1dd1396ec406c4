"""Requests in SQL: opened once per session and subject, closed once."""

from __future__ import annotations

from typing import Any

import apsw

from fidelio.errors import BadRecord, RequestClosed, RequestExists, RequestNotFound
from fidelio.ledger.encoding import PreparedRequest
from fidelio.ledger.model import CloseRequest, OpenRequest, Page, Request
from fidelio.ledger.paging import from_number, page_size, to_cursor
from fidelio.ledger.sqlite.rows import REQUEST, fetch, statement, to_request

_OPEN = statement("INSERT INTO requests (", REQUEST, ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'open', '{}', '', '', '', ?, NULL, ?)")
_ONE = statement("SELECT", REQUEST, "FROM requests WHERE id = ?")
_CLOSE = """
UPDATE requests SET state = ?, answer = ?, answered_by = ?, channel = ?, assurance = ?, closed_at = ?
WHERE id = ?
"""


def apply(connection: apsw.Connection, session: str, prepared: PreparedRequest, now: int) -> None:
    if isinstance(prepared.request, CloseRequest):
        _close(connection, session, prepared.request, prepared.first, now)
    else:
        _open(connection, session, prepared, prepared.request, now)


def _open(connection: apsw.Connection, session: str, prepared: PreparedRequest, request: OpenRequest, now: int) -> None:
    asked = connection.execute("SELECT id, state FROM requests WHERE session = ? AND about = ?", (session, request.key)).get
    if asked is not None:
        raise RequestExists(*asked)
    if connection.execute("SELECT 1 FROM requests WHERE id = ?", (request.id,)).get is not None:
        raise BadRecord(f"The request id {request.id} is taken.", remedy="Choose another id.")
    opened = (
        request.id,
        session,
        request.kind,
        request.key,
        request.question,
        prepared.first,
        request.subject,
        prepared.detail,
        now,
        request.expires_at,
    )
    connection.execute(_OPEN, opened)


def _close(connection: apsw.Connection, session: str, request: CloseRequest, answer: str, now: int) -> None:
    state = connection.execute("SELECT state FROM requests WHERE id = ? AND session = ?", (request.id, session)).get
    if state is None:
        raise request_not_found(request.id)
    if state != "open":
        raise RequestClosed(request.id, state)
    connection.execute(_CLOSE, (request.state, answer, request.by, request.channel, request.assurance, now, request.id))


def one(connection: apsw.Connection, request: str) -> Request:
    row = connection.execute(_ONE, (request,)).get
    if row is None:
        raise request_not_found(request)
    return to_request(row)


def request_not_found(request: str) -> RequestNotFound:
    return RequestNotFound(f"There is no request {request!r:.80}.", remedy="List them with `fidelio inbox`.")


def page(
    connection: apsw.Connection, *, session: str | None, state: str | None, key: str | None, cursor: str | None, limit: int
) -> Page[Request]:
    wanted = {"session = ?": session, "state = ?": state, "about = ?": key, "key > ?": from_number(cursor, "requests")}
    given: dict[str, Any] = {test: value for test, value in wanted.items() if value is not None}
    where = "WHERE " + " AND ".join(given) if given else ""
    size = page_size(limit)
    text = statement("SELECT key,", REQUEST, "FROM requests", where, "ORDER BY key LIMIT ?")
    rows = fetch(connection, text, (*given.values(), size + 1))
    following = to_cursor("requests", rows[size - 1][0]) if len(rows) > size else None
    return Page(tuple(to_request(row[1:]) for row in rows[:size]), following)
