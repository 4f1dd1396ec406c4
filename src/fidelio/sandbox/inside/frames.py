"""Frames of the connection between the host and pid 1: a header with length and message id, then the payload.

The same form is used between the clients of the host and the host (`fidelio.sandbox.host.frames`).
"""

from __future__ import annotations

import struct

HEADER = struct.Struct(">IQ")
MAX_PAYLOAD = 32 << 20


class FrameTooLarge(ValueError):
    """A frame announces a payload that is larger than allowed. The stream cannot be read further."""


def encode_frame(number: int, payload: bytes) -> bytes:
    return HEADER.pack(len(payload), number) + payload


class FrameReader:
    """Cuts a stream of bytes into frames, whatever pieces it arrives in."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that are complete now. Raises `FrameTooLarge`."""
        buffer = self._buffer
        buffer += data
        frames: list[tuple[int, bytes]] = []
        start = 0
        while len(buffer) - start >= HEADER.size:
            length, number = HEADER.unpack_from(buffer, start)
            if length > MAX_PAYLOAD:
                raise FrameTooLarge(f"A frame of {length} bytes is larger than the allowed {MAX_PAYLOAD}.")
            end = start + HEADER.size + length
            if end > len(buffer):
                break
            frames.append((number, bytes(buffer[start + HEADER.size : end])))
            start = end
        del buffer[:start]
        return frames
