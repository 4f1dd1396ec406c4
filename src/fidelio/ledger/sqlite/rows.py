"""Rows as values: which columns a value needs, in which order, and what they become."""

from __future__ import annotations

from typing import Any

from fidelio.ledger.codec import decode, decode_list
from fidelio.ledger.model import Document, Event, Job, Request, Session

Row = tuple[Any, ...]

SESSION = "id, kind, namespace, name, parent, status, reason, record, last_seq, head, created_at, updated_at"
EVENT = "position, session, seq, id, type, actor, time, body, salt, digest, hash"
REQUEST = (
    "id, session, kind, about, question, options, subject, detail, state, answer, answered_by, channel, assurance,"
    " opened_at, closed_at, expires_at"
)


def to_session(row: Row) -> Session:
    return Session(*row[:7], decode(row[7]), *row[8:12])


def to_event(row: Row) -> Event:
    return Event(*row)


def to_request(row: Row) -> Request:
    return Request(*row[:5], decode_list(row[5]), row[6], decode(row[7]), row[8], decode(row[9]), *row[10:16])


def to_document(row: Row, text: str | None) -> Document:
    return Document(*row, text)


def to_job(row: Row) -> Job:
    return Job(row[0], row[1], row[2], decode(row[3]), *row[4:])
