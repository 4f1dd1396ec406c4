"""MCP over standard input and output: one JSON message a line, several calls in flight.

Our own loop because most users meet us here: the official one costs ten times the start-up and ten times the time per call.
Memory is bounded whatever the client does: when too much is in flight, or the client does not read its replies, we stop
reading.
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

from fidelio.surfaces.mcp.endpoint import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from fidelio.surfaces.mcp.protocol import ENCODING_ERRORS, NoAnswer, Peer, Protocol, error_response, is_request_id
from fidelio.surfaces.mcp.stdio.descriptors import private_standard_streams
from fidelio.surfaces.mcp.stdio.streams import InputReader, LineSplitter, OutputWriter, open_reader

MAX_MESSAGE = 16 * 1024 * 1024
MAX_CALLS = 256
MAX_IN_FLIGHT = 4 * MAX_MESSAGE
MAX_UNSENT = 1024 * 1024
DRAIN_SECONDS = 5.0
MAX_DIGITS = 400
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

Deliver = Callable[[dict[str, Any]], None]


async def serve_stdio(protocol: Protocol) -> None:
    """Serves until the client closes its end or we are told to stop, then lets calls in flight finish within a bound."""
    with private_standard_streams() as (source, sink):
        connection = _Connection(protocol, sink)
        connection.reader = await open_reader(source, connection.received, connection.ended.set)
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, connection.ended.set)
        try:
            await connection.ended.wait()
        finally:
            for number in _SIGNALS:  # whoever sends a second signal does not want to wait
                loop.remove_signal_handler(number)
        connection.reader.close()
        await connection.finish()


class _Connection:
    def __init__(self, protocol: Protocol, sink: int) -> None:
        self.ended = asyncio.Event()
        self.reader: InputReader | None = None
        self._writer = OutputWriter(sink, drained=self._balance, broken=self.ended.set)
        self._lines = LineSplitter(MAX_MESSAGE)
        self._conversation = protocol.conversation(Peer(self._ask, self._notify))
        self._calls: dict[object, asyncio.Task[None]] = {}
        self._in_flight = 0
        self._pending: dict[object, asyncio.Future[object]] = {}
        self._ids = count(1)

    # What comes in

    def received(self, chunk: bytes) -> None:
        for line in self._lines.feed(chunk):
            if line is None:
                self._send(error_response(None, INVALID_REQUEST, f"A message is longer than {MAX_MESSAGE} bytes."))
            elif line and not line.isspace():
                self._read(line)
        self._balance()

    def _read(self, line: bytes) -> None:
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._send(error_response(_id_in(line), PARSE_ERROR, "A line is not JSON, or has numbers or texts beyond it."))
            return
        if isinstance(message, list):
            self._take_batch(message, len(line))
        else:
            self._take(message, len(line), self._send)

    def _take_batch(self, messages: list[object], size: int) -> None:
        """Revision 2025-03-26 sends several messages at once and wants the replies together."""
        replies: list[dict[str, Any]] = []
        share = size // max(len(messages), 1)
        tasks = [self._take(message, share, replies.append) for message in messages]
        if not messages:
            replies.append(error_response(None, INVALID_REQUEST, "A batch holds at least one message."))
        started = {task for task in tasks if task is not None}
        together = asyncio.create_task(self._send_together(started, replies))
        self._hold(together, together, 0)

    async def _send_together(self, started: set[asyncio.Task[None]], replies: list[dict[str, Any]]) -> None:
        if started:
            await asyncio.wait(started)
        if replies:
            self._send(replies)

    def _take(self, message: object, size: int, deliver: Deliver) -> asyncio.Task[None] | None:
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            deliver(error_response(None, INVALID_REQUEST, "Not a JSON-RPC 2.0 message."))
        elif "method" in message and "id" in message:
            return self._start(message, size, deliver)
        elif message.get("method") == "notifications/cancelled":
            self._cancel(message.get("params"))
        elif "method" not in message:
            self._take_response(message)
        return None

    def _start(self, message: dict[str, Any], size: int, deliver: Deliver) -> asyncio.Task[None] | None:
        name = message["id"]
        if not is_request_id(name):
            deliver(error_response(None, INVALID_REQUEST, "The id of a request is text or a whole number."))
        elif name in self._calls:
            # A reply with this id would be taken for the reply to the first request.
            deliver(error_response(None, INVALID_REQUEST, "A request with this id is still in flight."))
        else:
            task = asyncio.create_task(self._answer(message, deliver))
            self._hold(name, task, size)
            return task
        return None

    def _hold(self, name: object, task: asyncio.Task[None], size: int) -> None:
        self._calls[name] = task
        self._in_flight += size
        task.add_done_callback(partial(self._release, name, size))

    def _release(self, name: object, size: int, _: asyncio.Task[None]) -> None:
        del self._calls[name]
        self._in_flight -= size
        self._balance()

    def _balance(self) -> None:
        """Reads on only while there is room for what would come."""
        if self.reader is None:
            return
        has_room = len(self._calls) < MAX_CALLS and self._in_flight < MAX_IN_FLIGHT and self._writer.unsent < MAX_UNSENT
        if has_room:
            self.reader.resume()
        else:
            self.reader.pause()

    def _cancel(self, params: object) -> None:
        name = params.get("requestId") if isinstance(params, dict) else None
        task = self._calls.get(name) if is_request_id(name) else None
        if task is not None:
            task.cancel()

    # What goes out

    async def _answer(self, message: dict[str, Any], deliver: Deliver) -> None:
        deliver(await self._conversation.answer(message))

    def _send(self, message: dict[str, Any] | list[dict[str, Any]]) -> None:
        try:
            data = msgspec.json.encode(message)
        except ENCODING_ERRORS as error:
            name = message.get("id") if isinstance(message, dict) else None
            data = msgspec.json.encode(
                error_response(name, INTERNAL_ERROR, f"The reply cannot be sent: {type(error).__name__}.")
            )
        self._writer.write(data + b"\n")

    async def _notify(self, method: str, params: dict[str, Any]) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    # What we ask the client

    async def _ask(self, method: str, params: dict[str, Any]) -> object:
        name = next(self._ids)
        future = self._pending[name] = asyncio.get_running_loop().create_future()
        self._send({"jsonrpc": "2.0", "id": name, "method": method, "params": params})
        try:
            return await future
        except asyncio.CancelledError:
            await self._notify("notifications/cancelled", {"requestId": name, "reason": "The answer is no longer needed."})
            raise
        finally:
            del self._pending[name]

    def _take_response(self, message: dict[str, Any]) -> None:
        name = message.get("id")
        future = self._pending.get(name) if is_request_id(name) else None
        if future is None or future.done():
            return
        if "result" in message:
            future.set_result(message["result"])
        else:
            future.set_exception(NoAnswer("The client could not ask its user."))

    # The end

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
        _, late = await asyncio.wait(calls, timeout=DRAIN_SECONDS)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=DRAIN_SECONDS)


def _id_in(line: bytes) -> str | int | None:
    """The id of a request that our reader refuses and a more generous one takes, so that its caller gets a reply."""
    try:
        # A number of any length: one that Python would not read must not hide the id.
        message = json.loads(line, parse_int=lambda digits: int(digits[:MAX_DIGITS]))
    except (ValueError, RecursionError):
        return None
    name = message.get("id") if isinstance(message, dict) else None
    return name if isinstance(name, (str, int)) else None
