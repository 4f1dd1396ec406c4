"""The messages of Claude Code that say something to us, and those parts of them that do.

There are many more, and more with every version. Whatever is not read here is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fidelio.errors import ConversationLost, ExecutorFailure, LimitReached

Json = dict[str, Any]


class Cost(msgspec.Struct, frozen=True):
    """Tokens and money: of one answer of the model, or of a whole conversation."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens, self.cost_usd + other.cost_usd
        )

    def __sub__(self, other: Cost) -> Cost:
        return self + Cost(-other.input_tokens, -other.output_tokens, -other.cost_usd)


class Tokens(msgspec.Struct, frozen=True):
    """Of one answer of the model. What came out of a cache was heard all the same."""

    input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0
    cache_read_input_tokens: int | None = 0
    output_tokens: int | None = 0

    @property
    def cost(self) -> Cost:
        heard = (self.input_tokens, self.cache_creation_input_tokens, self.cache_read_input_tokens)
        return Cost(sum(tokens or 0 for tokens in heard), self.output_tokens or 0)


class ModelTokens(msgspec.Struct, frozen=True, rename="camel"):
    """Of one model in a whole conversation."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0


class Block(msgspec.Struct, frozen=True):
    """A part of a message: a text, the use of a tool, or what came of it. Of other kinds of parts only the kind matters."""

    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: Any = None
    tool_use_id: str = ""
    is_error: bool | None = None
    content: Any = None

    @property
    def result(self) -> str:
        if isinstance(self.content, str):
            return self.content
        parts = self.content if isinstance(self.content, list) else []
        return "\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and "text" in part)


class AssistantBody(msgspec.Struct, frozen=True):
    """One answer of the model, or a part of it."""

    id: str
    content: list[Block]
    model: str = ""
    usage: Tokens | None = None


class UserBody(msgspec.Struct, frozen=True):
    """A text, or results of tools."""

    content: str | list[Block]


class Server(msgspec.Struct, frozen=True):
    """An MCP server of the agent, and whether it is there."""

    name: str
    status: str = ""


class System(msgspec.Struct, frozen=True, tag_field="type", tag="system"):
    """`init` begins a turn, `api_retry` says that the model could not be asked; others say what runs in the background."""

    subtype: str
    session_id: str = ""
    mcp_servers: list[Server] = msgspec.field(default_factory=list)
    error_status: int | None = None
    attempt: int = 0
    tasks: list[Any] | None = None


class Assistant(msgspec.Struct, frozen=True, tag_field="type", tag="assistant"):
    """What the model says, or the agent in its stead. With a parent it is said by an agent of the agent."""

    message: AssistantBody
    parent_tool_use_id: str | None = None


class User(msgspec.Struct, frozen=True, tag_field="type", tag="user"):
    """What the model gets to read: results of tools."""

    message: UserBody


class Result(msgspec.Struct, frozen=True, tag_field="type", tag="result"):
    """The end of a turn. What was spent is of the whole conversation."""

    subtype: str = ""
    is_error: bool = False
    result: str | None = None
    errors: list[Any] | None = None
    structured_output: Any = None
    api_error_status: int | None = None
    terminal_reason: str | None = None
    total_cost_usd: float | None = None
    model_usage: dict[str, ModelTokens] | None = msgspec.field(name="modelUsage", default=None)

    @property
    def cost(self) -> Cost:
        return conversation_cost(self.total_cost_usd, self.model_usage)


class ControlRequestBody(msgspec.Struct, frozen=True):
    """What the agent wants to know from us."""

    subtype: str
    tool_name: str = ""
    tool_use_id: str = ""
    input: Json = msgspec.field(default_factory=dict)
    description: str | None = None
    blocked_path: str | None = None
    permission_suggestions: list[Json] | None = None


class ControlRequest(msgspec.Struct, frozen=True, tag_field="type", tag="control_request"):
    """Waits for the answer with the same id."""

    request_id: str
    request: ControlRequestBody


class ControlCancel(msgspec.Struct, frozen=True, tag_field="type", tag="control_cancel_request"):
    """The agent does not want to know any more."""

    request_id: str


class ConversationUsage(msgspec.Struct, frozen=True):
    """What a whole conversation has cost."""

    total_cost_usd: float | None = None
    model_usage: dict[str, ModelTokens] | None = None


class UsageReport(msgspec.Struct, frozen=True):
    """What the agent knows of costs."""

    session: ConversationUsage = ConversationUsage()


class Response(msgspec.Struct, frozen=True):
    """`response` is there where `subtype` says success."""

    subtype: str
    request_id: str
    response: UsageReport | None = None


class ControlResponse(msgspec.Struct, frozen=True, tag_field="type", tag="control_response"):
    """The answer to the one thing that we ask: what the conversation has cost so far."""

    response: Response

    @property
    def cost(self) -> Cost | None:
        if self.response.subtype != "success" or self.response.response is None:
            return None
        session = self.response.response.session
        return conversation_cost(session.total_cost_usd, session.model_usage)


Message = System | Assistant | User | Result | ControlRequest | ControlCancel | ControlResponse
_decoder = msgspec.json.Decoder(Message)


def read_message(line: str) -> Message | None:
    """None for what says nothing to us."""
    try:
        message: Message = _decoder.decode(line)
    except msgspec.DecodeError:
        return None
    return message


def conversation_cost(cost: float | None, models: Mapping[str, ModelTokens] | None) -> Cost:
    used = (models or {}).values()
    return Cost(
        sum(one.input_tokens + one.cache_creation_input_tokens + one.cache_read_input_tokens for one in used),
        sum(one.output_tokens for one in used),
        cost or 0.0,
    )


_UNKNOWN_CONVERSATION = "No conversation found"
_LOG_IN = (
    "Set ANTHROPIC_API_KEY, or log in with `claude auth login`. "
    "Where the key is in a settings file, name that file's kind in the blueprint's option setting_sources."
)


def result_failure(result: Result, partial: str) -> ExecutorFailure:
    """For a turn that the agent itself reports as failed."""
    said = "; ".join(map(str, result.errors or ())) or result.result or result.subtype or "It does not say why."
    if lost := stderr_failure(said):
        return lost
    if result.subtype == "error_max_budget_usd":
        return LimitReached("The run has spent what it may spend.", reason="limit.cost_usd", partial=partial)
    status = result.api_error_status
    if status in {401, 403} or "/login" in said:
        return login_failure(status, partial)
    reason = f"model.{status}" if status else result.terminal_reason or "failed"
    return ExecutorFailure(f"Claude Code could not finish: {said}", reason=reason, partial=partial)


def login_failure(status: int | None, partial: str = "") -> ExecutorFailure:
    sentence = "The model does not accept Claude Code's key." if status else "Claude Code is not logged in."
    return ExecutorFailure(sentence, remedy=_LOG_IN, reason="not-logged-in", partial=partial)


def missing_server_failure(names: Iterable[str]) -> ExecutorFailure:
    """An agent without its tools would do something else than it was asked to."""
    missing = ", ".join(sorted(names))
    remedy = "Try the command or the address that its blueprint has for it."
    return ExecutorFailure(f"Claude Code cannot reach the MCP server {missing}.", remedy=remedy, reason="mcp-server")


def stderr_failure(said: str) -> ConversationLost | None:
    """For what it writes before it ends without having begun."""
    if _UNKNOWN_CONVERSATION not in said:
        return None
    return ConversationLost("Claude Code does not know this conversation.", reason="conversation-lost")
