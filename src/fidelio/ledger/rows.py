"""Rows as values, the same for both databases: the columns of a statement are in the order of the fields they become.

A damaged file may return any value in any column. A row whose values have other types than they were stored with is refused
here, so that nothing above fails in a way of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, TypeVar

from fidelio.errors import LedgerDamaged
from fidelio.errors.ledger import RESTORE
from fidelio.ledger.chain import hash_session_id
from fidelio.ledger.encoding import decode, decode_list
from fidelio.ledger.model import Document, Event, Job, Page, Request, Session, SessionHead
from fidelio.ledger.paging import encode_cursor

T = TypeVar("T")

SESSION = "id, kind, namespace, name, parent, status, reason, record, last_seq, head, created_at, updated_at"
STRAY_SESSIONS = """
SELECT DISTINCT session FROM events WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE id = session)
UNION SELECT session FROM requests WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE id = session)
UNION SELECT session FROM document_versions WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE id = session)
ORDER BY session LIMIT 1000
"""
# Follows every character that an id or a name may have.
LAST_CHARACTER = "\U0010ffff"
VERSION = "space, path, version, digest, author, time"


_Types = frozenset[tuple[type, ...]]
_NULL = type(None)
# The end of the year 9999: a later time cannot be shown.
_LAST_TIME = 253_402_300_799_999


def _types(columns: str) -> _Types:
    """The possible types of a row: t text, i integer, b bytes; upper case where it may be NULL."""
    types = {"t": (str,), "i": (int,), "b": (bytes,), "T": (str, _NULL), "I": (int, _NULL), "B": (bytes, _NULL)}
    return frozenset(product(*(types[column] for column in columns)))


_SESSION_TYPES = _types("tttTTtttibii")
_EVENT_TYPES = _types("itittti" + "TBbb")
_REQUEST_TYPES = _types("t" * 13 + "iII")


def _check(row: Any, types: _Types, what: str, *times: int) -> None:
    if tuple(map(type, row)) not in types or not all(0 <= (row[at] or 0) <= _LAST_TIME for at in times):
        raise LedgerDamaged(f"The ledger is damaged: {what} has values that were never stored.", remedy=RESTORE)


def to_session(row: Any) -> Session:
    _check(row, _SESSION_TYPES, "a row of sessions", 8, 10, 11)
    return Session(*row)


def to_head(row: Any) -> SessionHead:
    session, seq, hash_ = row
    return SessionHead(session, 0, hash_session_id(session)) if seq is None else SessionHead(session, seq, hash_)


def to_event(row: Any) -> Event:
    _check(row, _EVENT_TYPES, "a row of events", 6)
    return Event(*row)


def to_request(row: Any) -> Request:
    _check(row, _REQUEST_TYPES, "a row of requests", 13, 14, 15)
    id_, session, kind, key, question, options, subject, detail, state, answer, *rest = row
    return Request(
        id_, session, kind, key, question, decode_list(options), subject, decode(detail), state, decode(answer), *rest
    )


def to_document(row: Iterable[Any], text: str | None = None) -> Document:
    space, path, version, digest, author, time = row
    return Document(space, path, version, digest, author, time, text)


def to_job(row: Iterable[Any]) -> Job:
    id_, kind, session, payload, *rest = row
    return Job(id_, kind, session, decode(payload), *rest)


def to_page(list_name: str, rows: Sequence[Any], size: int, convert: Callable[[Sequence[Any]], T]) -> Page[T]:
    """Make a page of rows that begin with their key. A row beyond `size` shows that there is another page."""
    next_cursor = encode_cursor(list_name, rows[size - 1][0]) if len(rows) > size else None
    return Page(tuple([convert(row[1:]) for row in rows[:size]]), next_cursor)
