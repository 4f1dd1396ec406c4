"""The socket of the host of the sandboxes: who may connect, the operations, and the forwarding of frames.

Payloads of actions are forwarded unread in both directions. A client that sends what is not allowed, or does not read what is
sent to it, loses its connection; other connections and the sandboxes are not affected.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from fidelio.errors import FidelioError, SandboxError, SandboxUnavailable
from fidelio.retry import cancel_tasks
from fidelio.sandbox.host.client import read_peer_user
from fidelio.sandbox.host.frames import FrameProtocol
from fidelio.sandbox.host.operations import (
    MAX_OPERATION,
    NOTICE,
    Attach,
    EndNotice,
    Operation,
    ReadConnections,
    ReadLevel,
    ReadState,
    Stop,
    decode_operation,
    encode_error,
    encode_result,
)
from fidelio.sandbox.host.pool import LiveSandbox, SandboxPool
from fidelio.sandbox.model import ConnectionPage, Ending, LevelReport

_MAX_CONNECTIONS = 512
# A connection that has not begun with an operation by then is closed.
_OPERATION_SECONDS = 30.0
# Requests of one connection without a reply, and the bytes of those of one sandbox. Beyond that the client has to wait.
_MAX_PENDING = 64
_MAX_PENDING_BYTES = 64 << 20
# Replies that a client does not read.
_MAX_UNREAD_BYTES = 64 << 20
_CLOSE_SECONDS = 5.0

_log = logging.getLogger(__name__)


class HostServices:
    """What connections use of the host: the pool, the level, the log of the proxy."""

    def __init__(
        self,
        pool: SandboxPool,
        read_level: Callable[[], Awaitable[LevelReport]],
        read_connections: Callable[[str, int, str], ConnectionPage],
    ) -> None:
        self.pool, self.read_level, self.read_connections = pool, read_level, read_connections
        self.connections: set[HostConnection] = set()

    async def carry_out(self, operation: Operation, connection: HostConnection) -> bytes:
        match operation:
            case Attach(spec):
                live, state = await self.pool.attach(spec)
                return connection.attach(live, encode_result(state))
            case ReadLevel():
                return encode_result(await self.read_level())
            case ReadState(session):
                found = self.pool.find(session)
                return encode_result([] if found is None else [found.describe()])
            case Stop(session):
                return encode_result(await self.pool.stop(session, "stop_requested", "It was stopped on request."))
            case ReadConnections(session, after, log):
                return encode_result(self.read_connections(session, after, log))

    async def stop_operations(self) -> None:
        """Cancel the operations that are carried out, so that no sandbox is started any more."""
        await cancel_tasks(*[connection.task for connection in self.connections if connection.task is not None])

    def abort_connections(self) -> None:
        for connection in tuple(self.connections):
            if connection.transport is not None:
                connection.transport.abort()


class HostConnection(FrameProtocol):
    """A connection of a client: first operations, after `attach` the requests for its sandbox."""

    def __init__(self, services: HostServices) -> None:
        super().__init__()
        self._services = services
        self.task: asyncio.Task[None] | None = None
        self._live: LiveSandbox | None = None
        self._received = 0
        self._pending = 0
        self._is_paused = False
        self._can_write = True
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        if read_peer_user(transport) != os.geteuid() or len(self._services.connections) >= _MAX_CONNECTIONS:
            self.transport.abort()
            return
        self._services.connections.add(self)
        self._deadline = asyncio.get_running_loop().call_later(_OPERATION_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the signature is asyncio's
        self._services.connections.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._live is not None:
            self._live.listeners.discard(self.end)

    def frame_received(self, number: int, payload: bytes | bytearray) -> None:
        assert self.transport is not None
        if self.transport.is_closing():
            return
        if self._live is not None:
            self._forward(self._live, number, payload)
        elif self.task is None and len(payload) <= MAX_OPERATION and number != NOTICE:
            self.task = asyncio.create_task(self._operate(number, payload))
        else:
            self.transport.abort()

    def attach(self, live: LiveSandbox, reply: bytes) -> bytes:
        """Use this connection for the sandbox from now on."""
        if self.transport is None or self.transport.is_closing():
            return reply
        if live.ending is not None:
            raise SandboxUnavailable("The sandbox ended while it was attached.", remedy="Call again.")
        self._live = live
        live.listeners.add(self.end)
        if self._deadline is not None:
            self._deadline.cancel()
        return reply

    def end(self, ending: Ending) -> None:
        """Say why the sandbox ended, and close the connection. What has not been forwarded never will be."""
        assert self.transport is not None
        self.send_frame(NOTICE, msgspec.json.encode(EndNotice(ending, self._received)))
        self.transport.close()
        # Closing waits until the client has read everything, which it may not do.
        asyncio.get_running_loop().call_later(_CLOSE_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        self._can_write = False
        self._adjust_reading()

    def resume_writing(self) -> None:
        self._can_write = True
        self._adjust_reading()

    async def _operate(self, number: int, payload: bytes | bytearray) -> None:
        try:
            reply = await self._services.carry_out(decode_operation(payload), self)
        except FidelioError as error:
            reply = encode_error(error)
        except Exception:  # noqa: BLE001  # an outermost boundary: an operation of a client must not end the host
            _log.exception("An operation on the sandboxes has failed.")
            reply = encode_error(SandboxUnavailable("The host of the sandboxes failed.", remedy="Its log says why."))
        self.task = None
        self.send_frame(number, reply)

    def _forward(self, live: LiveSandbox, number: int, payload: bytes | bytearray) -> None:
        self._received += 1
        self._pending += 1
        live.request(payload, partial(self._forward_reply, number))
        if self._pending >= _MAX_PENDING or live.pending_bytes > _MAX_PENDING_BYTES:
            self._adjust_reading()

    def _forward_reply(self, number: int, reply: bytes | SandboxError) -> None:
        self._pending -= 1
        transport = self.transport
        # Without a reply the sandbox has ended; its end closes the connection.
        if not isinstance(reply, SandboxError) and transport is not None and not transport.is_closing():
            self.send_frame(number, reply)
            if transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
                transport.abort()
        if self._is_paused:
            self._adjust_reading()

    def _adjust_reading(self) -> None:
        assert self.transport is not None
        full = self._live is not None and self._live.pending_bytes > _MAX_PENDING_BYTES and self._pending > 0
        pause = full or self._pending >= _MAX_PENDING or not self._can_write
        if pause == self._is_paused or self.transport.is_closing():
            return
        self._is_paused = pause
        self.transport.pause_reading() if pause else self.transport.resume_reading()
