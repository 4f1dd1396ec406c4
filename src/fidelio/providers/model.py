"""The protocol of model providers, with its values: requests, replies and errors. They are the same for every vendor.

A request is complete: system text, the whole conversation, the declared tools. A provider keeps no state between requests, so
that a session can go on in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from fidelio.errors import FidelioError, Text

StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal", "context_too_long"]
# What went wrong, in the words of the vendors' error events.
ProblemKind = Literal[
    "model_overloaded_error",
    "model_rate_limited_error",
    "model_request_failed_error",
    "context_too_long_error",
    "billing_error",
]

# How hard a model thinks; empty: its own default.
Effort = Literal["", "low", "medium", "high", "xhigh", "max"]


class TextBlock(msgspec.Struct, frozen=True, tag="text"):
    """A text of the user, the model or a tool."""

    text: str


class ImageBlock(msgspec.Struct, frozen=True, tag="image"):
    """An image; `data` is base64."""

    media_type: str
    data: str


class ThinkingBlock(msgspec.Struct, frozen=True, tag="thinking", omit_defaults=True):
    """A model's reasoning. `signature` is opaque: the vendor wants it back unchanged."""

    text: str
    signature: str = ""


class ToolUseBlock(msgspec.Struct, frozen=True, tag="tool_use"):
    """A tool call of the model. `id` is the vendor's, which its result must name.

    `problem` says why the input could not be read, for example broken JSON; the call is refused with it and not carried out.
    """

    id: str
    name: str
    input: Mapping[str, Any]
    problem: str = ""


class ToolResultBlock(msgspec.Struct, frozen=True, tag="tool_result"):
    """The result of a tool call."""

    tool_use_id: str
    content: tuple[TextBlock | ImageBlock, ...]
    is_error: bool = False


Block: TypeAlias = TextBlock | ImageBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock


class Message(msgspec.Struct, frozen=True):
    """A message of the conversation. Tool results are in a message of the user."""

    role: Literal["user", "assistant"]
    content: tuple[Block, ...]


class ToolDeclaration(msgspec.Struct, frozen=True):
    """A tool as the model sees it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a turn of the model. `force_tool` names the tool that the model has to call.

    `system` is one text. The beginning of a conversation never changes within a session, so providers with prompt caching mark
    the system text, the tools and the last message for it.
    """

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolDeclaration, ...] = ()
    max_tokens: int = 8_192
    force_tool: str = ""
    # Models that have no such setting ignore it.
    effort: Effort = ""
    # An id of the session that is the same for all its requests: for caches of a vendor, and for scripted models.
    conversation: str = ""


class TokenUsage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of a request. `input_tokens` excludes tokens that a cache read or stored."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def context_tokens(self) -> int:
        """All tokens of the request's input: what it took of the model's window."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total(self) -> int:
        return self.context_tokens + self.output_tokens


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """A turn of the model."""

    content: tuple[TextBlock | ThinkingBlock | ToolUseBlock, ...]
    stop_reason: StopReason
    usage: TokenUsage = TokenUsage()
    # The model that the vendor says it used.
    model: str = ""

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))


class Price(msgspec.Struct, frozen=True, omit_defaults=True):
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float = 0.0
    cache_write: float = 0.0

    def cost_micros(self, usage: TokenUsage) -> int:
        """The cost of a request in millionths of a US dollar."""
        cost = (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * self.cache_read
            + usage.cache_write_tokens * self.cache_write
        )
        return round(cost)


# What a model costs that runs on this machine.
FREE = Price(input=0.0, output=0.0)


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a model. The window of an unknown model counts as 200,000 tokens; a `price` of None is unknown."""

    window: int = 200_000
    max_output: int = 8_192
    price: Price | None = None
    # Whether it takes images.
    images: bool = True


class ModelProblem(FidelioError):
    """A request that failed. `retryable`: the same request may succeed later. `retry_after` are the vendor's seconds."""

    code = "provider"

    def __init__(
        self,
        sentence: Text,
        *,
        remedy: Text = "",
        kind: ProblemKind = "model_request_failed_error",
        retryable: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(sentence, remedy=remedy)
        self.kind: ProblemKind = kind
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status


OnText = Callable[[str], None]


class Provider(Protocol):
    """An adapter to a model API."""

    @property
    def name(self) -> str: ...

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        """Carry out a request; `on_text` gets the text of the reply as it arrives.

        Raises `ModelProblem`. It does not retry. It is stopped by cancelling it, which closes the connection.
        """
        ...

    def describe(self, model: str) -> ModelInfo:
        """What is known of a model, without asking the vendor."""
        ...

    async def close(self) -> None:
        """Close idle connections and processes."""
        ...


# An image is not paid by its bytes; this is about the most that a vendor counts for one.
_IMAGE_CHARACTERS = 6_400


def estimate_tokens(request: ModelRequest) -> int:
    """Tokens of a request's input, estimated as a quarter of its characters, for models whose usage is not reported."""
    tools = sum(len(msgspec.json.encode(tool)) for tool in request.tools)
    blocks = (block for message in request.messages for block in message.content)
    return -(-(len(request.system) + tools + _count_characters(blocks)) // 4)


def estimate_usage(request: ModelRequest, content: Iterable[Block]) -> TokenUsage:
    """TokenUsage of a request with this reply, both estimated."""
    return TokenUsage(input_tokens=estimate_tokens(request), output_tokens=-(-_count_characters(content) // 4))


def _count_characters(blocks: Iterable[Block]) -> int:
    return sum(map(_count_block, blocks))


def _count_block(block: Block) -> int:
    match block:
        case ImageBlock():
            return _IMAGE_CHARACTERS
        case ToolUseBlock():
            return len(block.name) + len(msgspec.json.encode(block.input))
        case ToolResultBlock():
            return _count_characters(block.content)
        case _:
            return len(block.text)
