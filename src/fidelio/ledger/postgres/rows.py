"""Row mappers: functions that turn rows into values.

Columns have the names of the fields they become, except that the column `record` becomes the field `raw` of a session.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

import asyncpg
from msgspec import structs

from fidelio.ledger.encoding import decode, decode_list
from fidelio.ledger.model import Document, Event, Job, Request, Session


@cache
def _field_names(kind: type, *excluded: str) -> tuple[str, ...]:
    return tuple(field.name for field in structs.fields(kind) if field.name not in excluded)


_SESSION = tuple("record" if name == "raw" else name for name in _field_names(Session))
SESSION = ", ".join(_SESSION)
EVENT = ", ".join(_field_names(Event))
REQUEST = ", ".join(_field_names(Request))
VERSION = ", ".join(_field_names(Document, "text"))

to_event_values = attrgetter(*_field_names(Event))


def to_session(row: asyncpg.Record) -> Session:
    return Session(*[row[name] for name in _SESSION])


def to_event(row: asyncpg.Record) -> Event:
    return Event(**dict(row))


def to_request(row: asyncpg.Record) -> Request:
    return Request(**_read_fields(row, Request, options=decode_list, detail=decode, answer=decode))


def to_document(row: asyncpg.Record, text: str | None = None) -> Document:
    return Document(**{name: row[name] for name in _field_names(Document, "text")}, text=text)


def to_job(row: asyncpg.Record) -> Job:
    return Job(**_read_fields(row, Job, payload=decode))


def placeholders(count: int) -> str:
    """Build the placeholders of an INSERT: `$1, $2, ...`."""
    return ", ".join(f"${number}" for number in range(1, count + 1))


def _read_fields(row: asyncpg.Record, kind: type, **decoders: Callable[[str], Any]) -> dict[str, Any]:
    """Read the fields of `kind` from a row, with decoders for the JSON columns."""
    return {name: decoders[name](row[name]) if name in decoders else row[name] for name in _field_names(kind)}
