"""Streams of events (server-sent events). A single task follows the ledger for all streams of the process.

A stream reads what it sends itself, a page at a time, when its client has taken the page before: so a slow client costs
no memory, and an idle stream costs nothing but a ping now and then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator

import msgspec
from starlette.responses import StreamingResponse

from fidelio.runtime.previews import Previews, PreviewText
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.surfaces.http.v1.events.history import Shown, WireHistory
from fidelio.surfaces.http.v1.events.hub import StreamHub, StreamSignal
from fidelio.surfaces.http.v1.events.types import DELETED, Wire, to_event_id

PING_SECONDS = 15.0
PAGE = 100
_ENDED = 32
_PING = b'event: ping\ndata: {"type": "ping"}\n\n'
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class EventStream:
    """A stream of a session. `history` has been sought; `skip`: the last event that the client has seen.

    `deltas`: the types of events of which the client wants previews.
    """

    def __init__(self, hub: StreamHub, context: RuntimeContext, previews: Previews, history: WireHistory) -> None:
        self._hub, self._context, self._previews, self._history = hub, context, previews, history
        self.skip, self.deltas = "", frozenset[str]()
        self._previewed = ""
        # Messages that were sent: the rest of their previews may arrive afterwards, and is not shown.
        self._ended: deque[str] = deque(maxlen=_ENDED)
        self._is_over = False

    def respond(self) -> StreamingResponse:
        self._hub.check_room()
        return StreamingResponse(self._send(), media_type="text/event-stream", headers=_HEADERS)

    async def _send(self) -> AsyncIterator[bytes]:
        with (
            self._hub.open(self._context) as signal,
            self._previews.watch(self._history.session, signal.event.set) as watcher,
        ):
            # Before the first read: what is committed from here on sets the signal.
            signal.watch(self._history.sessions)
            signal.event.set()
            # So that the client sees that the stream is open.
            yield b": open\n\n"
            while not self._is_over:
                if not await signal.wait(PING_SECONDS):
                    yield _PING
                    continue
                # Text is read before events are read: what is on record afterwards ends a preview that has been sent.
                arrived = watcher.read() if "agent.message" in self.deltas else []
                async for chunk in self._read_events(signal, arrived):
                    yield chunk

    async def _read_events(self, signal: StreamSignal, arrived: list[PreviewText]) -> AsyncIterator[bytes]:
        while shown := await self._history.read(PAGE):
            signal.watch(self._history.sessions)
            chunk = b"".join(self._encode(item, arrived) for item in shown)
            if chunk:
                yield chunk
            if self._is_over:
                return
        signal.watch(self._history.sessions)
        if chunk := b"".join(map(self._encode_preview, arrived)):
            yield chunk

    def _encode(self, shown: Shown, arrived: list[PreviewText]) -> bytes:
        chunks = []
        for item in shown.items:
            if self.skip:
                # Everything up to the event that the client has seen is known to it.
                self.skip = "" if item["id"] == self.skip else self.skip
                continue
            if item["type"] == "agent.message":
                chunks += [self._encode_preview(text) for text in arrived if to_event_id(text.message) == item["id"]]
                self._ended.append(item["id"])
            chunks.append(encode_event(item))
            self._is_over = self._is_over or item["type"] == DELETED
        return b"".join(chunks)

    def _encode_preview(self, text: PreviewText) -> bytes:
        message = to_event_id(text.message)
        if message in self._ended:
            return b""
        start = b""
        if message != self._previewed:
            self._previewed = message
            start = _encode_frame({"type": "event_start", "event": {"type": "agent.message", "id": message}})
        content = {"type": "content_delta", "index": 0, "content": {"type": "text", "text": text.text}}
        return start + _encode_frame({"type": "event_delta", "event_id": message, "delta": content})


def encode_event(item: Wire) -> bytes:
    """An event as it is sent. The id lets the client go on behind it; previews have none."""
    return f"id: {item['id']}\n".encode() + _encode_frame(item)


def _encode_frame(item: Wire) -> bytes:
    # JSON has no line ends, so the data is a single line.
    return f"event: {item['type']}\ndata: {msgspec.json.encode(item).decode()}\n\n".encode()
