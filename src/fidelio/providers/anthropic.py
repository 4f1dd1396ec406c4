"""The provider `anthropic`: the Messages API, streamed, with prompt caching."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from fidelio.providers.http import EventKind, HttpProvider, ModelEndpoint, build_address, decode_event, require_secret
from fidelio.providers.model import (
    Block,
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

_ADDRESS, _VERSION = "https://api.anthropic.com", "2023-06-01"
_KEY, _TOKEN, _BASE = "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"
# Marks the end of what the vendor caches. The vendor allows four marks; we set at most three.
_CACHED = {"cache_control": {"type": "ephemeral"}}
# Reasoning that the vendor has encrypted as a whole: its data is kept in the signature.
_REDACTED = "redacted_thinking:"
_FOREIGN = ("openai:",)
_STOP_REASONS: Mapping[str, StopReason] = {
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_too_long",
}
_KNOWN_EVENTS = frozenset(
    {"message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "error"}
)
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class AnthropicProvider(HttpProvider):
    """The Messages API."""

    name = "anthropic"

    def open_endpoint(self, environment: Mapping[str, str]) -> ModelEndpoint:
        address = build_address(environment, _BASE, _ADDRESS, "/v1/messages")
        uses_token = not environment.get(_KEY, "").strip() and bool(environment.get(_TOKEN, "").strip())
        variable = _TOKEN if uses_token else _KEY
        secret = require_secret(environment, variable, "Anthropic")
        credential = {"authorization": f"Bearer {secret}"} if uses_token else {"x-api-key": secret}
        vendor = Vendor("Anthropic", variable, _BASE, (secret,))
        return ModelEndpoint(vendor, address, {"anthropic-version": _VERSION, **credential})

    def encode(self, request: ModelRequest) -> dict[str, Any]:
        return encode_request(request)

    def open_reader(self, request: ModelRequest, vendor: Vendor, on_text: OnText) -> _MessageReader:
        return _MessageReader(request, vendor, on_text)


def encode_request(request: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "stream": True,
        "messages": _mark_last(list(_encode_messages(request.messages))),
    }
    if request.system:
        body["system"] = [{"type": "text", "text": request.system, **_CACHED}]
    if request.tools:
        body["tools"] = [msgspec.to_builtins(tool) for tool in request.tools]
        body["tools"][-1].update(_CACHED)
    if request.force_tool:
        body["tool_choice"] = {"type": "tool", "name": request.force_tool}
    # "high" is what the vendor does without it, also with models that refuse the setting.
    if request.effort not in ("", "high"):
        body["output_config"] = {"effort": request.effort}
    return body


def _encode_messages(messages: tuple[Message, ...]) -> Iterator[dict[str, Any]]:
    for message in messages:
        # The vendor wants the results of tools before anything else.
        ordered = sorted(message.content, key=lambda block: not isinstance(block, ToolResultBlock))
        # The vendor refuses a message without content.
        if content := [encoded for block in ordered for encoded in _encode_block(block)]:
            yield {"role": message.role, "content": content}


def _encode_block(block: Block) -> Iterator[dict[str, Any]]:
    match block:
        case TextBlock():
            # The vendor refuses a block without text.
            if block.text.strip():
                yield {"type": "text", "text": block.text}
        case ImageBlock():
            yield {"type": "image", "source": {"type": "base64", "media_type": block.media_type, "data": block.data}}
        case ThinkingBlock():
            yield from _encode_thinking(block)
        case ToolUseBlock():
            yield {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
        case ToolResultBlock():
            content = [encoded for inner in block.content for encoded in _encode_block(inner)]
            error = {"is_error": True} if block.is_error else {}
            yield {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": content, **error}


def _encode_thinking(block: ThinkingBlock) -> Iterator[dict[str, Any]]:
    """Reasoning as it came. Without the vendor's signature, for example that of another model, it would be refused."""
    if block.signature.startswith(_REDACTED):
        yield {"type": "redacted_thinking", "data": block.signature.removeprefix(_REDACTED)}
    elif block.signature and not block.signature.startswith(_FOREIGN):
        yield {"type": "thinking", "thinking": block.text, "signature": block.signature}


def _mark_last(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mark the last block of the conversation for the cache; reasoning cannot be marked."""
    blocks = [block for block in (messages[-1]["content"] if messages else ()) if not block["type"].endswith("thinking")]
    if blocks:
        blocks[-1].update(_CACHED)
    return messages


class _UsageEvent(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _MessageEvent(msgspec.Struct):
    model: str = ""
    usage: _UsageEvent | None = None


class _BlockEvent(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}


class _DeltaEvent(msgspec.Struct):
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _ErrorEvent(msgspec.Struct):
    type: str = ""
    message: str = ""


class _StreamEvent(msgspec.Struct):
    type: str
    index: int = 0
    message: _MessageEvent | None = None
    content_block: _BlockEvent | None = None
    delta: _DeltaEvent | None = None
    usage: _UsageEvent | None = None
    error: _ErrorEvent | None = None


class _MessageReader:
    """Collects a message from its stream. Unknown events and blocks are ignored."""

    def __init__(self, request: ModelRequest, vendor: Vendor, on_text: OnText) -> None:
        self._request = request
        self._vendor = vendor
        self._on_text = on_text
        self._blocks: dict[int, _BlockEvent] = {}
        # The parts of the input of each tool call, which are JSON only together.
        self._inputs: dict[int, list[str]] = {}
        self._usage: dict[str, int] = {}
        self._model = ""
        self._stop_reason = ""

    def read(self, data: str) -> bool:
        if decode_event(data, EventKind, self._vendor).type not in _KNOWN_EVENTS:
            return False
        event = decode_event(data, _StreamEvent, self._vendor)
        if event.type == "error":
            error = event.error or _ErrorEvent()
            raise classify(self._vendor, find_stream_status(error.type, _STATUSES), error.message, code=error.type)
        if event.type == "message_start" and event.message is not None:
            self._model = event.message.model
            self._count(event.message.usage)
        elif event.type == "content_block_start" and event.content_block is not None:
            self._blocks[event.index] = event.content_block
            self._show(event.content_block.text)
        elif event.type == "content_block_delta" and event.delta is not None:
            self._extend(event.index, event.delta)
        elif event.type == "message_delta":
            self._stop_reason = (event.delta and event.delta.stop_reason) or self._stop_reason
            self._count(event.usage)
        return event.type == "message_stop"

    def finish(self) -> ModelReply:
        if not self._stop_reason:
            raise make_connection_problem(self._vendor, "cut off its reply")
        content = tuple(block for index in sorted(self._blocks) for block in self._build(index))
        usage = TokenUsage(
            input_tokens=self._usage.get("input_tokens", 0),
            output_tokens=self._usage.get("output_tokens", 0),
            cache_read_tokens=self._usage.get("cache_read_input_tokens", 0),
            cache_write_tokens=self._usage.get("cache_creation_input_tokens", 0),
        )
        # A gateway may report nothing of the input.
        usage = usage if usage.context_tokens else estimate_usage(self._request, content)
        stop_reason = _STOP_REASONS.get(self._stop_reason, "end_turn")
        return ModelReply(content=content, stop_reason=stop_reason, usage=usage, model=self._model)

    def _count(self, usage: _UsageEvent | None) -> None:
        """Later figures replace earlier ones: they are totals."""
        self._usage.update(
            {name: count for name, count in msgspec.structs.asdict(usage or _UsageEvent()).items() if count is not None}
        )

    def _extend(self, index: int, delta: _DeltaEvent) -> None:
        block = self._blocks.get(index)
        if block is None:
            raise make_connection_problem(self._vendor, "sent a part of a block that has not begun")
        block.text += delta.text
        block.thinking += delta.thinking
        block.signature += delta.signature
        self._inputs.setdefault(index, []).append(delta.partial_json)
        self._show(delta.text)

    def _show(self, text: str) -> None:
        if text:
            self._on_text(text)

    def _build(self, index: int) -> Iterator[TextBlock | ThinkingBlock | ToolUseBlock]:
        block = self._blocks[index]
        match block.type:
            case "text" if block.text:
                yield TextBlock(block.text)
            case "thinking":
                yield ThinkingBlock(block.thinking, block.signature)
            case "redacted_thinking":
                yield ThinkingBlock("", _REDACTED + block.data)
            case "tool_use":
                text = "".join(self._inputs.get(index, ()))
                yield parse_tool_use(block.id, block.name, text or block.input)
