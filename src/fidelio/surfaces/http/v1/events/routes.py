"""Events of sessions and of threads: sent, listed and streamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from starlette.responses import Response

from fidelio.runtime.reading import load_whole_body
from fidelio.runtime.tools.model import LoadedRuntime
from fidelio.surfaces.http.v1.endpoint import API_ACTOR, ApiRequest, ApiRoute
from fidelio.surfaces.http.v1.errors import ApiProblem
from fidelio.surfaces.http.v1.events.history import Shown, TypeSelection, WireHistory
from fidelio.surfaces.http.v1.events.rendering import WireView, render
from fidelio.surfaces.http.v1.events.sending import SentEvents, check_sent, read_sent
from fidelio.surfaces.http.v1.events.streaming import EventStream
from fidelio.surfaces.http.v1.events.types import OWN_PREFIX, VENDOR_TYPES, Wire, to_thread
from fidelio.surfaces.http.v1.sessions.loading import load_active, load_session, load_thread
from fidelio.surfaces.http.v1.values import TimeRange

DEFAULT_LIMIT, MAX_LIMIT = 100, 1000
_DELTAS = frozenset({"agent.message", "agent.thinking"})
_LAST_EVENT = "last-event-id"


async def _send(request: ApiRequest) -> dict[str, Any]:
    loaded = await load_active(request, request.path("session_id"))
    body, channel = await request.body(SentEvents), await request.channel()
    check_sent(body.events, channel)
    runtime = await request.services.runtime()
    sent = await read_sent(request, body.events)
    stored = await runtime.send(loaded.id, sent, by=API_ACTOR, channel=channel)
    found: list[Wire] = []
    for event in stored:
        is_child = event.session != loaded.id or loaded.record.depth > 0
        view = WireView(to_thread(event.session), is_child=is_child)
        found += render(event, await load_whole_body(runtime.context, event), view)
    return {"data": found}


async def _list(request: ApiRequest) -> dict[str, Any]:
    return await _list_of(request, await load_session(request, request.path("session_id")))


async def _list_thread(request: ApiRequest) -> dict[str, Any]:
    return await _list_of(request, await _find_thread(request))


async def _stream(request: ApiRequest) -> Response:
    return await _stream_of(request, await load_session(request, request.path("session_id")))


async def _stream_thread(request: ApiRequest) -> Response:
    return await _stream_of(request, await _find_thread(request))


async def _find_thread(request: ApiRequest) -> LoadedRuntime:
    session = await load_session(request, request.path("session_id"))
    return await load_thread(request, session, request.path("thread_id"))


async def _list_of(request: ApiRequest, loaded: LoadedRuntime) -> dict[str, Any]:
    limit, order = request.limit(DEFAULT_LIMIT, MAX_LIMIT), request.query("order", "asc")
    if order not in ("asc", "desc"):
        raise ApiProblem(f"order: {order!r:.80} is neither asc nor desc.")
    selection, times, after = _read_selection(request), request.times("created_at"), request.query("after")
    if after and order == "desc":
        raise ApiProblem("after: it goes with order=asc only.")
    filters = (*sorted(selection.types), str(selection.own), str(times.first), str(times.last), after)
    list_ = f"events:{loaded.id}:{order}:{','.join(filters)}"
    history = await _open_history(request, loaded, selection)
    cursor = request.cursor(list_)
    read = _read_forward if order == "asc" else _read_back
    items, position = await read(history, limit, times, after, tuple(cursor) if cursor else None)
    return request.page(list_, items, position)


# Where a page begins: behind a position or, backwards, before it, and without the first items there.
_Cursor = tuple[int, int]


async def _read_forward(
    history: WireHistory, limit: int, times: TimeRange, after: str, cursor: _Cursor | None
) -> tuple[list[Wire], _Cursor | None]:
    skipped = ""
    if cursor is None:
        cursor = (0, 0)
        if after:
            # The event itself is read again, because others may be rendered from the same stored event.
            cursor, skipped = ((await history.locate(after, "after")) - 1, 0), after
    position, skip = cursor
    await history.seek(position)
    items: list[Wire] = []
    while shown := await history.read(limit + 1):
        for entry in shown:
            found = _drop(entry, times, skipped)
            skipped = "" if skipped and any(item["id"] == skipped for item in entry.items) else skipped
            found, skip = found[skip:], 0
            if len(items) + len(found) > limit:
                taken = limit - len(items)
                return [*items, *found[:taken]], (entry.position - 1, len(_drop(entry, times, "")) - len(found) + taken)
            items += found
        if history.is_cut and items:
            return items, (shown[-1].position, 0)
    return items, None


async def _read_back(
    history: WireHistory, limit: int, times: TimeRange, _: str, cursor: _Cursor | None
) -> tuple[list[Wire], _Cursor | None]:
    before, skip = cursor or (1 << 62, 0)
    items: list[Wire] = []
    while shown := await history.read_back(before, limit + 1):
        for entry in shown:
            found = _drop(entry, times, "")[::-1][skip:]
            if len(items) + len(found) > limit:
                taken = limit - len(items)
                return [*items, *found[:taken]], (entry.position + 1, skip + taken)
            items, skip = [*items, *found], 0
        before = shown[-1].position
        if history.is_cut and items:
            return items, (before, 0)
    return items, None


def _drop(entry: Shown, times: TimeRange, until: str) -> list[Wire]:
    """The events in the range of times, without those up to the event that the client has seen."""
    is_bounded = times != TimeRange()
    if is_bounded and (entry.time is None or entry.time not in times):
        return []
    return list(_skip(entry.items, until)) if until else list(entry.items)


def _skip(items: tuple[Wire, ...], until: str) -> Iterator[Wire]:
    found = False
    for item in items:
        if found:
            yield item
        found = found or item["id"] == until


async def _stream_of(request: ApiRequest, loaded: LoadedRuntime) -> Response:
    runtime = await request.services.runtime()
    selection, deltas = _read_selection(request), _read_deltas(request)
    history = await _open_history(request, loaded, selection)
    name, seen = _read_last_event(request)
    if seen:
        await history.seek((await history.locate(seen, name)) - 1)
    else:
        await history.seek_end()
    stream = EventStream(request.services.streams, runtime.context, runtime.previews, history)
    stream.skip, stream.deltas = seen, deltas
    return stream.respond()


async def _open_history(request: ApiRequest, loaded: LoadedRuntime, selection: TypeSelection) -> WireHistory:
    runtime = await request.services.runtime()
    history = WireHistory(runtime.context, loaded.id, selection, request.services.hide)
    await history.open(loaded)
    return history


def _read_last_event(request: ApiRequest) -> tuple[str, str]:
    """The last event that the client has seen, and where the request names it."""
    header = request.raw.headers.get(_LAST_EVENT, "")
    return ("Last-Event-ID", header) if header else ("after", request.query("after"))


def _read_selection(request: ApiRequest) -> TypeSelection:
    types = frozenset((*request.query_values("types[]"), *request.query_values("types")))
    unknown = sorted(type_ for type_ in types if type_ not in VENDOR_TYPES and not type_.startswith(OWN_PREFIX))
    if unknown:
        message = f"types: {unknown[0]!r:.80} is no type of event. Events of this server begin with {OWN_PREFIX}"
        raise ApiProblem(message)
    include = request.query("include")
    if include not in ("", "fidelio"):
        raise ApiProblem(f"include: {include!r:.80} is not offered. Use fidelio, or leave it out.")
    return TypeSelection(types, own=bool(include))


def _read_deltas(request: ApiRequest) -> frozenset[str]:
    deltas = frozenset((*request.query_values("event_deltas[]"), *request.query_values("event_deltas")))
    if unknown := sorted(deltas - _DELTAS):
        raise ApiProblem(f"event_deltas: {unknown[0]!r:.80} has no previews. Use one of {', '.join(sorted(_DELTAS))}.")
    return deltas


ROUTES = (
    ApiRoute("/v1/sessions/{session_id}/events", {"GET": _list, "POST": _send}),
    ApiRoute("/v1/sessions/{session_id}/events/stream", {"GET": _stream}),
    ApiRoute("/v1/sessions/{session_id}/threads/{thread_id}/events", {"GET": _list_thread}),
    ApiRoute("/v1/sessions/{session_id}/threads/{thread_id}/stream", {"GET": _stream_thread}),
)
