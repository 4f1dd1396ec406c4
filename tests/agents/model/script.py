"""A model with prepared answers, for tests of the agent that do not follow the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from tests.agents.model.parts import Heard, MessageReply, ModelText
from tests.agents.model.server import SECONDS, ModelServer, listening

ApiScript = Iterable[MessageReply] | Callable[[Heard], MessageReply]


def offers_nothing(heard: Heard) -> bool:
    """Agents ask on the side for a title of the conversation, and offer no tools for it."""
    return not heard.tools


class ScriptedModel:
    """Gives the next reply of the script to each request that belongs to the conversation.

    `heard` are those requests, `asides` the others, which get a word that fits everywhere. `strays` should stay empty: they are
    requests for something that no model has.
    """

    def __init__(self, script: ApiScript, aside: Callable[[Heard], bool] = offers_nothing) -> None:
        self.heard: list[Heard] = []
        self.asides: list[Heard] = []
        self.address = ""
        self._next = script if callable(script) else _one_by_one(script)
        self._is_aside = aside
        self._changed = asyncio.Condition()
        self.server = ModelServer(self._reply)

    @property
    def strays(self) -> list[str]:
        return self.server.strays

    async def asked(self, times: int) -> Heard:
        """Waits for the request of this number; the first is 1."""
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.heard) >= times)
        return self.heard[times - 1]

    async def _reply(self, heard: Heard) -> MessageReply:
        if self._is_aside(heard):
            self.asides.append(heard)
            return ModelText("Done")
        async with self._changed:
            self.heard.append(heard)
            self._changed.notify_all()
        return self._next(heard)


def _one_by_one(script: Iterable[MessageReply]) -> Callable[[Heard], MessageReply]:
    replies = iter(script)
    return lambda _: next(replies, ModelText("The script has ended."))


@asynccontextmanager
async def scripted_model(script: ApiScript, *, aside: Callable[[Heard], bool] = offers_nothing) -> AsyncIterator[ScriptedModel]:
    """A model that listens at `address`, for any of the interfaces."""
    model = ScriptedModel(script, aside)
    async with listening(model.server) as model.address:
        yield model
