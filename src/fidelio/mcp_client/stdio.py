"""Stdio transport of the MCP client: a JSON message on each line of the pipes of a server.

The server may be hostile in what it sends: lines are bounded, what is no JSON is skipped, and a server that floods its client
without a reply is given up. How the process is started and ended, and which error is raised, is up to the subclass.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import msgspec

from fidelio.errors import FidelioError

# The stream of a process has to be opened with this limit.
MAX_LINE = 8_000_000
# What a server may send before the reply to a request: progress, log messages, lines that are no JSON.
MAX_SKIPPED, MAX_SKIPPED_BYTES = 1_000, 32_000_000
_UNKNOWN_METHOD = -32601


class StdioTransport(ABC):
    """A `Transport` to a running process, for requests in sequence."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child

    @abstractmethod
    def failure(self, what: str) -> FidelioError:
        """The error that says what the server does, and what it wrote to its stderr."""

    @abstractmethod
    async def read_complaints(self) -> None:
        """Wait a moment for what a process that has ended wrote to its stderr."""

    async def request(self, message: Mapping[str, Any]) -> dict[str, Any]:
        await self.notify(message)
        try:
            return await self._read_reply(message)
        except asyncio.CancelledError:
            # Else a server that is in a call would go on with it, and not exit while it does.
            self._cancel(message)
            raise

    async def _read_reply(self, message: Mapping[str, Any]) -> dict[str, Any]:
        skipped = 0
        for _ in range(MAX_SKIPPED):
            line = await self._read_line()
            reply = _decode(line)
            if reply.get("id") == message["id"] and "method" not in reply:
                return reply
            await self._answer(reply)
            skipped += len(line)
            if skipped > MAX_SKIPPED_BYTES:
                break
        raise self.failure("sends messages without end")

    def _cancel(self, message: Mapping[str, Any]) -> None:
        """Cancel a request at the server. Waits for nothing: the caller is being cancelled itself."""
        assert self.child.stdin is not None
        params = {"requestId": message["id"], "reason": "The caller was stopped."}
        notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        # The protocol forbids to cancel the first request.
        if message["method"] != "initialize" and not self.child.stdin.is_closing():
            self.child.stdin.write(msgspec.json.encode(notice) + b"\n")

    async def notify(self, message: Mapping[str, Any]) -> None:
        assert self.child.stdin is not None
        try:
            self.child.stdin.write(msgspec.json.encode(message) + b"\n")
            await self.child.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self.failure("has ended") from error

    async def drain(self) -> None:
        """Read the output to its end while the process is to end: asyncio sees the end of a process only after that."""
        assert self.child.stdout is not None
        while await self.child.stdout.read(1 << 20):
            pass

    async def _read_line(self) -> bytes:
        assert self.child.stdout is not None
        try:
            line = await self.child.stdout.readline()
        except ValueError as error:
            raise self.failure(f"sent a message of more than {MAX_LINE:,} bytes") from error
        if not line:
            await self.read_complaints()
            raise self.failure("has ended")
        return line

    async def _answer(self, message: Mapping[str, Any]) -> None:
        """Reply to a request of the server: only `ping` is supported."""
        if not isinstance(message.get("id"), str | int) or not isinstance(message.get("method"), str):
            return
        refusal = {"code": _UNKNOWN_METHOD, "message": "Method not found"}
        answer: dict[str, Any] = {"result": {}} if message["method"] == "ping" else {"error": refusal}
        await self.notify({"jsonrpc": "2.0", "id": message["id"], **answer})


def _decode(line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}
