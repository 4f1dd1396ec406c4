"""The loopback server: parses a request of a model API, asks the model of the test, and encodes its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from uuid import uuid4

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from fidelio.surfaces.http.serving import serve_http
from tests.agents.model import anthropic, chat, gemini, responses
from tests.agents.model.parts import ApiAnswer, Heard, Held, Json, MessageReply, ModelCall, ModelText, ModelUse, Refuse, Wire

# The longest a test waits for an agent, and an agent for a test.
SECONDS = 90

Mind = Callable[[Heard], Awaitable[MessageReply]]


class ModelServer:
    """`strays` are requests that no scripted model should get: the agent wanted something from the world outside."""

    def __init__(self, mind: Mind) -> None:
        self.strays: list[str] = []
        self._mind = mind
        self._closing = asyncio.Event()

    def app(self) -> Starlette:
        def over(path: str, wire: Wire) -> Route:
            return Route(path, partial(self._answer, wire), methods=["POST"])

        routes = [
            over("/v1/messages", anthropic),
            over("/v1/responses", responses),
            over("/v1/chat/completions", chat),
            Route("/v1/messages/count_tokens", _count_tokens, methods=["POST"]),
            Route("/v1beta/models/{name}:countTokens", _count_tokens, methods=["POST"]),
            over("/v1beta/models/{name}:{how}", gemini),
            Route("/v1/models", _models),
        ]
        return Starlette(routes=routes, exception_handlers={404: self._stray, 405: self._stray})

    def close(self) -> None:
        """Lets go of every request that is held, so that none holds up the end."""
        self._closing.set()

    async def _answer(self, wire: Wire, request: Request) -> Response:
        # The interface of Gemini names the model in the address and says there, too, whether it wants a stream.
        body = {"model": request.path_params.get("name"), **await request.json()}
        heard = wire.read(body)
        reply = await self._reply(heard)
        if isinstance(reply, Refuse):
            return JSONResponse(wire.refusal(reply), reply.status)
        answer = _with_tool(reply, heard)
        if body.get("stream") or request.path_params.get("how") == "streamGenerateContent":
            return StreamingResponse(wire.stream(answer, body), media_type="text/event-stream")
        return JSONResponse(wire.whole(answer, body))

    async def _reply(self, heard: Heard) -> MessageReply:
        thinking = asyncio.ensure_future(self._thought(heard))
        closing = asyncio.create_task(self._closing.wait())
        await asyncio.wait((thinking, closing), return_when=asyncio.FIRST_COMPLETED)
        closing.cancel()
        if thinking.done():
            return thinking.result()
        thinking.cancel()
        return Refuse(503, "The scripted model has ended.")

    async def _thought(self, heard: Heard) -> MessageReply:
        reply = await self._mind(heard)
        if not isinstance(reply, Held):
            return reply
        reply.reached.set()
        await reply.released.wait()
        return reply.then

    async def _stray(self, request: Request, _: Exception) -> Response:
        self.strays.append(f"{request.method} {request.scope['path']}")
        return Response(status_code=404)


@asynccontextmanager
async def listening(server: ModelServer) -> AsyncIterator[str]:
    """The address at which the server can be reached."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_http(server.app(), port=0, ready=address.set_result))
    try:
        yield await address
    finally:
        server.close()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


def _with_tool(reply: MessageReply, heard: Heard) -> ApiAnswer:
    if isinstance(reply, ModelText):
        return reply
    assert isinstance(reply, ModelCall)
    tool = heard.tool(reply.tool)
    if tool is None:
        return ModelText(f"No tool with {reply.tool!r} in its name is offered, only {[tool.label for tool in heard.tools]}.")
    return ModelUse(f"toolu_{uuid4().hex}", tool, reply.arguments, reply.spent)


async def _count_tokens(_: Request) -> Response:
    counted: Json = {"input_tokens": 1, "totalTokens": 1}
    return JSONResponse(counted)


async def _models(_: Request) -> Response:
    """Whoever asks which models there are knows one already."""
    return JSONResponse({"object": "list", "data": [], "models": []})
