"""SQL for requests: a session has a single request per key, and a request is closed only once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from fidelio.errors import BadRecord, RequestClosed, RequestExists
from fidelio.ledger.checks import request_not_found
from fidelio.ledger.encoding import EncodedRequest, encode
from fidelio.ledger.model import CloseRequest, OpenRequest, Page, Request, RequestState
from fidelio.ledger.paging import clamp_page_size, decode_number_cursor
from fidelio.ledger.rows import to_page, to_request
from fidelio.ledger.sqlite.schema import REQUEST, fetch, join_sql

_INSERT = join_sql("INSERT INTO requests (", REQUEST, ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'open', '{}', '', '', '', ?, NULL, ?)")
_SELECT = join_sql("SELECT", REQUEST, "FROM requests WHERE id = ?")
_CLOSE = """
UPDATE requests SET state = ?, answer = ?, answered_by = ?, channel = ?, assurance = ?, closed_at = ?
WHERE id = ?
"""
_REWRITE = "UPDATE requests SET question = ?, options = ?, subject = ?, detail = ?, answer = ? WHERE id = ?"


def apply(connection: apsw.Connection, session: str, encoded: EncodedRequest, now: int) -> None:
    if isinstance(encoded.request, CloseRequest):
        _close(connection, session, encoded.request, encoded.payload, now)
    else:
        _open(connection, session, encoded, encoded.request, now)


def _open(connection: apsw.Connection, session: str, encoded: EncodedRequest, request: OpenRequest, now: int) -> None:
    existing = connection.execute("SELECT id, state FROM requests WHERE session = ? AND about = ?", (session, request.key)).get
    if existing is not None:
        raise RequestExists(*existing)
    if connection.execute("SELECT 1 FROM requests WHERE id = ?", (request.id,)).get is not None:
        raise BadRecord(f"The request id {request.id} is taken.", remedy="Choose another id.")
    values = (
        request.id,
        session,
        request.kind,
        request.key,
        request.question,
        encoded.payload,
        request.subject,
        encoded.detail,
        now,
        request.expires_at,
    )
    connection.execute(_INSERT, values)


def _close(connection: apsw.Connection, session: str, request: CloseRequest, answer: str, now: int) -> None:
    state = connection.execute("SELECT state FROM requests WHERE id = ? AND session = ?", (request.id, session)).get
    if state is None:
        raise request_not_found(request.id)
    if state != "open":
        raise RequestClosed(request.id, state)
    connection.execute(_CLOSE, (request.state, answer, request.by, request.channel, request.assurance, now, request.id))


def rewrite(connection: apsw.Connection, rows: Sequence[Request]) -> None:
    """Store the texts of requests from which a redaction has erased some."""
    for row in rows:
        texts = (row.question, encode(list(row.options), "options"), row.subject, encode(row.detail, "detail"))
        connection.execute(_REWRITE, (*texts, encode(row.answer, "answer"), row.id))


def read_request(connection: apsw.Connection, request: str) -> Request:
    row = connection.execute(_SELECT, (request,)).get
    if row is None:
        raise request_not_found(request)
    return to_request(row)


def list_requests(
    connection: apsw.Connection,
    *,
    session: str | None = None,
    state: RequestState | None = "open",
    key: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Request]:
    after, size = decode_number_cursor(cursor, "requests"), clamp_page_size(limit)
    values, where = _where({"session = ?": session, "state = ?": state, "about = ?": key, "key > ?": after})
    text = join_sql("SELECT key,", REQUEST, "FROM requests", where, "ORDER BY key LIMIT ?")
    return to_page("requests", fetch(connection, text, (*values, size + 1)), size, to_request)


def count_requests(connection: apsw.Connection, *, session: str | None = None, state: RequestState | None = "open") -> int:
    values, where = _where({"session = ?": session, "state = ?": state})
    return int(connection.execute(join_sql("SELECT count(*) FROM requests", where), values).get)


def _where(filters: dict[str, Any]) -> tuple[tuple[Any, ...], str]:
    """Build the WHERE clause of filters that are not None, and its values."""
    conditions = {test: value for test, value in filters.items() if value is not None}
    return tuple(conditions.values()), f"WHERE {' AND '.join(conditions)}" if conditions else ""
