"""The events of a session in their order, from any point on, with what concerns the session of the events of its children.

A session and its children have logs of their own; the ledger gives all events one order, their position. A read never goes
beyond the newest position at its beginning, so an event is neither missed nor repeated, whoever commits meanwhile. To go on,
also after a restart, only the last event has to be known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

import msgspec

from fidelio.ledger.model import Event
from fidelio.runtime import events as e
from fidelio.runtime.reading import SessionReader, list_descendants, load_whole_body, measure_texts
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.surfaces.http.v1.errors import ApiProblem
from fidelio.surfaces.http.v1.events.rendering import WireView, list_stored_types, render, render_own, render_posted
from fidelio.surfaces.http.v1.events.types import (
    OWN_PREFIX,
    POSTED,
    QUEUED,
    VENDOR_TYPES,
    Wire,
    strip_suffix,
    to_event_id,
    to_thread,
)

# Events of a log that are read at once where their number is not known in advance.
WINDOW = 500
# Bytes of texts and images that a read loads: a message may have many megabytes, and a page has many messages.
MAX_LOADED = 4 << 20
# How far before its request for approval the event of a call is looked for.
_CALL_WINDOW = 300
Hide: TypeAlias = Callable[[str], str]


class TypeSelection(msgspec.Struct, frozen=True):
    """The types of events that a reader wants. Without `types` all of the vendor's; `own` adds all of ours."""

    types: frozenset[str] = frozenset()
    own: bool = False

    def accepts(self, type_: str) -> bool:
        return type_ in self.types if self.types else type_ in VENDOR_TYPES or self.own

    @property
    def stored(self) -> tuple[str, ...]:
        """The stored types that the wanted ones are rendered from; empty for all."""
        return () if self.own and not self.types else list_stored_types(self.types)


ALL_OF_VENDOR = TypeSelection()


class Shown(msgspec.Struct, frozen=True):
    """A stored event with the events on the wire that it is. `time`: when it was processed; None while it is queued."""

    position: int
    time: int | None
    items: tuple[Wire, ...]


class _Source(msgspec.Struct):
    """A log that is read. Of a child only what is posted to its session; `seq` is the last event that was read."""

    session: str
    agent: str
    is_posted: bool
    seq: int = 0


class WireHistory:
    """Reads the events of a session, or of a thread, which is a session too."""

    def __init__(self, context: RuntimeContext, session: str, selection: TypeSelection, hide: Hide) -> None:
        self._context, self.session, self._selection, self._hide = context, session, selection, hide
        self._log = SessionReader(context)
        self._sources: list[_Source] = []
        self._is_child = False
        # Whether the last read has ended early, because its events are large.
        self.is_cut = False

    @property
    def sessions(self) -> list[str]:
        """The sessions whose events are read."""
        return [source.session for source in self._sources]

    async def open(self, loaded: LoadedRuntime) -> None:
        """Find the logs. Only a session that nobody has delegated to shows the events of its children."""
        self._is_child = loaded.record.depth > 0
        self._sources = [_Source(loaded.id, loaded.record.agent, is_posted=False)]
        if not self._is_child:
            children = await list_descendants(self._context, loaded.id)
            self._sources += [_Source(child.id, child.record.agent, is_posted=True) for child in children]

    async def seek(self, position: int) -> None:
        """Go behind the last event at or before a position."""
        for source in self._sources:
            source.seq = await find_seq(self._context, source.session, position)

    async def seek_end(self) -> int:
        """Go behind the newest event; returns its position."""
        newest = await self._log.wait(after=0, timeout=0)
        await self.seek(newest)
        return newest

    async def locate(self, id_: str, name: str) -> int:
        """The position of an event by its id on the wire. Raises 400 for what is no event of the session."""
        wanted = strip_suffix(id_)
        for source in self._sources:
            found = await self._find(source, lambda event: to_event_id(event.id) == wanted)
            if found is not None:
                return await self._locate_posted(source, found)
        raise ApiProblem(f"{name}: {id_!r:.100} is no event of this session.")

    async def _locate_posted(self, source: _Source, found: Event) -> int:
        """A call of a child is shown where it begins to ask."""
        if not source.is_posted or found.type != e.TOOL_USE:
            return found.position
        requested = await self._log.events(source.session, after=found.seq, types=(e.APPROVAL_REQUESTED,))
        return next((event.position for event in requested if event.body.get("tool_use_id") == found.id), found.position)

    async def _find(self, source: _Source, matches: Callable[[Event], bool]) -> Event | None:
        """The newest event that matches: who resumes has usually seen almost everything."""
        upper = (await self._log.session(source.session)).last_seq
        while upper > 0:
            lower = max(0, upper - WINDOW)
            page = await self._log.events(source.session, after=lower, limit=upper - lower)
            found = next((event for event in reversed(page) if matches(event)), None)
            if found is not None:
                return found
            upper = lower
            await asyncio.sleep(0)
        return None

    async def read(self, limit: int) -> list[Shown]:
        """The next events, at most `limit`; empty if there are none at the moment, or none that were selected."""
        newest = await self._log.wait(after=0, timeout=0)
        while True:
            batch, is_end = await self._read_batch(limit, newest)
            shown = await self._render(batch)
            if shown or is_end:
                return shown
            # A read from SQLite does not suspend: others would wait for all of a long log.
            await asyncio.sleep(0)

    async def _read_batch(self, limit: int, newest: int) -> tuple[list[tuple[_Source, Event]], bool]:
        merged: list[tuple[_Source, Event]] = []
        horizon = newest
        for source in self._sources:
            page = await self._log.events(source.session, after=source.seq, types=self._read_types(source), limit=limit)
            merged += [(source, event) for event in page if event.position <= newest]
            if len(page) == limit:
                # Beyond this position there may be events of this log that were not read.
                horizon = min(horizon, page[-1].position)
        merged = sorted((item for item in merged if item[1].position <= horizon), key=lambda item: item[1].position)
        batch = self._limit_size(self._cut(merged)[:limit])
        for source, event in batch:
            source.seq = event.seq
        return batch, len(batch) == len(merged) and horizon == newest

    def _read_types(self, source: _Source) -> tuple[str, ...]:
        if source.is_posted:
            return POSTED
        stored = self._selection.stored
        # Children are found by the events that create them, whatever was selected.
        return stored if not stored or self._is_child else tuple({*stored, e.CHILD_CREATED})

    def _cut(self, merged: list[tuple[_Source, Event]]) -> list[tuple[_Source, Event]]:
        """The events up to the creation of a child that was not known: its events come next."""
        if self._is_child:
            return merged
        known = set(self.sessions)
        for number, (_, event) in enumerate(merged):
            child = event.body.get("childSessionId") if event.type == e.CHILD_CREATED else None
            if child and child not in known:
                self._sources.append(_Source(str(child), "", is_posted=True))
                return merged[: number + 1]
        return merged

    def _limit_size(self, items: list[tuple[_Source, Event]]) -> list[tuple[_Source, Event]]:
        """The first events, until they are too large to be loaded together."""
        sizes = accumulate(measure_texts(event.body) for _, event in items)
        count = next((number for number, size in enumerate(sizes, 1) if size > MAX_LOADED), len(items))
        self.is_cut = count < len(items)
        return items[:count]

    async def read_back(self, before: int, limit: int) -> list[Shown]:
        """The newest events before a position, newest first."""
        upper = (await find_seq(self._context, self.session, before - 1)) + 1
        posted = [
            (source, event)
            for source in self._sources
            if source.is_posted
            for event in await self._log.events(source.session, types=POSTED, limit=10_000)
            if event.position < before
        ]
        shown: list[Shown] = []
        while upper > 1 and len(shown) < limit:
            lower = max(0, upper - 1 - WINDOW)
            page = await self._log.events(self.session, after=lower, limit=upper - 1 - lower)
            first = page[0].position if lower else 0
            wanted = self._selection.stored
            own = [(self._sources[0], event) for event in page if not wanted or event.type in wanted]
            ready = [item for item in posted if item[1].position > first]
            posted = [item for item in posted if item[1].position <= first]
            rest = sorted((*own, *ready), key=lambda item: item[1].position, reverse=True)
            while rest:
                taken = self._limit_size(rest)
                shown += await self._render(taken)
                rest = rest[len(taken) :]
                if self.is_cut and shown:
                    return shown[:limit]
            upper = lower + 1
        return shown[:limit]

    async def _render(self, batch: Sequence[tuple[_Source, Event]]) -> list[Shown]:
        queued = [event for source, event in batch if not source.is_posted and event.type in QUEUED]
        processed = await self._find_processed(queued) if queued else {}
        shown = [await self._show(source, event, processed) for source, event in batch]
        return [item for item in shown if item.items]

    async def _show(self, source: _Source, event: Event, processed: dict[str, int]) -> Shown:
        if not source.agent:
            source.agent = (await self._log.load(source.session)).record.agent
        view = WireView(to_thread(source.session), source.agent, self._is_child, processed, self._hide)
        found = await self._render_event(source, event, view)
        items = tuple(item for item in found if self._selection.accepts(item["type"]))
        time = processed.get(event.id) if event.type in QUEUED and "from_session" not in event.body else event.time
        return Shown(event.position, time, items)

    async def _render_event(self, source: _Source, event: Event, view: WireView) -> list[Wire]:
        if source.is_posted:
            if event.type == e.APPROVAL_REQUESTED:
                return await self._render_asking(source, event, view)
            return render_posted(event, await load_whole_body(self._context, event), view)
        body = await load_whole_body(self._context, event)
        found = render(event, body, view)
        # What the vendor has a type for is not shown twice; the usage at the end of a wake is an addition.
        if not any(item["id"] == to_event_id(event.id) for item in found):
            found = [*found, render_own(event, body, view)] if self._wants_own(event.type) else found
        return found

    def _wants_own(self, type_: str) -> bool:
        return self._selection.accepts(f"{OWN_PREFIX}{type_}")

    async def _render_asking(self, source: _Source, requested: Event, view: WireView) -> list[Wire]:
        """The call of a child that waits for a person."""
        name = requested.body.get("tool_use_id")
        after = max(0, requested.seq - _CALL_WINDOW)
        calls = await self._log.events(source.session, after=after, types=(e.TOOL_USE,), limit=_CALL_WINDOW)
        call = next((event for event in calls if event.id == name), None)
        if call is None:
            return []
        body = {**await load_whole_body(self._context, call), "permission": "ask"}
        return render_posted(call, body, view)

    async def _find_processed(self, queued: Iterable[Event]) -> dict[str, int]:
        """When queued events were processed: at the beginning of the wake that took them."""
        waiting = {event.seq: event for event in queued}
        found: dict[str, int] = {}
        after = min(waiting)
        while waiting:
            page = await self._log.events(self.session, after=after, types=(e.SPAN_STARTED,), limit=WINDOW)
            for span in page:
                for seq in [seq for seq, event in waiting.items() if _takes(span, event)]:
                    found[waiting.pop(seq).id] = span.time
            if len(page) < WINDOW:
                return found
            after = page[-1].seq
        return found


def _takes(span: Event, event: Event) -> bool:
    """Whether a wake began with an event. A system message goes with the message before it."""
    body = span.body
    if body.get("span_kind") != "wake" or body.get("resumes") or span.seq < event.seq:
        return False
    first = event.seq - (event.type == e.SYSTEM_MESSAGE)
    return int(body.get("processed_seq", 0)) >= first


async def find_seq(context: RuntimeContext, session: str, position: int) -> int:
    """The number of the last event of a session at or before a position; 0 if there is none."""
    log = SessionReader(context)
    low, high = 0, (await log.session(session)).last_seq
    while low < high:
        middle = (low + high + 1) // 2
        (event,) = await log.events(session, after=middle - 1, limit=1)
        low, high = (middle, high) if event.position <= position else (low, middle - 1)
    return low
