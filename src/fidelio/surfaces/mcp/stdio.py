"""MCP over standard input and output: one JSON message a line, several calls in flight.

Our own loop because most users meet us here: the official one costs a hundred times the start-up and ten times the time per
call. Nothing but protocol is written to standard output; whatever else the process prints goes to standard error.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Any, BinaryIO

import msgspec

from fidelio.surfaces.mcp.protocol import INVALID_REQUEST, PARSE_ERROR, Protocol, failure

MAX_MESSAGE = 16 * 1024 * 1024
DRAIN_SECONDS = 5.0


async def serve_stdio(protocol: Protocol) -> None:
    """Serves until the client closes its end, then lets calls in flight finish within a bound."""
    source = sys.stdin.buffer
    with _only_protocol_on_stdout() as sink:
        await _Connection(protocol, sink).run(_lines(source))


class _Connection:
    def __init__(self, protocol: Protocol, sink: BinaryIO) -> None:
        self._protocol = protocol
        self._sink = sink
        self._calls: dict[str | int, asyncio.Task[None]] = {}

    async def run(self, lines: AsyncIterator[bytes | None]) -> None:
        async for line in lines:
            if line is None:
                self._send(failure(None, INVALID_REQUEST, f"A message is longer than {MAX_MESSAGE} bytes."))
            elif line.strip():
                self._receive(line)
        await self._drain()

    def _receive(self, line: bytes) -> None:
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            self._send(failure(None, PARSE_ERROR, "A line is not JSON."))
            return
        if isinstance(message, dict) and message.get("method") == "notifications/cancelled":
            self._cancel(message.get("params"))
        else:
            self._start(message)

    def _start(self, message: object) -> None:
        task = asyncio.create_task(self._answer(message))
        name = message.get("id") if isinstance(message, dict) else None
        key = name if isinstance(name, (str, int)) else id(task)
        self._calls[key] = task
        task.add_done_callback(lambda _: self._calls.pop(key, None))

    async def _answer(self, message: object) -> None:
        reply = await self._protocol.answer(message)
        if reply is not None:
            self._send(reply)

    def _cancel(self, params: object) -> None:
        name = params.get("requestId") if isinstance(params, dict) else None
        task = self._calls.get(name) if isinstance(name, (str, int)) else None
        if task is not None:
            task.cancel()

    def _send(self, message: dict[str, Any]) -> None:
        self._sink.write(msgspec.json.encode(message) + b"\n")
        self._sink.flush()

    async def _drain(self) -> None:
        calls = list(self._calls.values())
        if calls:
            _, late = await asyncio.wait(calls, timeout=DRAIN_SECONDS)
            for task in late:
                task.cancel()


class _only_protocol_on_stdout:  # noqa: N801  # reads as a verb phrase in the `with` statement
    """Keeps a private handle on standard output and points the public one at standard error."""

    def __enter__(self) -> BinaryIO:
        self._sink = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        return self._sink

    def __exit__(self, *_: object) -> None:
        os.dup2(self._sink.fileno(), 1)
        self._sink.close()


async def _lines(source: BinaryIO) -> AsyncIterator[bytes | None]:
    """Complete lines; None stands for one that was too long and was dropped as a whole."""
    reader = asyncio.StreamReader(limit=MAX_MESSAGE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    dropping = False
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            await reader.readexactly(error.consumed)
            dropping = True
            continue
        except asyncio.IncompleteReadError:
            return
        yield None if dropping else line
        dropping = False
