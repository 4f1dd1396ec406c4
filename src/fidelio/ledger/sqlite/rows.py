"""Rows as values: which columns a value needs, in which order, and what they become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import apsw

from fidelio.ledger.codec import decode, decode_list
from fidelio.ledger.model import Document, Event, Job, Request, Session, SessionKind

Row = tuple[Any, ...]

SESSION = "id, kind, namespace, name, parent, status, reason, record, last_seq, head, created_at, updated_at"
EVENT = "position, session, seq, id, type, actor, time, body, salt, digest, hash"
REQUEST = (
    "id, session, kind, about, question, options, subject, detail, state, answer, answered_by, channel, assurance,"
    " opened_at, closed_at, expires_at"
)


def statement(*parts: str) -> str:
    """A statement put together from our own words: column lists, tests, orders. Values are always bound."""
    return " ".join(parts)


def fetch(connection: apsw.Connection, statement: str, given: Sequence[Any] = ()) -> list[Row]:
    found: list[Row] = connection.execute(statement, given).fetchall()
    return found


class SessionRow(NamedTuple):
    """A row of `sessions` as it is stored, with its record still a text."""

    id: str
    kind: SessionKind
    namespace: str
    name: str | None
    parent: str | None
    status: str
    reason: str
    record: str
    last_seq: int
    head: bytes
    created_at: int
    updated_at: int


def to_session(row: Row, record: dict[str, Any] | None = None) -> Session:
    """`record` takes the place of the one in the row."""
    id_, kind, namespace, name, parent, status, reason, raw, *rest = row
    return Session(id_, kind, namespace, name, parent, status, reason, decode(raw) if record is None else record, *rest)


def to_row(session: Session, record: str) -> SessionRow:
    names = (session.id, session.kind, session.namespace, session.name, session.parent)
    end = (session.last_seq, session.head, session.created_at, session.updated_at)
    return SessionRow(*names, session.status, session.reason, record, *end)


def to_event(row: Row) -> Event:
    return Event(*row)


def to_request(row: Row) -> Request:
    id_, session, kind, about, question, options, subject, detail, state, answer, *rest = row
    return Request(
        id_, session, kind, about, question, decode_list(options), subject, decode(detail), state, decode(answer), *rest
    )


def to_document(row: Row, text: str | None) -> Document:
    space, path, version, digest, author, time = row
    return Document(space, path, version, digest, author, time, text)


def to_job(row: Row) -> Job:
    id_, kind, session, payload, *rest = row
    return Job(id_, kind, session, decode(payload), *rest)
