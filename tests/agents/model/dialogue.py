"""A model that a test controls step by step: it calls a tool and gets what the agent sent back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.agents.model.parts import Heard, MessageReply, ModelCall, ModelText, Seen
from tests.agents.model.server import SECONDS, ModelServer, listening

MARK = "mcp__fidelio__"


class Model:
    """The mind of an agent, in the hands of a test."""

    def __init__(self) -> None:
        self.tools: set[str] = set()
        self.server = ModelServer(self._reply)
        self._requests: asyncio.Queue[Heard] = asyncio.Queue()
        self._replies: asyncio.Queue[MessageReply] = asyncio.Queue()

    @property
    def strays(self) -> list[str]:
        return self.server.strays

    async def prompt(self) -> str:
        """What the agent was asked to do."""
        return "\n".join((await self._next()).said)

    async def call(self, tool: str, /, **arguments: Any) -> Seen:
        self._replies.put_nowait(ModelCall(MARK + tool, arguments))
        return (await self._next()).seen[-1]

    def say(self, text: str) -> None:
        """The last word; the agent ends its turn with it."""
        self._replies.put_nowait(ModelText(text))

    async def _next(self) -> Heard:
        """The conversation so far, when the agent wants it to be continued."""
        async with asyncio.timeout(SECONDS):
            return await self._requests.get()

    async def _reply(self, heard: Heard) -> MessageReply:
        self.tools |= {tool.name.removeprefix(MARK) for tool in heard.tools}
        self._requests.put_nowait(heard)
        return await self._replies.get()


@asynccontextmanager
async def modelled() -> AsyncIterator[tuple[Model, str]]:
    """A model that listens, and its address."""
    model = Model()
    async with listening(model.server) as address:
        yield model, address
