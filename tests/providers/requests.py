"""Short forms of requests and conversations for tests of providers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelio.providers.model import (
    Block,
    Message,
    ModelReply,
    ModelRequest,
    Provider,
    TextBlock,
    ToolDeclaration,
    ToolResultBlock,
    ToolUseBlock,
)

# The longest that a test waits for something that should happen at once.
SECONDS = 10
WEATHER = ToolDeclaration("weather", "The weather of a place.", {"type": "object", "properties": {"place": {"type": "string"}}})


def user(*content: str | Block) -> Message:
    return Message("user", tuple(TextBlock(block) if isinstance(block, str) else block for block in content))


def assistant(*content: str | Block) -> Message:
    return Message("assistant", tuple(TextBlock(block) if isinstance(block, str) else block for block in content))


def use(name: str, arguments: Mapping[str, Any] | None = None, *, id_: str = "t1") -> ToolUseBlock:
    return ToolUseBlock(id_, name, arguments or {})


def result(text: str, *, id_: str = "t1", is_error: bool = False) -> ToolResultBlock:
    return ToolResultBlock(id_, (TextBlock(text),), is_error)


def ask(*messages: str | Message, model: str = "test", **options: Any) -> ModelRequest:
    conversation = tuple(user(message) if isinstance(message, str) else message for message in messages)
    return ModelRequest(model=model, system=options.pop("system", "Be brief."), messages=conversation, **options)


async def complete(provider: Provider, request: ModelRequest) -> tuple[ModelReply, list[str]]:
    """The reply, and the pieces of text that came before it."""
    pieces: list[str] = []
    return await provider.complete(request, pieces.append), pieces
