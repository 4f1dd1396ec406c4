"""Reads for surfaces that combine services: pages of what a filter accepts, and events with all of their texts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import PurePath
from typing import Any, TypeVar

from fidelio.app.application import Application
from fidelio.app.records import Records
from fidelio.errors import SessionNotFound
from fidelio.ledger.model import Event, Page, Request, Session

T = TypeVar("T")
# Pages that are read at most to fill a page of what a filter accepts. The cursor goes on from there.
MOST_READS = 20


async def read_accepted(
    read: Callable[..., Awaitable[Page[T]]],
    accepts: Callable[[T], Awaitable[bool]],
    *,
    cursor: str | None,
    limit: int,
    most_reads: int | None = MOST_READS,
) -> Page[T]:
    """A page of what is accepted. It may be short, or empty, and still have a cursor: few rows may be accepted."""
    found, reads = list[T](), 0
    while True:
        page = await read(cursor=cursor, limit=limit - len(found))
        found += [item for item in page.items if await accepts(item)]
        cursor, reads = page.next, reads + 1
        if cursor is None or len(found) >= limit or reads == most_reads:
            return Page(items=tuple(found), next=cursor)


async def is_of_project(records: Records, request: Request, project: str) -> bool:
    """Whether the session of a request belongs to a project, which is a directory or its last part."""
    try:
        session = await records.find(request.session)
    except SessionNotFound:
        return False
    own = str(session.record.get("project") or "")
    return project in (own, PurePath(own).name)


async def load_whole_body(application: Application, session: Session, event: Event) -> dict[str, Any]:
    """The body of an event with the texts that are stored apart from it; empty if it was erased."""
    if event.redacted:
        return {}
    if session.kind == "runtime":
        from fidelio.runtime.reading import load_body  # noqa: PLC0415  # brings the runtime, 80 ms

        return await load_body((await application.runtime()).context, event)
    records = await application.records()
    return {name: await _load_reference(records, value) for name, value in event.body.items()}


async def _load_reference(records: Records, value: Any) -> Any:
    return await records.load_text(value) if isinstance(value, dict) and {"text", "size"} <= value.keys() else value
