"""Scripted model APIs on loopback: real HTTP, with every fault that a provider has to survive.

    async with MessagesServer([RATE_LIMITED, ApiReply("Hello")]) as server:
        providers = open_providers(server.environment)

A server carries out a step for each request, in order. A step may be a function of the request's body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, ClassVar, Self, TypeAlias

import msgspec

from fidelio.retry import cancel_tasks

Json: TypeAlias = dict[str, Any]
KEY = "sk-secret-key-0123456789"


class ScriptedCall(msgspec.Struct, frozen=True):
    """A tool call of the model. Arguments that are text are sent as they are, also if they are no JSON."""

    name: str
    arguments: Mapping[str, Any] | str = {}
    id: str = "call_1"

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else msgspec.json.encode(self.arguments).decode()


class ApiReply(msgspec.Struct, frozen=True):
    """A reply. `delay`: seconds before each event. `stop`: the vendor's own word, instead of the usual one."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    thinking: str = ""
    refusal: str = ""
    stop: str = ""
    delay: float = 0.0
    has_usage: bool = True
    tokens: tuple[int, int, int] = (100, 40, 7)  # input, of which cached, and output


class Refuse(msgspec.Struct, frozen=True):
    """A reply with another status."""

    status: int
    message: str = "No."
    code: str = ""
    headers: Mapping[str, str] = {}


class Cut(msgspec.Struct, frozen=True):
    """A connection that ends after so many bytes of a stream."""

    reply: ApiReply
    after: int


class Hang(msgspec.Struct, frozen=True):
    """A server that goes silent, after so many events; -1: before it has sent a status."""

    reply: ApiReply = ApiReply("Never")
    after: int = -1


class Raw(msgspec.Struct, frozen=True):
    """The bytes of a whole body, with status 200."""

    body: bytes
    kind: str = "text/event-stream"
    headers: Mapping[str, str] = {}


ApiStep: TypeAlias = ApiReply | Refuse | Cut | Hang | Raw
ScriptedStep: TypeAlias = ApiStep | Callable[[Json], ApiStep]

RATE_LIMITED = Refuse(429, "Slow down.", "rate_limit_error", {"retry-after": "3"})
OVERLOADED = Refuse(529, "Overloaded.", "overloaded_error")
FAILED = Refuse(500, "Internal error.", "api_error")
BAD_REQUEST = Refuse(400, "messages: something is wrong.", "invalid_request_error")
UNAUTHORIZED = Refuse(401, f"invalid key {KEY}", "authentication_error")


class ModelApiServer:
    """Base of the servers. `requests` and `headers` are what arrived; `closed` is set when a client leaves during a reply."""

    path: ClassVar[str]
    too_long: ClassVar[Refuse]

    def __init__(self, steps: Sequence[ScriptedStep]) -> None:
        self._steps = list(steps)
        self._server: asyncio.Server | None = None
        self._connections = set[asyncio.Task[None]]()
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.reached = asyncio.Event()
        self.closed = asyncio.Event()

    def stream(self, reply: ApiReply) -> Iterator[Json]:
        raise NotImplementedError

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead a provider here."""
        raise NotImplementedError

    def encode_events(self, reply: ApiReply) -> list[bytes]:
        events = self.stream(reply)
        return [f"event: {event.get('type', '')}\ndata: {msgspec.json.encode(event).decode()}\n\n".encode() for event in events]

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await cancel_tasks(*self._connections)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.connections += 1
        try:
            # A client may leave whenever it likes.
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._serve(reader, writer):
                    pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Carry out a request; True if the connection can have another."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = msgspec.json.decode(await reader.readexactly(int(headers["content-length"])), type=Json)
        self.requests.append(body)
        self.headers.append(headers)
        step = self._next_step(head[0].split()[1], body)
        self.reached.set()
        return await self._carry_out(step, reader, writer)

    def _next_step(self, path: str, body: Json) -> ApiStep:
        if path != self.path:
            return Refuse(404, f"There is nothing at {path}.")
        if not self._steps:
            return Refuse(400, "The script has no step left.")
        step = self._steps.pop(0)
        return step if isinstance(step, ApiReply | Refuse | Cut | Hang | Raw) else step(body)

    async def _carry_out(self, step: ApiStep, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        match step:
            case Refuse():
                body = msgspec.json.encode(
                    {"type": "error", "error": {"type": step.code, "code": step.code, "message": step.message}}
                )
                return await _send_whole(writer, step.status, "application/json", body, step.headers)
            case Raw():
                return await _send_whole(writer, 200, step.kind, step.body, step.headers)
            case Cut():
                await _send_chunks(writer, [b"".join(self.encode_events(step.reply))[: step.after]])
                writer.transport.abort()
                return False
            case Hang():
                if step.after >= 0:
                    await _send_chunks(writer, self.encode_events(step.reply)[: step.after])
                await reader.read(1)
                self.closed.set()
                return False
            case ApiReply():
                await _send_chunks(writer, self.encode_events(step), delay=step.delay)
                writer.write(b"0\r\n\r\n")
                await writer.drain()
                return True


async def _send_whole(
    writer: asyncio.StreamWriter, status: int, kind: str, body: bytes, headers: Mapping[str, str] | None = None
) -> bool:
    head = {"content-type": kind, "content-length": str(len(body)), **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    writer.write(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + body)
    await writer.drain()
    return True


async def _send_chunks(writer: asyncio.StreamWriter, events: Sequence[bytes], *, delay: float = 0.0) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for event in events:
        await asyncio.sleep(delay)
        if event:
            writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
        await writer.drain()


def _split(text: str) -> Iterator[str]:
    return (text[start : start + 5] for start in range(0, len(text), 5))


class MessagesServer(ModelApiServer):
    """Anthropic's Messages API."""

    path = "/v1/messages"
    too_long = Refuse(400, "prompt is too long: 210000 tokens > 200000 maximum", "invalid_request_error")

    @property
    def environment(self) -> dict[str, str]:
        return {"ANTHROPIC_BASE_URL": self.address, "ANTHROPIC_API_KEY": KEY}

    def stream(self, reply: ApiReply) -> Iterator[Json]:
        given, cached, output = reply.tokens if reply.has_usage else (0, 0, 0)
        usage = {"input_tokens": given - cached, "cache_read_input_tokens": cached, "cache_creation_input_tokens": None}
        yield {
            "type": "message_start",
            "message": {"id": "msg_1", "role": "assistant", "model": "served-model", "usage": usage},
        }
        yield {"type": "ping"}
        blocks = [*([reply.thinking] if reply.thinking else ()), *([TextPart(reply.text)] if reply.text else ()), *reply.calls]
        for index, block in enumerate(blocks):
            start, deltas = _describe_block(block)
            yield {"type": "content_block_start", "index": index, "content_block": start}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        stop = reply.stop or ("tool_use" if reply.calls else "refusal" if reply.refusal else "end_turn")
        yield {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": output},
        }
        yield {"type": "message_stop"}


class TextPart(msgspec.Struct, frozen=True):
    """A text, which is not a thought."""

    text: str


def _describe_block(block: str | TextPart | ScriptedCall) -> tuple[Json, list[Json]]:
    match block:
        case str():
            deltas: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in _split(block)]
            signature = {"type": "signature_delta", "signature": "signed=="}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signature]
        case TextPart():
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in _split(block.text)]
        case ScriptedCall():
            start = {"type": "tool_use", "id": block.id, "name": block.name, "input": {}}
            return start, [{"type": "input_json_delta", "partial_json": piece} for piece in _split(block.text)]


class ResponsesServer(ModelApiServer):
    """OpenAI's Responses API."""

    path = "/v1/responses"
    too_long = Refuse(400, "Your input exceeds the context window of this model.", "context_length_exceeded")

    @property
    def environment(self) -> dict[str, str]:
        return {"OPENAI_BASE_URL": f"{self.address}/v1", "OPENAI_API_KEY": KEY}

    def stream(self, reply: ApiReply) -> Iterator[Json]:
        yield {"type": "response.created", "response": {"id": "resp_1", "model": "served-model", "output": [], "usage": None}}
        items = list(_list_items(reply))
        for index, item in enumerate(items):
            yield {"type": "response.output_item.added", "output_index": index, "item": {**item, "status": "in_progress"}}
            if item["type"] == "message":
                for piece in _split(reply.text):
                    yield {"type": "response.output_text.delta", "output_index": index, "content_index": 0, "delta": piece}
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        given, cached, output = reply.tokens
        usage = {"input_tokens": given, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": output}
        response: Json = {"id": "resp_1", "model": "served-model", "status": "completed", "output": items}
        response["usage"] = usage if reply.has_usage else None
        if reply.stop:
            response |= {"status": "incomplete", "incomplete_details": {"reason": reply.stop}}
        yield {"type": f"response.{response['status']}", "response": response}


def _list_items(reply: ApiReply) -> Iterator[Json]:
    if reply.thinking:
        summary = [{"type": "summary_text", "text": reply.thinking}]
        yield {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "sealed=="}
    if reply.text:
        yield {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": reply.text}]}
    if reply.refusal:
        yield {
            "type": "message",
            "id": "msg_2",
            "role": "assistant",
            "content": [{"type": "refusal", "refusal": reply.refusal}],
        }
    for call in reply.calls:
        yield {"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "name": call.name, "arguments": call.text}


class ChatServer(ModelApiServer):
    """A server for chat completions."""

    path = "/v1/chat/completions"
    too_long = Refuse(400, "This model's maximum context length is 8192 tokens.", "BadRequestError")

    @property
    def environment(self) -> dict[str, str]:
        return {"FIDELIO_CHAT_BASE_URL": f"{self.address}/v1", "FIDELIO_CHAT_API_KEY": KEY}

    def encode_events(self, reply: ApiReply) -> list[bytes]:
        chunks = [b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in self.stream(reply)]
        return [*chunks, b"data: [DONE]\n\n"]

    def stream(self, reply: ApiReply) -> Iterator[Json]:
        yield _make_chunk({"role": "assistant", "content": ""})
        for piece in _split(reply.thinking):
            yield _make_chunk({"reasoning_content": piece})
        for piece in _split(reply.text):
            yield _make_chunk({"content": piece})
        if reply.refusal:
            yield _make_chunk({"refusal": reply.refusal})
        for index, call in enumerate(reply.calls):
            function = {"name": call.name, "arguments": ""}
            yield _make_chunk({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]})
            for piece in _split(call.text):
                yield _make_chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield _make_chunk({}, reply.stop or ("tool_calls" if reply.calls else "stop"))
        if reply.has_usage:
            given, cached, output = reply.tokens
            details = {"cached_tokens": cached}
            usage = {"prompt_tokens": given, "completion_tokens": output, "prompt_tokens_details": details}
            yield {"model": "served-model", "choices": [], "usage": usage}


def _make_chunk(delta: Json, finish: str | None = None) -> Json:
    return {"model": "served-model", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": None}
