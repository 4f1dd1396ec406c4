"""A runtime whose models are behind real HTTP: scripted servers of each vendor's API on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fidelio.providers.registry import open_providers
from fidelio.runtime.ports import RuntimePorts
from fidelio.sandbox.port import Sandboxes
from tests.providers.apis import CHAT, MESSAGES, RESPONSES, Api
from tests.providers.servers import Json, ModelApiServer, ScriptedStep
from tests.runtime.wakes.support import Runtime, open_runtime


class Wire(msgspec.Struct, frozen=True):
    """An API as the tests read it: the model that is behind it, and where its requests have what is fixed and what grows."""

    api: Api
    model: str
    fixed: Callable[[Json], Any]
    conversation: Callable[[Json], list[Any]]
    results: Callable[[Json], list[str]]


def _list_blocks(messages: Iterable[Json]) -> list[Json]:
    return [block for message in messages for block in message["content"] if isinstance(message["content"], list)]


def _read_anthropic_results(body: Json) -> list[str]:
    return [str(block["content"]) for block in _list_blocks(body["messages"]) if block["type"] == "tool_result"]


def _strip_marks(value: Any) -> Any:
    """Without the marks for the cache, which move to the end with every request."""
    if isinstance(value, dict):
        return {name: _strip_marks(inner) for name, inner in value.items() if name != "cache_control"}
    return [_strip_marks(inner) for inner in value] if isinstance(value, list) else value


WIRES = (
    Wire(
        MESSAGES,
        "anthropic/test",
        lambda body: _strip_marks([body["system"], body["tools"]]),
        lambda body: _strip_marks(body["messages"]),
        _read_anthropic_results,
    ),
    Wire(
        RESPONSES,
        "openai/test",
        lambda body: [body["instructions"], body["tools"]],
        lambda body: list(body["input"]),
        lambda body: [str(item["output"]) for item in body["input"] if item.get("type") == "function_call_output"],
    ),
    Wire(
        CHAT,
        "chat/test",
        lambda body: [body["messages"][0], body["tools"]],
        lambda body: list(body["messages"][1:]),
        lambda body: [str(message["content"]) for message in body["messages"] if message["role"] == "tool"],
    ),
)
every_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.api.provider.name)


class HttpRuntime(msgspec.Struct, frozen=True):
    """A runtime, and the server that its model is on."""

    runtime: Runtime
    server: ModelApiServer
    wire: Wire

    async def begin(self, **definition: Any) -> str:
        return await self.runtime.begin(model=self.wire.model, **definition)

    @property
    def bodies(self) -> list[Json]:
        return self.server.requests


@asynccontextmanager
async def open_http_runtime(
    path: Path, wire: Wire, *steps: ScriptedStep, sandboxes: Sandboxes | None = None
) -> AsyncIterator[HttpRuntime]:
    async with wire.api.server(steps) as server, open_runtime(path, sandboxes=sandboxes) as opened:
        providers = open_providers(server.environment)
        context = replace(opened.context, ports=RuntimePorts(models=providers))
        runtime = Runtime(context, opened.clock, [])
        try:
            yield HttpRuntime(runtime, server, wire)
        finally:
            await providers.close()
