"""A model that says what a test tells it to say, on loopback, in the words of the Anthropic Messages interface.

The test is the mind of the agent: it calls a tool, and gets what the agent read of the reply. Everything between the two, the
agent's requests, its MCP client and the permissions it gives, is the real program.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fidelio.surfaces.http.serving import serve_http

SECONDS = 60
MARK = "mcp__fidelio__"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a model gets to see of the reply to a tool call."""

    text: str
    is_error: bool

    @property
    def json(self) -> Any:
        assert not self.is_error, self.text
        return json.loads(self.text)

    @property
    def token(self) -> str:
        """A small reply is JSON and has the token as a key; a document has it in a line of its own above the text."""
        assert not self.is_error, self.text
        if self.text.startswith("{"):
            return str(self.json["session_token"])
        head, _, _ = self.text.partition("\n\n")
        return dict(line.split(": ", 1) for line in head.splitlines())["session_token"]


class Model:
    """`strays` are requests that no scripted model should get: the agent wanted something from the world outside."""

    def __init__(self) -> None:
        self.strays: list[str] = []
        self.tools: set[str] = set()
        self._requests: asyncio.Queue[Json] = asyncio.Queue()
        self._replies: asyncio.Queue[Json] = asyncio.Queue()
        self._numbers = count(1)

    async def prompt(self) -> str:
        """What the agent was asked to do."""
        return _text(next(message["content"] for message in await self._next() if message["role"] == "user"))

    async def call(self, tool: str, /, **arguments: Any) -> Seen:
        name = f"toolu_{next(self._numbers)}"
        self._replies.put_nowait({"type": "tool_use", "id": name, "name": MARK + tool, "input": arguments})
        (result,) = [block for block in _blocks(await self._next()) if block.get("tool_use_id") == name]
        return Seen(_text(result["content"]), bool(result.get("is_error")))

    def say(self, text: str) -> None:
        """The last word; the agent ends its turn with it."""
        self._replies.put_nowait({"type": "text", "text": text})

    async def _next(self) -> list[Json]:
        """The conversation so far, when the agent wants it to be continued."""
        async with asyncio.timeout(SECONDS):
            messages: list[Json] = (await self._requests.get())["messages"]
            return messages

    async def answer(self, request: Request) -> Response:
        asked = await request.json()
        self.tools |= {tool["name"].removeprefix(MARK) for tool in asked.get("tools", [])}
        self._requests.put_nowait(asked)
        block = await self._replies.get()
        return StreamingResponse(_stream(block, asked["model"], f"msg_{next(self._numbers)}"), media_type="text/event-stream")

    async def stray(self, request: Request, _: Exception) -> Response:
        self.strays.append(f"{request.method} {request.scope['path']}")
        return Response(status_code=404)

    def app(self) -> Starlette:
        routes = [Route("/v1/messages", self.answer, methods=["POST"])]
        return Starlette(routes=routes, exception_handlers={404: self.stray, 405: self.stray})


@asynccontextmanager
async def modelled() -> AsyncIterator[tuple[Model, str]]:
    """A model that listens, and its address."""
    model = Model()
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_http(model.app(), port=0, ready=address.set_result))
    try:
        yield model, await address
    finally:
        model.say("")  # a request that still waits would hold up the end
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


def _blocks(messages: list[Json]) -> list[Json]:
    return [block for message in messages if isinstance(message["content"], list) for block in message["content"]]


def _text(content: str | list[Json]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")


def _stream(block: Json, model: str, name: str) -> Iterator[str]:
    """One message with one block, in the pieces in which a real model sends it."""
    is_call = block["type"] == "tool_use"
    piece = (
        {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        if is_call
        else {"type": "text_delta", "text": block["text"]}
    )
    empty = {**block, "input": {}} if is_call else {**block, "text": ""}
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": name, "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    yield _event("message_start", message={**message, "stop_reason": None, "stop_sequence": None})
    yield _event("content_block_start", index=0, content_block=empty)
    yield _event("content_block_delta", index=0, delta=piece)
    yield _event("content_block_stop", index=0)
    stop = {"stop_reason": "tool_use" if is_call else "end_turn", "stop_sequence": None}
    yield _event("message_delta", delta=stop, usage=usage)
    yield _event("message_stop")


def _event(kind: str, **body: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **body})}\n\n"
