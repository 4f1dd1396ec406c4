"""Requests in SQL: opened once per session and subject, closed once.

Whoever changes a request holds the row of its session, so asking and then writing is safe.
"""

from __future__ import annotations

from fidelio.errors import BadRecord, RequestClosed, RequestExists, RequestNotFound
from fidelio.ledger.encoding import PreparedRequest
from fidelio.ledger.model import CloseRequest, OpenRequest, Page, Request
from fidelio.ledger.paging import from_number, page_size, to_cursor
from fidelio.ledger.postgres.database import Link
from fidelio.ledger.postgres.rows import REQUEST, to_request

_OPEN = f"""
INSERT INTO requests ({REQUEST}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'open', '{{}}', '', '', '', $9, NULL, $10)
ON CONFLICT (id) DO NOTHING RETURNING id
"""
_CLOSE = """
UPDATE requests SET state = $2, answer = $3, answered_by = $4, channel = $5, assurance = $6, closed_at = $7 WHERE id = $1
"""
_PAGE = f"""
SELECT number, {REQUEST} FROM requests
WHERE ($1::text IS NULL OR session = $1) AND ($2::text IS NULL OR state = $2) AND ($3::text IS NULL OR key = $3)
AND number > $4 ORDER BY number LIMIT $5
"""


async def apply(link: Link, session: str, prepared: PreparedRequest, now: int) -> None:
    if isinstance(prepared.request, CloseRequest):
        await _close(link, session, prepared.request, prepared.first, now)
    else:
        await _open(link, session, prepared, prepared.request, now)


async def _open(link: Link, session: str, prepared: PreparedRequest, new: OpenRequest, now: int) -> None:
    asked = await link.fetchrow("SELECT id, state FROM requests WHERE session = $1 AND key = $2", session, new.key)
    if asked is not None:
        raise RequestExists(asked["id"], asked["state"])
    texts = (new.question, prepared.first, new.subject, prepared.detail)
    opened = await link.fetchval(_OPEN, new.id, session, new.kind, new.key, *texts, now, new.expires_at)
    if opened is None:
        raise BadRecord(f"The request id {new.id} is taken.", remedy="Choose another id.")


async def _close(link: Link, session: str, closing: CloseRequest, answer: str, now: int) -> None:
    state = await link.fetchval("SELECT state FROM requests WHERE id = $1 AND session = $2", closing.id, session)
    if state is None:
        raise request_not_found(closing.id)
    if state != "open":
        raise RequestClosed(closing.id, state)
    await link.execute(_CLOSE, closing.id, closing.state, answer, closing.by, closing.channel, closing.assurance, now)


async def one(link: Link, request: str) -> Request:
    row = await link.fetchrow(f"SELECT {REQUEST} FROM requests WHERE id = $1", request)
    if row is None:
        raise request_not_found(request)
    return to_request(row)


def request_not_found(request: str) -> RequestNotFound:
    return RequestNotFound(f"There is no request {request!r:.80}.", remedy="List them with `fidelio inbox`.")


async def page(
    link: Link, *, session: str | None, state: str | None, key: str | None, cursor: str | None, limit: int
) -> Page[Request]:
    size = page_size(limit)
    rows = await link.fetch(_PAGE, session, state, key, from_number(cursor, "requests") or 0, size + 1)
    following = to_cursor("requests", rows[size - 1]["number"]) if len(rows) > size else None
    return Page(tuple(to_request(row) for row in rows[:size]), following)
