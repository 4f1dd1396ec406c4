"""Rows as values, the same for both databases: the columns of a statement are in the order of the fields they become."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from fidelio.ledger.encoding import decode, decode_list
from fidelio.ledger.model import Document, Job, Page, Request
from fidelio.ledger.paging import encode_cursor

T = TypeVar("T")

SESSION = "id, kind, namespace, name, parent, status, reason, record, last_seq, head, created_at, updated_at"
VERSION = "space, path, version, digest, author, time"


def to_request(row: Iterable[Any]) -> Request:
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
