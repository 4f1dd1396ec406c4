"""Row mappers: column lists, and functions that turn rows into values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from fidelio.ledger.encoding import decode, decode_list
from fidelio.ledger.model import Document, Event, Job, Request, Session

Row = tuple[Any, ...]

SESSION = "id, kind, namespace, name, parent, status, reason, record, last_seq, head, created_at, updated_at"
EVENT = "position, session, seq, id, type, actor, time, body, salt, digest, hash"
REQUEST = (
    "id, session, kind, about, question, options, subject, detail, state, answer, answered_by, channel, assurance,"
    " opened_at, closed_at, expires_at"
)


def join_sql(*fragments: str) -> str:
    """Join SQL fragments that are constants of this package; values are always bound as parameters."""
    return " ".join(fragments)


def fetch(connection: apsw.Connection, statement: str, values: Sequence[Any] = ()) -> list[Row]:
    rows: list[Row] = connection.execute(statement, values).fetchall()
    return rows


def to_session(row: Row) -> Session:
    return Session(*row)


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
