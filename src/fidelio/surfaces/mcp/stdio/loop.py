"""MCP over standard input and output: newline-delimited JSON, with several calls in flight.

Most clients use this transport, and the loop of the SDK takes ten times as long to start and per call. Memory is bounded:
reading pauses while too many calls are in flight or the client does not read its replies.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import msgspec

from fidelio.surfaces.mcp.elicitation import NoAnswer
from fidelio.surfaces.mcp.endpoint import (
    DECODING_ERRORS,
    INVALID_REQUEST,
    PARSE_ERROR,
    encode_message,
    error_response,
    is_request_id,
)
from fidelio.surfaces.mcp.protocol import Peer, Protocol
from fidelio.surfaces.mcp.stdio.descriptors import private_standard_streams
from fidelio.surfaces.mcp.stdio.streams import InputReader, LineSplitter, OutputWriter, open_reader

MAX_MESSAGE = 16 * 1024 * 1024
MAX_CALLS = 256
MAX_IN_FLIGHT = 4 * MAX_MESSAGE
MAX_UNSENT = 1024 * 1024
# How long calls in flight go on when the input has ended; after a signal somebody waits for the process to end.
DRAIN_SECONDS, SIGNALLED_DRAIN_SECONDS = 5.0, 1.0
MAX_DIGITS = 400
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

Deliver = Callable[[dict[str, Any]], None]


async def serve_stdio(protocol: Protocol) -> int:
    """Serve until the client closes its end or a signal arrives; calls in flight get a moment to finish.

    Return the exit code: 0, or 128 plus the number of the signal.
    """
    with private_standard_streams() as (source, sink):
        connection = _Connection(protocol, sink)
        connection.reader = await open_reader(source, connection.on_chunk, connection.closed.set)
        loop = asyncio.get_running_loop()
        for signal_number in _SIGNALS:
            loop.add_signal_handler(signal_number, connection.stop, signal_number)
        try:
            await connection.closed.wait()
        finally:
            for signal_number in _SIGNALS:  # a second signal ends the process at once
                loop.remove_signal_handler(signal_number)
        connection.reader.close()
        await connection.finish()
        return connection.exit_code


class _Connection:
    def __init__(self, protocol: Protocol, sink: int) -> None:
        self.closed = asyncio.Event()
        self.exit_code = 0
        self.reader: InputReader | None = None
        self._writer = OutputWriter(sink, on_drained=self._update_flow, on_broken=self.closed.set)
        self._lines = LineSplitter(MAX_MESSAGE)
        self._client = protocol.connect(Peer(self._ask, self._notify))
        self._calls: dict[object, asyncio.Task[None]] = {}
        self._in_flight = 0
        self._pending: dict[object, asyncio.Future[object]] = {}
        self._ids = count(1)

    # Incoming messages

    def on_chunk(self, chunk: bytes) -> None:
        for line in self._lines.feed(chunk):
            if line is None:
                self._send(error_response(None, INVALID_REQUEST, f"A message is longer than {MAX_MESSAGE} bytes."))
            elif line and not line.isspace():
                self._read(line)
        self._update_flow()

    def _read(self, line: bytes) -> None:
        try:
            message = msgspec.json.decode(line)
        except DECODING_ERRORS:
            self._send(
                error_response(
                    _find_id(line), PARSE_ERROR, "The line is not valid JSON, or a number or string in it is out of range."
                )
            )
            return
        if isinstance(message, list):
            self._handle_batch(message, len(line))
        else:
            self._handle(message, len(line), self._send)

    def _handle_batch(self, messages: list[object], size: int) -> None:
        """Handle a batch of revision 2025-03-26, whose replies are sent together as a list."""
        replies: list[dict[str, Any]] = []
        share = size // max(len(messages), 1)
        tasks = [self._handle(message, share, replies.append) for message in messages]
        if not messages:
            replies.append(error_response(None, INVALID_REQUEST, "A batch must hold at least one message."))
        tasks_started = {task for task in tasks if task is not None}
        batch = asyncio.create_task(self._send_batch(tasks_started, replies))
        self._track(batch, batch, 0)

    async def _send_batch(self, tasks_started: set[asyncio.Task[None]], replies: list[dict[str, Any]]) -> None:
        if tasks_started:
            await asyncio.wait(tasks_started)
        if replies:
            self._send(replies)

    def _handle(self, message: object, size: int, deliver: Deliver) -> asyncio.Task[None] | None:
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            deliver(error_response(None, INVALID_REQUEST, "Not a JSON-RPC 2.0 message."))
        elif "method" in message and "id" in message:
            return self._start(message, size, deliver)
        elif message.get("method") == "notifications/cancelled":
            self._cancel(message.get("params"))
        elif "method" not in message:
            self._handle_response(message)
        return None

    def _start(self, message: dict[str, Any], size: int, deliver: Deliver) -> asyncio.Task[None] | None:
        request_id = message["id"]
        if not is_request_id(request_id):
            deliver(error_response(None, INVALID_REQUEST, "The id of a request must be a string or an integer."))
        elif request_id in self._calls:
            # The client would take a reply with this id for the reply to the first request.
            deliver(error_response(None, INVALID_REQUEST, "A request with this id is still in flight."))
        else:
            task = asyncio.create_task(self._answer(message, deliver))
            self._track(request_id, task, size)
            return task
        return None

    def _track(self, request_id: object, task: asyncio.Task[None], size: int) -> None:
        self._calls[request_id] = task
        self._in_flight += size
        task.add_done_callback(partial(self._untrack, request_id, size))

    def _untrack(self, request_id: object, size: int, _: asyncio.Task[None]) -> None:
        del self._calls[request_id]
        self._in_flight -= size
        self._update_flow()

    def _update_flow(self) -> None:
        """Pause or resume reading, depending on the calls in flight and the unsent replies."""
        if self.reader is None:
            return
        has_capacity = len(self._calls) < MAX_CALLS and self._in_flight < MAX_IN_FLIGHT and self._writer.unsent < MAX_UNSENT
        if has_capacity:
            self.reader.resume()
        else:
            self.reader.pause()

    def _cancel(self, params: object) -> None:
        request_id = params.get("requestId") if isinstance(params, dict) else None
        task = self._calls.get(request_id) if is_request_id(request_id) else None
        if task is not None:
            task.cancel()

    # Outgoing messages

    async def _answer(self, message: dict[str, Any], deliver: Deliver) -> None:
        deliver(await self._client.answer(message))

    def _send(self, message: dict[str, Any] | list[dict[str, Any]]) -> None:
        self._writer.write(encode_message(message) + b"\n")

    async def _notify(self, method: str, params: dict[str, Any]) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    # Requests to the client

    async def _ask(self, method: str, params: dict[str, Any]) -> object:
        request_id = next(self._ids)
        future = self._pending[request_id] = asyncio.get_running_loop().create_future()
        self._send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        try:
            return await future
        except asyncio.CancelledError:
            await self._notify(
                "notifications/cancelled", {"requestId": request_id, "reason": "The answer is no longer needed."}
            )
            raise
        finally:
            del self._pending[request_id]

    def _handle_response(self, message: dict[str, Any]) -> None:
        request_id = message.get("id")
        future = self._pending.get(request_id) if is_request_id(request_id) else None
        if future is None or future.done():
            return
        if "result" in message:
            future.set_result(message["result"])
        else:
            future.set_exception(NoAnswer("The client could not ask its user."))

    # Shutdown

    def stop(self, signal_number: int) -> None:
        self.exit_code = 128 + signal_number
        self.closed.set()

    async def finish(self) -> None:
        for future in self._pending.values():
            if not future.done():
                future.set_exception(NoAnswer("The connection ended before the person answered."))
        await self._drain()
        await self._writer.flush(DRAIN_SECONDS)

    async def _drain(self) -> None:
        calls = list(self._calls.values())
        if not calls:
            return
        _, unfinished = await asyncio.wait(calls, timeout=SIGNALLED_DRAIN_SECONDS if self.exit_code else DRAIN_SECONDS)
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished, timeout=DRAIN_SECONDS)


def _find_id(line: bytes) -> str | int | None:
    """Return the id of a request that msgspec rejects and the `json` module accepts, so that the error names the request."""
    try:
        # Python refuses to parse integers over 4,300 digits; cutting them lets it read on to the id.
        message = json.loads(line, parse_int=lambda digits: int(digits[:MAX_DIGITS]))
    except (ValueError, RecursionError):
        return None
    request_id = message.get("id") if isinstance(message, dict) else None
    return request_id if isinstance(request_id, (str, int)) else None
