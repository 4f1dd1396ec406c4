"""The protocol's messages over the pipes of a process: one object a line."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from acp import CLIENT_METHODS

from fidelio.orchestrator.processes_piped import PipedProcess

_KNOWN = frozenset(CLIENT_METHODS.values())


class PipeTransport:
    """What the protocol's library sends and receives through. `heard` is told the size of every line."""

    def __init__(self, process: PipedProcess, heard: Callable[[int], Awaitable[None]]) -> None:
        self._process, self._heard = process, heard

    async def send(self, message: dict[str, Any]) -> None:
        self._process.writer.write(json.dumps(message).encode() + b"\n")
        await self._process.writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next message, None at the end. A line that is none is some program's chatter."""
        while line := await self._line():
            await self._heard(len(line))
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict) and not _is_news_of_its_own(message):
                return message
        return None

    async def close(self) -> None:
        """The pipes belong to the process, which ends them."""

    async def _line(self) -> bytes:
        while True:
            try:
                return await self._process.reader.readline()
            except ValueError:
                # The reader has dropped it. It was longer than all that the agent may say, which ends the run.
                await self._heard(self._process.longest + 1)


def _is_news_of_its_own(message: dict[str, Any]) -> bool:
    """What an agent tells those who know it better than the protocol does; the library would complain about it."""
    return "id" not in message and message.get("method") not in _KNOWN
