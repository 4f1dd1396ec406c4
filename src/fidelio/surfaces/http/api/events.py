"""Operations on events: pages of them with all of their texts, and streams that go on where a program was."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import StreamingResponse

from fidelio.app.listing import load_whole_body
from fidelio.app.watching import MAX_STREAMS
from fidelio.errors import SessionNotFound
from fidelio.ledger.model import Event, Session
from fidelio.surfaces.http.api.operations import ApiCall, ApiOperation, HttpProblem, JsonServices, Limit, Listed, Name, NoQuery
from fidelio.surfaces.views.records import EventDetail, view_event

# Events that a stream reads at once, and bytes after which a page ends although it has fewer events than it may.
BATCH, MOST_BYTES = 100, 4 * 1024 * 1024
# The largest number that a database stores.
_LAST = (1 << 63) - 1
_STREAM = "text/event-stream"
Types = Annotated[tuple[Name, ...], Meta(max_length=50, description="Only events of this type. Repeatable.")]


class EventQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which events are listed. `after` is `seq` in a session, else `position`."""

    limit: Limit = BATCH
    after: Annotated[int, Meta(ge=0, le=_LAST, description="Only events after this number.")] = 0
    type: Types = ()


class StreamQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a stream begins. The header `Last-Event-ID` counts more."""

    after: Annotated[int, Meta(ge=0, le=_LAST, description="Begin after this number; by default with what is new.")] | None = (
        None
    )
    type: Types = ()


async def list_events(call: ApiCall[EventQuery, None]) -> Listed[EventDetail]:
    return await _list(call, None)


async def list_session_events(call: ApiCall[EventQuery, None]) -> Listed[EventDetail]:
    return await _list(call, await call.session())


async def _list(call: ApiCall[EventQuery, None], session: Session | None) -> Listed[EventDetail]:
    wanted, records = call.query, await call.services.records()
    name = None if session is None else session.id
    events = await records.events(name, after=wanted.after, types=wanted.type, limit=wanted.limit + 1)
    shown, size, sessions = list[EventDetail](), 0, _Sessions(call.services, session)
    for event in events[: wanted.limit]:
        view = await sessions.view(event)
        size += len(msgspec.json.encode(view))
        if shown and size > MOST_BYTES:
            break
        shown.append(view)
    if len(shown) == len(events):
        return Listed(tuple(shown), None)
    return Listed(tuple(shown), str(_number(events[len(shown) - 1], session)))


async def read_event(call: ApiCall[NoQuery, None]) -> EventDetail:
    session, text = await call.session(), call.path("seq")
    seq = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
    events = await (await call.services.records()).events(session.id, after=max(0, seq - 1), limit=1)
    if not events or events[0].seq != seq:
        remedy = f"It has the events 1 to {session.last_seq}."
        raise HttpProblem(404, "api.unknown-event", f"Session {session.id} has no event {text!r:.40}.", remedy)
    return await _Sessions(call.services, session).view(events[0])


async def stream_events(call: ApiCall[StreamQuery, None]) -> StreamingResponse:
    newest = await (await call.services.records()).wait(after=0, timeout=0)
    return _stream(call, None, _read_start(call, newest))


async def stream_session_events(call: ApiCall[StreamQuery, None]) -> StreamingResponse:
    session = await call.session()
    return _stream(call, session, _read_start(call, session.last_seq))


def _read_start(call: ApiCall[StreamQuery, None], newest: int) -> int:
    text = call.raw.headers.get("last-event-id", "")
    if not text:
        return newest if call.query.after is None else call.query.after
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        sentence = f"The header Last-Event-ID is {text!r:.40}."
        raise HttpProblem(400, "api.last-event-id", sentence, "Send the id of the last event that you got.")
    return int(text)


def _stream(call: ApiCall[StreamQuery, None], session: Session | None, after: int) -> StreamingResponse:
    if not call.services.watcher.has_room:
        sentence = f"{MAX_STREAMS} pages and streams are open."
        raise HttpProblem(503, "api.streams", sentence, "Close some, or try again later.", headers={"retry-after": "30"})
    messages = _follow(call.services, session, after, call.query.type)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(messages, media_type=_STREAM, headers=headers)


async def _follow(
    services: JsonServices, session: Session | None, after: int, types: Sequence[str]
) -> AsyncGenerator[bytes, None]:
    """Every event after a number as a message of its own. A message without an event is a sign of life."""
    records, name = await services.records(), None if session is None else session.id
    sessions = _Sessions(services, session)
    async with aclosing(services.watcher.follow(0)) as positions:
        yield b"retry: 1000\n\n"
        async for _ in positions:
            has_more, is_quiet = True, True
            while has_more:
                events = await records.events(name, after=after, types=types, limit=BATCH)
                for event in events:
                    after, is_quiet = _number(event, session), False
                    yield _encode(after, await sessions.view(event))
                has_more = len(events) == BATCH
            if is_quiet:
                yield b": still here\n\n"


def _number(event: Event, session: Session | None) -> int:
    return event.position if session is None else event.seq


def _encode(number: int, view: EventDetail) -> bytes:
    # JSON has no line ends, so the data is a single line.
    return b"id: %d\ndata: %s\n\n" % (number, msgspec.json.encode(view))


class _Sessions:
    """Shows events with all of their texts. Remembers the kind of the session of the event before."""

    def __init__(self, services: JsonServices, session: Session | None) -> None:
        self._services, self._session = services, session

    async def view(self, event: Event) -> EventDetail:
        if self._session is None or self._session.id != event.session:
            self._session = await self._find(event.session)
        if self._session is None:
            return view_event(event)
        return view_event(event, await load_whole_body(self._services.application, self._session, event))

    async def _find(self, name: str) -> Session | None:
        try:
            return await (await self._services.records()).find(name)
        except SessionNotFound:
            return None


_SESSION = "/api/sessions/{session}/events"
_read = partial(ApiOperation, method="GET", group="Events")
OPERATIONS = (
    _read(
        path="/api/events",
        name="listEvents",
        summary="List the events of all sessions, in their order.",
        handler=list_events,
        query=EventQuery,
        result=Listed[EventDetail],
    ),
    _read(
        path="/api/events/stream",
        name="streamEvents",
        summary="Follow the events of all sessions as server-sent events; the id of each is its position.",
        handler=stream_events,
        query=StreamQuery,
        result=_STREAM,
    ),
    _read(
        path=_SESSION,
        name="listSessionEvents",
        summary="List the events of a session, in their order.",
        handler=list_session_events,
        query=EventQuery,
        result=Listed[EventDetail],
        failures=(404,),
    ),
    _read(
        path=f"{_SESSION}/stream",
        name="streamSessionEvents",
        summary="Follow the events of a session as server-sent events; the id of each is its number.",
        handler=stream_session_events,
        query=StreamQuery,
        result=_STREAM,
        failures=(404,),
    ),
    _read(
        path=f"{_SESSION}/{{seq}}",
        name="readEvent",
        summary="Read an event by its number.",
        handler=read_event,
        result=EventDetail,
        failures=(404,),
    ),
)
