"""Frames over a stream socket: a header with length and message id, then the payload.

The host forwards payloads without decoding them, so a frame is all that it knows of an action. Whoever is at the other end may
be hostile: a frame that is too large ends the connection before its payload is read.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from typing import TypeAlias

from fidelio.errors import SandboxError
from fidelio.sandbox.inside.frames import HEADER, MAX_PAYLOAD

# Most requests and replies fit and arrive in one read. A larger frame gets a buffer of its own size. Unused pages cost nothing.
_BUFFER_BYTES = 256 << 10

# Gets the reply to a request, or why there will be none. A callback, because forwarding a reply through a future would take
# another turn of the event loop.
OnReply: TypeAlias = Callable[[bytes | SandboxError], None]


def settle(future: asyncio.Future[bytes], reply: bytes | SandboxError) -> None:
    """Set the reply of a future that somebody waits for. A caller that does not wait any more has cancelled it."""
    if future.done():
        return
    if isinstance(reply, SandboxError):
        future.set_exception(reply)
    else:
        future.set_result(reply)


class FrameProtocol(asyncio.BufferedProtocol):
    """Reads frames into a buffer that is reused, because `asyncio.Protocol` allocates 256 KiB for every read."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray(_BUFFER_BYTES)
        self._filled = 0
        self._large: bytearray | None = None
        self._large_number = 0
        self._large_filled = 0

    @abstractmethod
    def frame_received(self, number: int, payload: bytes | bytearray) -> None:
        """Handle a complete frame."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send_frame(self, number: int, payload: bytes | bytearray) -> None:
        """Write a frame. After the end of the connection this does nothing, as with every transport."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(HEADER.pack(len(payload), number) + payload)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # the signature is asyncio's
        if self._large is not None:
            return memoryview(self._large)[self._large_filled :]
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._large is None:
            self._filled += nbytes
            self._read_frames()
            return
        self._large_filled += nbytes
        if self._large_filled == len(self._large):
            payload, self._large = self._large, None
            self.frame_received(self._large_number, payload)

    def _read_frames(self) -> None:
        start, filled, buffer = 0, self._filled, self._buffer
        while filled - start >= HEADER.size:
            length, number = HEADER.unpack_from(buffer, start)
            end = start + HEADER.size + length
            if length > MAX_PAYLOAD:
                self._refuse()
                return
            if end > filled:
                if HEADER.size + length > _BUFFER_BYTES:
                    self._begin_large(length, number, start + HEADER.size)
                    start = filled
                break
            self.frame_received(number, bytes(memoryview(buffer)[start + HEADER.size : end]))
            start = end
        self._filled = filled - start
        if start and self._filled:
            buffer[: self._filled] = buffer[start:filled]

    def _begin_large(self, length: int, number: int, start: int) -> None:
        self._large, self._large_number, self._large_filled = bytearray(length), number, self._filled - start
        self._large[: self._large_filled] = self._buffer[start : self._filled]

    def _refuse(self) -> None:
        self._filled = 0
        if self.transport is not None:
            self.transport.abort()
