"""HTTP/1.1 connection of uvicorn with limits on its number, on the time to send a request, and on a client that does not read.

uvicorn limits only the size of headers and the idle time between requests. A client that sends one byte now and then, or reads
nothing, would hold a connection and what belongs to it for ever. A request that has arrived may take any time to answer: long
polls, streams and questions to people are not limited here.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from fidelio.processes.caller import Caller
from fidelio.settings import HttpLimits
from fidelio.surfaces.http.guard import SECURITY_HEADERS


class PeerAddress(tuple[str, int]):  # noqa: SLOT001  # a tuple can have no slots with a value
    """The address of the client of a connection. `found`: the process at its end, and when it was looked up."""

    found: tuple[float, Caller] | None = None


class OpenConnections:
    """Counts the open connections of a server, in all and by peer."""

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self._by_peer: Counter[str] = Counter()

    def admit(self, peer: str) -> str:
        """Count a connection. If there are too many, it is not counted, and the sentence says why."""
        if self._by_peer.total() >= self.limits.connections:
            limit, name, of = self.limits.connections, "FIDELIO_HTTP_CONNECTIONS", ""
        elif self._by_peer[peer] >= self.limits.per_peer:
            limit, name, of = self.limits.per_peer, "FIDELIO_HTTP_CONNECTIONS_PER_PEER", " of your address"
        else:
            self._by_peer[peer] += 1
            return ""
        return f"{limit} connections{of} are open, and the server accepts no more. Close some, or raise {name}."

    def release(self, peer: str) -> None:
        self._by_peer[peer] -= 1
        if not self._by_peer[peer]:
            del self._by_peer[peer]  # addresses are as many as an attacker likes


class LimitedConnection(H11Protocol):
    """A connection that obeys the limits of `open_connections`, which its server sets."""

    open_connections: ClassVar[OpenConnections]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._peer: str | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        peer = self.client[0] if self.client else ""
        refusal = self.open_connections.admit(peer)
        if refusal:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, refusal)
            return
        self._peer = peer
        self.client = PeerAddress(self.client) if self.client else None
        _detect_dead_peer(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._peer is not None:
            self.open_connections.release(self._peer)
            self._peer = None
        self._stop_timer("read")
        self._stop_timer("send")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_timer("send", self.open_connections.limits.send_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_timer("send")

    def _watch(self) -> None:
        """Run the timer while a request is incomplete. Further bytes do not restart it, or a trickle would never end."""
        if not self._is_reading():
            self._stop_timer("read")
        elif not self.transport.is_closing():
            self._start_timer("read", self.open_connections.limits.read_seconds, self._expire)

    def _start_timer(self, name: str, seconds: float, callback: Callable[[], None]) -> None:
        if name not in self._timers:
            self._timers[name] = self.loop.call_later(seconds, callback)

    def _stop_timer(self, name: str) -> None:
        if name in self._timers:
            self._timers.pop(name).cancel()

    def _is_reading(self) -> bool:
        state = self.conn.their_state
        # Between two requests uvicorn's own timer runs; it ends with the first byte.
        return state is h11.SEND_BODY or (state is h11.IDLE and self.timeout_keep_alive_task is None)

    def _expire(self) -> None:
        seconds = self.open_connections.limits.read_seconds
        self._refuse(
            HTTPStatus.REQUEST_TIMEOUT,
            f"The request was not complete after {seconds:g} seconds. Send it faster, or raise FIDELIO_HTTP_READ_SECONDS.",
        )

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP. uvicorn calls this."""
        self._refuse(HTTPStatus.BAD_REQUEST, msg)

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        # No second reply may follow one that has begun.
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": sentence}).encode()
            head = (
                f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\nconnection: close\r\n".encode()
            )
            head += b"".join(b"%s: %s\r\n" % header for header in SECURITY_HEADERS)
            self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        self.transport.close()


def limit_connections(limits: HttpLimits) -> type[LimitedConnection]:
    """The class of the connections of a server."""
    return type("ServerConnection", (LimitedConnection,), {"open_connections": OpenConnections(limits)})


def _detect_dead_peer(transport: asyncio.Transport) -> None:
    """Let the system probe an idle connection, so that a stream to a machine that has vanished ends."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
