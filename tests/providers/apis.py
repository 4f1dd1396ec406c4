"""The three HTTP APIs, for tests that hold for each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from fidelio.providers.anthropic import AnthropicProvider
from fidelio.providers.chat import ChatProvider
from fidelio.providers.http import IDLE_SECONDS, HttpProvider
from fidelio.providers.openai import OpenAIProvider
from tests.providers.servers import ChatServer, MessagesServer, ModelApiServer, ResponsesServer, ScriptedStep


class Api(msgspec.Struct, frozen=True):
    """A provider and the server that it talks to."""

    provider: type[HttpProvider]
    server: type[ModelApiServer]
    key: str
    base: str

    @asynccontextmanager
    async def serve(
        self, *steps: ScriptedStep, idle_seconds: float = IDLE_SECONDS
    ) -> AsyncIterator[tuple[HttpProvider, ModelApiServer]]:
        async with self.server(steps) as server:
            provider = self.provider(server.environment, idle_seconds=idle_seconds)
            try:
                yield provider, server
            finally:
                await provider.close()


MESSAGES = Api(AnthropicProvider, MessagesServer, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
RESPONSES = Api(OpenAIProvider, ResponsesServer, "OPENAI_API_KEY", "OPENAI_BASE_URL")
CHAT = Api(ChatProvider, ChatServer, "FIDELIO_CHAT_API_KEY", "FIDELIO_CHAT_BASE_URL")
ALL: Sequence[Api] = (MESSAGES, RESPONSES, CHAT)

every_api = pytest.mark.parametrize("api", ALL, ids=lambda api: api.provider.name)
