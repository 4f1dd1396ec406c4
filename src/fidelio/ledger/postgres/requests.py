"""SQL for requests: a session has a single request per key, and a request is closed only once.

The caller of a change has locked the row of the session, so no other transaction writes between the lookup and the insert.
"""

from __future__ import annotations

from collections.abc import Sequence

from fidelio.errors import BadRecord, RequestClosed, RequestExists
from fidelio.ledger.checks import request_not_found
from fidelio.ledger.encoding import EncodedRequest, encode
from fidelio.ledger.model import CloseRequest, OpenRequest, Page, Request, RequestState
from fidelio.ledger.paging import clamp_page_size, decode_number_cursor
from fidelio.ledger.postgres.database import Connection
from fidelio.ledger.rows import to_page, to_request

_COLUMNS = ", ".join(Request.__struct_fields__)
_INSERT = f"""
INSERT INTO requests ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'open', '{{}}', '', '', '', $9, NULL, $10)
ON CONFLICT (id) DO NOTHING RETURNING id
"""
_CLOSE = """
UPDATE requests SET state = $2, answer = $3, answered_by = $4, channel = $5, assurance = $6, closed_at = $7 WHERE id = $1
"""
_REWRITE = "UPDATE requests SET question = $2, options = $3, subject = $4, detail = $5, answer = $6 WHERE id = $1"
_SELECT_PAGE = f"""
SELECT number, {_COLUMNS} FROM requests
WHERE ($1::text IS NULL OR session = $1) AND ($2::text IS NULL OR state = $2) AND ($3::text IS NULL OR key = $3)
AND number > $4 ORDER BY number LIMIT $5
"""
_COUNT = "SELECT count(*) FROM requests WHERE ($1::text IS NULL OR session = $1) AND ($2::text IS NULL OR state = $2)"


async def apply(connection: Connection, session: str, encoded: EncodedRequest, now: int) -> None:
    if isinstance(encoded.request, CloseRequest):
        await _close(connection, session, encoded.request, encoded.payload, now)
    else:
        await _open(connection, session, encoded, encoded.request, now)


async def _open(connection: Connection, session: str, encoded: EncodedRequest, request: OpenRequest, now: int) -> None:
    existing = await connection.fetchrow("SELECT id, state FROM requests WHERE session = $1 AND key = $2", session, request.key)
    if existing is not None:
        raise RequestExists(existing["id"], existing["state"])
    texts = (request.question, encoded.payload, request.subject, encoded.detail)
    inserted = await connection.fetchval(
        _INSERT, request.id, session, request.kind, request.key, *texts, now, request.expires_at
    )
    if inserted is None:
        raise BadRecord(f"The request id {request.id} is taken.", remedy="Choose another id.")


async def _close(connection: Connection, session: str, request: CloseRequest, answer: str, now: int) -> None:
    state = await connection.fetchval("SELECT state FROM requests WHERE id = $1 AND session = $2", request.id, session)
    if state is None:
        raise request_not_found(request.id)
    if state != "open":
        raise RequestClosed(request.id, state)
    await connection.execute(_CLOSE, request.id, request.state, answer, request.by, request.channel, request.assurance, now)


async def rewrite(connection: Connection, rows: Sequence[Request]) -> None:
    """Store the texts of requests from which a redaction has erased some."""
    for row in rows:
        texts = (row.question, encode(list(row.options), "options"), row.subject, encode(row.detail, "detail"))
        await connection.execute(_REWRITE, row.id, *texts, encode(row.answer, "answer"))


async def read_request(connection: Connection, request: str) -> Request:
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM requests WHERE id = $1", request)
    if row is None:
        raise request_not_found(request)
    return to_request(row)


async def list_requests(
    connection: Connection,
    *,
    session: str | None = None,
    state: RequestState | None = "open",
    key: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Request]:
    size = clamp_page_size(limit)
    rows = await connection.fetch(_SELECT_PAGE, session, state, key, decode_number_cursor(cursor, "requests") or 0, size + 1)
    return to_page("requests", rows, size, to_request)


async def count_requests(connection: Connection, *, session: str | None = None, state: RequestState | None = "open") -> int:
    return int(await connection.fetchval(_COUNT, session, state))
