"""The provider `openai`: the Responses API, streamed and without storage at the vendor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from fidelio.providers.http import EventKind, HttpProvider, ModelEndpoint, build_address, decode_event, require_secret
from fidelio.providers.model import (
    ImageBlock,
    Message,
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

_ADDRESS, _KEY, _BASE = "https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL"
# An item of reasoning is kept whole in the signature: the vendor wants it back before the calls that follow from it.
_REASONING = "openai:"
# Other models refuse the request for encrypted reasoning.
_REASONS = re.compile(r"o\d|gpt-(?:[5-9]|\d\d)(?!.*chat)")
_FEWEST_TOKENS = 16
_STATUSES = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "invalid_image": 400,
}
_ENDS = frozenset({"response.completed", "response.incomplete"})
_KNOWN_EVENTS = _ENDS | {"response.output_text.delta", "response.output_item.done", "response.failed", "error"}


class OpenAIProvider(HttpProvider):
    """The Responses API."""

    name = "openai"

    def open_endpoint(self, environment: Mapping[str, str]) -> ModelEndpoint:
        address = build_address(environment, _BASE, _ADDRESS, "/responses")
        secret = require_secret(environment, _KEY, "OpenAI")
        return ModelEndpoint(Vendor("OpenAI", _KEY, _BASE, (secret,)), address, {"authorization": f"Bearer {secret}"})

    def encode(self, request: ModelRequest) -> dict[str, Any]:
        return encode_request(request)

    def open_reader(self, request: ModelRequest, vendor: Vendor, on_text: OnText) -> _ResponseReader:
        return _ResponseReader(request, vendor, on_text)


def encode_request(request: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "input": [item for message in request.messages for item in _encode_message(message)],
        "max_output_tokens": max(request.max_tokens, _FEWEST_TOKENS),
        "stream": True,
        "store": False,
    }
    if request.system:
        body["instructions"] = request.system
    if request.tools:
        body["tools"] = [_encode_tool(tool.name, tool.description, tool.input_schema) for tool in request.tools]
        body["parallel_tool_calls"] = True
    if request.force_tool:
        body["tool_choice"] = {"type": "function", "name": request.force_tool}
    if request.conversation:
        body["prompt_cache_key"] = request.conversation[:64]
    if _REASONS.match(request.model):
        body["include"] = ["reasoning.encrypted_content"]
        if request.effort:
            # The vendor's highest is called otherwise.
            body["reasoning"] = {"effort": "xhigh" if request.effort == "max" else request.effort}
    return body


def _encode_tool(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    # The strict mode accepts only a part of JSON Schema.
    return {"type": "function", "name": name, "description": description, "parameters": schema, "strict": False}


def _encode_message(message: Message) -> Iterator[dict[str, Any]]:
    """The items of a message, in its order. Texts and images that follow each other form an item."""
    waiting: list[TextBlock | ImageBlock] = []
    for block in message.content:
        if isinstance(block, TextBlock | ImageBlock):
            waiting.append(block)
            continue
        yield from _encode_content(message.role, waiting)
        waiting = []
        match block:
            case ToolUseBlock():
                arguments = msgspec.json.encode(block.input).decode()
                yield {"type": "function_call", "call_id": block.id, "name": block.name, "arguments": arguments}
            case ToolResultBlock():
                yield {"type": "function_call_output", "call_id": block.tool_use_id, "output": _encode_result(block)}
            case ThinkingBlock() if block.signature.startswith(_REASONING):
                yield msgspec.json.decode(block.signature.removeprefix(_REASONING))
    yield from _encode_content(message.role, waiting)


def _encode_content(role: str, blocks: Iterable[TextBlock | ImageBlock]) -> Iterator[dict[str, Any]]:
    if role == "assistant":
        texts = [{"type": "output_text", "text": block.text} for block in blocks if isinstance(block, TextBlock) and block.text]
        content: list[dict[str, Any]] = [*texts]
    else:
        content = _encode_input(blocks)
    if content:
        yield {"type": "message", "role": role, "content": content}


def _encode_input(blocks: Iterable[TextBlock | ImageBlock]) -> list[dict[str, Any]]:
    return [
        {"type": "input_text", "text": block.text}
        if isinstance(block, TextBlock)
        else {"type": "input_image", "image_url": f"data:{block.media_type};base64,{block.data}"}
        for block in blocks
    ]


def _encode_result(block: ToolResultBlock) -> str | list[dict[str, Any]]:
    """A text, or a list where there is more than text. The vendor has no field for errors, so the text says it."""
    content = (TextBlock("Error:"), *block.content) if block.is_error else block.content
    texts = [part.text for part in content if isinstance(part, TextBlock)]
    return "\n".join(texts) if len(texts) == len(content) else _encode_input(content)


class _ContentEvent(msgspec.Struct):
    type: str = ""
    text: str = ""
    refusal: str = ""


class _ItemEvent(msgspec.Struct):
    type: str = ""
    id: str = ""
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    encrypted_content: str | None = None
    content: tuple[_ContentEvent, ...] | None = ()
    summary: tuple[_ContentEvent, ...] | None = ()


class _CachedEvent(msgspec.Struct):
    cached_tokens: int | None = None


class _UsageEvent(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    input_tokens_details: _CachedEvent | None = None


class _ErrorEvent(msgspec.Struct):
    code: str | int | None = None
    message: str | None = None
    reason: str | None = None


class _ResponseEvent(msgspec.Struct):
    model: str = ""
    output: tuple[_ItemEvent, ...] = ()
    usage: _UsageEvent | None = None
    error: _ErrorEvent | None = None
    incomplete_details: _ErrorEvent | None = None


class _StreamEvent(msgspec.Struct):
    type: str
    delta: str = ""
    output_index: int = 0
    item: _ItemEvent | None = None
    response: _ResponseEvent | None = None
    code: str | int | None = None
    message: str | None = None
    error: _ErrorEvent | None = None


class _ResponseReader:
    """Collects a response from its stream. Unknown events and items are ignored."""

    def __init__(self, request: ModelRequest, vendor: Vendor, on_text: OnText) -> None:
        self._request = request
        self._vendor = vendor
        self._on_text = on_text
        self._items: dict[int, _ItemEvent] = {}
        self._response: _ResponseEvent | None = None
        self._has_streamed = False

    def read(self, data: str) -> bool:
        if decode_event(data, EventKind, self._vendor).type not in _KNOWN_EVENTS:
            return False
        event = decode_event(data, _StreamEvent, self._vendor)
        if event.type in ("error", "response.failed"):
            raise self._classify(event)
        if event.type == "response.output_text.delta":
            self._has_streamed = True
            self._on_text(event.delta)
        elif event.type == "response.output_item.done" and event.item is not None:
            self._items[event.output_index] = event.item
        elif event.type in _ENDS:
            self._response = event.response or _ResponseEvent()
        return event.type in _ENDS

    def finish(self) -> ModelReply:
        if self._response is None:
            raise make_connection_problem(self._vendor, "cut off its reply")
        # Some gateways send an empty list at the end, and the items only before it.
        items = self._response.output or [self._items[index] for index in sorted(self._items)]
        content = tuple(block for item in items for block in _build_blocks(item))
        reply = ModelReply(
            content=content, stop_reason=self._find_stop_reason(items), usage=self._count(content), model=self._response.model
        )
        if not self._has_streamed and reply.text:
            self._on_text(reply.text)
        return reply

    def _classify(self, event: _StreamEvent) -> Exception:
        found = (event.response and event.response.error) or event.error or _ErrorEvent(event.code, event.message)
        status = find_stream_status(found.code, _STATUSES)
        return classify(self._vendor, status, found.message or "", code=str(found.code or ""))

    def _find_stop_reason(self, items: Iterable[_ItemEvent]) -> StopReason:
        assert self._response is not None
        details = self._response.incomplete_details
        if details is not None and details.reason:
            return "refusal" if details.reason == "content_filter" else "max_tokens"
        if any(part.type == "refusal" for item in items for part in item.content or ()):
            return "refusal"
        return "tool_use" if any(item.type == "function_call" for item in items) else "end_turn"

    def _count(self, content: tuple[TextBlock | ThinkingBlock | ToolUseBlock, ...]) -> TokenUsage:
        assert self._response is not None
        usage = self._response.usage
        if usage is None:
            return estimate_usage(self._request, content)
        cached = (usage.input_tokens_details and usage.input_tokens_details.cached_tokens) or 0
        return TokenUsage(max(usage.input_tokens - cached, 0), usage.output_tokens, cached)


def _build_blocks(item: _ItemEvent) -> Iterator[TextBlock | ThinkingBlock | ToolUseBlock]:
    match item.type:
        case "message":
            for part in item.content or ():
                if text := part.text or part.refusal:
                    yield TextBlock(text)
        case "function_call":
            yield parse_tool_use(item.call_id, item.name, item.arguments)
        case "reasoning":
            yield _build_thinking(item)


def _build_thinking(item: _ItemEvent) -> ThinkingBlock:
    """Reasoning. Without its encrypted content it cannot be sent back, because the vendor has not stored it."""
    summary = [part.text for part in item.summary or ()]
    if not item.encrypted_content:
        return ThinkingBlock("\n".join(summary))
    whole = {
        "type": "reasoning",
        "id": item.id,
        "summary": [{"type": "summary_text", "text": text} for text in summary],
        "encrypted_content": item.encrypted_content,
    }
    return ThinkingBlock("\n".join(summary), _REASONING + msgspec.json.encode(whole).decode())
