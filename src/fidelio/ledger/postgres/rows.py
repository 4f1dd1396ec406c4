"""Rows as values. A column is called like the field it becomes, so a row says by itself what goes where; only
a record is called `raw` where it is still a text."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

import asyncpg
from msgspec import structs

from fidelio.ledger.codec import decode, decode_list
from fidelio.ledger.model import Document, Event, Job, Request, Session


@cache
def _names(kind: type, *without: str) -> tuple[str, ...]:
    return tuple(field.name for field in structs.fields(kind) if field.name not in without)


_SESSION = tuple("record" if name == "raw" else name for name in _names(Session))
SESSION = ", ".join(_SESSION)
EVENT = ", ".join(_names(Event))
REQUEST = ", ".join(_names(Request))
VERSION = ", ".join(_names(Document, "text"))

event_values = attrgetter(*_names(Event))


def to_session(row: asyncpg.Record) -> Session:
    return Session(*[row[name] for name in _SESSION])


def to_event(row: asyncpg.Record) -> Event:
    return Event(**dict(row))


def to_request(row: asyncpg.Record) -> Request:
    return Request(**_values(row, Request, options=decode_list, detail=decode, answer=decode))


def to_document(row: asyncpg.Record, text: str | None = None) -> Document:
    return Document(**{name: row[name] for name in _names(Document, "text")}, text=text)


def to_job(row: asyncpg.Record) -> Job:
    return Job(**_values(row, Job, payload=decode))


def marks(how_many: int) -> str:
    """The placeholders of an INSERT: `$1, $2, ...`."""
    return ", ".join(f"${place}" for place in range(1, how_many + 1))


def _values(row: asyncpg.Record, kind: type, **read: Callable[[str], Any]) -> dict[str, Any]:
    """The fields of `kind` in the row; those in `read` are JSON."""
    return {name: read[name](row[name]) if name in read else row[name] for name in _names(kind)}
