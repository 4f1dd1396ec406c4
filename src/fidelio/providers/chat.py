"""The provider `chat`: OpenAI-compatible chat completions, as llama.cpp, vLLM, Ollama and gateways serve them.

The servers differ: some need no key, report no usage, leave out ids or positions of tool calls, or end a turn with calls as if
it had none. Reasoning is shown but not sent back.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from fidelio.providers.http import HttpProvider, ModelEndpoint, build_address, decode_event, require_secret
from fidelio.providers.model import (
    Block,
    ImageBlock,
    Message,
    ModelProblem,
    ModelReply,
    ModelRequest,
    OnText,
    StopReason,
    TextBlock,
    ThinkingBlock,
    TokenUsage,
    ToolResultBlock,
    ToolUseBlock,
    estimate_usage,
)
from fidelio.providers.problems import Vendor, classify, find_stream_status, make_connection_problem
from fidelio.providers.tool_input import parse_tool_use

_KEY, _BASE = "FIDELIO_CHAT_API_KEY", "FIDELIO_CHAT_BASE_URL"
_DONE = "[DONE]"
_STOP_REASONS: Mapping[str, StopReason] = {"length": "max_tokens", "content_filter": "refusal"}


class ChatProvider(HttpProvider):
    """A server for chat completions."""

    name = "chat"

    def open_endpoint(self, environment: Mapping[str, str]) -> ModelEndpoint:
        if not environment.get(_BASE, "").strip():
            remedy = f"Set {_BASE}, for example to http://127.0.0.1:11434/v1."
            raise ModelProblem("The address of the server for chat completions is not set.", remedy=remedy)
        address = build_address(environment, _BASE, "", "/chat/completions")
        if not environment.get(_KEY, "").strip():
            return ModelEndpoint(Vendor("The model server", _KEY, _BASE), address, {})
        secret = require_secret(environment, _KEY, "The model server")
        return ModelEndpoint(Vendor("The model server", _KEY, _BASE, (secret,)), address, {"authorization": f"Bearer {secret}"})

    def encode(self, request: ModelRequest) -> dict[str, Any]:
        return encode_request(request)

    def open_reader(self, request: ModelRequest, vendor: Vendor, on_text: OnText) -> _ChunkReader:
        return _ChunkReader(request, vendor, on_text)


def encode_request(request: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "messages": encode_messages(request),
        "max_tokens": request.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.input_schema},
            }
            for tool in request.tools
        ]
    if request.force_tool:
        body["tool_choice"] = {"type": "function", "function": {"name": request.force_tool}}
    return body


def encode_messages(request: ModelRequest) -> list[dict[str, Any]]:
    system = [{"role": "system", "content": request.system}] if request.system else []
    return [*system, *(encoded for message in request.messages for encoded in _encode_message(message))]


def _encode_message(message: Message) -> Iterator[dict[str, Any]]:
    if message.role == "assistant":
        yield from _encode_assistant(message.content)
        return
    results = [block for block in message.content if isinstance(block, ToolResultBlock)]
    # The results come first, directly after their calls.
    for block in results:
        yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": _encode_result(block)}
    # A result can only have text, so its images follow as if the user had sent them.
    images = [inner for block in results for inner in block.content if isinstance(inner, ImageBlock)]
    own = [block for block in message.content if isinstance(block, TextBlock | ImageBlock)]
    if content := [_encode_part(part) for part in (*images, *own)]:
        is_plain = len(content) == 1 and content[0]["type"] == "text"
        yield {"role": "user", "content": content[0]["text"] if is_plain else content}


def _encode_assistant(content: Iterable[Block]) -> Iterator[dict[str, Any]]:
    text = "\n".join(block.text for block in content if isinstance(block, TextBlock))
    calls = [_encode_call(block) for block in content if isinstance(block, ToolUseBlock)]
    if text or calls:
        yield {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}


def _encode_call(block: ToolUseBlock) -> dict[str, Any]:
    function = {"name": block.name, "arguments": msgspec.json.encode(block.input).decode()}
    return {"id": block.id, "type": "function", "function": function}


def _encode_result(block: ToolResultBlock) -> str:
    """The text of a result. There is no field for errors, so the text says it."""
    texts = [inner.text for inner in block.content if isinstance(inner, TextBlock)]
    return "\n".join(["Error:", *texts] if block.is_error else texts)


def _encode_part(part: TextBlock | ImageBlock) -> dict[str, Any]:
    if isinstance(part, TextBlock):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{part.data}"}}


class _FunctionEvent(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _CallEvent(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _FunctionEvent | None = None


class _DeltaEvent(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[_CallEvent, ...] | None = None


class _ChoiceEvent(msgspec.Struct):
    delta: _DeltaEvent | None = None
    finish_reason: str | None = None


class _CachedEvent(msgspec.Struct):
    cached_tokens: int | None = None


class _UsageEvent(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _CachedEvent | None = None


class _Chunk(msgspec.Struct):
    model: str | None = None
    choices: tuple[_ChoiceEvent, ...] | None = None
    usage: _UsageEvent | None = None
    error: Any = None


class _CollectedCall(msgspec.Struct):
    index: int | None
    id: str
    name: str = ""
    # An object where the server does not send text.
    arguments: str | dict[str, Any] = ""


class _ChunkReader:
    """Collects a completion from its chunks."""

    def __init__(self, request: ModelRequest, vendor: Vendor, on_text: OnText) -> None:
        self._request = request
        self._vendor = vendor
        self._on_text = on_text
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[_CollectedCall] = []
        self._usage: _UsageEvent | None = None
        self._model = ""
        self._finish = ""
        self._has_refused = False

    def read(self, data: str) -> bool:
        if data.strip() == _DONE:
            self._finish = self._finish or "stop"
            return True
        chunk = decode_event(data, _Chunk, self._vendor)
        if chunk.error:
            raise self._classify(chunk.error)
        self._model = chunk.model or self._model
        self._usage = chunk.usage or self._usage
        for choice in (chunk.choices or ())[:1]:
            self._extend(choice.delta or _DeltaEvent())
            self._finish = choice.finish_reason or self._finish
        return False

    def finish(self) -> ModelReply:
        if not self._finish:
            raise make_connection_problem(self._vendor, "cut off its reply")
        content = tuple(self._build())
        reason: StopReason = "tool_use" if self._calls else "end_turn"
        stop_reason = "refusal" if self._has_refused else _STOP_REASONS.get(self._finish, reason)
        return ModelReply(content=content, stop_reason=stop_reason, usage=self._count(content), model=self._model)

    def _classify(self, error: Any) -> Exception:
        code = error.get("code") if isinstance(error, Mapping) else None
        message = str(error.get("message", "")) if isinstance(error, Mapping) else str(error)
        return classify(self._vendor, find_stream_status(code, {}), message)

    def _extend(self, delta: _DeltaEvent) -> None:
        self._has_refused |= bool(delta.refusal)
        if text := (delta.content or "") + (delta.refusal or ""):
            self._texts.append(text)
            self._on_text(text)
        self._thoughts.append(delta.reasoning_content or delta.reasoning or "")
        for part in delta.tool_calls or ():
            self._extend_call(part)

    def _extend_call(self, part: _CallEvent) -> None:
        function = part.function or _FunctionEvent()
        call = self._find_call(part, function)
        call.name = call.name or function.name or ""
        if isinstance(function.arguments, str) and isinstance(call.arguments, str):
            call.arguments += function.arguments
        elif isinstance(function.arguments, dict):
            call.arguments = function.arguments

    def _find_call(self, part: _CallEvent, function: _FunctionEvent) -> _CollectedCall:
        """The call that a part belongs to. A new id begins a new call, also where every call has the same index or none."""
        last = next((call for call in reversed(self._calls) if part.index in (None, call.index)), None)
        # Without id and index, a second name is that of a second call.
        is_named_again = part.index is None and not part.id and bool(function.name)
        if last is not None and part.id in (None, "", last.id) and not is_named_again:
            return last
        # A result has to name its call, so a call without an id gets one.
        self._calls.append(_CollectedCall(part.index, part.id or f"call_{secrets.token_hex(8)}"))
        return self._calls[-1]

    def _build(self) -> Iterator[TextBlock | ThinkingBlock | ToolUseBlock]:
        if thought := "".join(self._thoughts):
            yield ThinkingBlock(thought)
        if text := "".join(self._texts):
            yield TextBlock(text)
        for call in self._calls:
            yield parse_tool_use(call.id, call.name, call.arguments)

    def _count(self, content: tuple[TextBlock | ThinkingBlock | ToolUseBlock, ...]) -> TokenUsage:
        usage = self._usage
        if usage is None or usage.prompt_tokens is None:
            return estimate_usage(self._request, content)
        cached = (usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens) or 0
        return TokenUsage(max(usage.prompt_tokens - cached, 0), usage.completion_tokens or 0, cached)
