"""Messages of Claude Code's stream-json protocol, and failures built from them.

Only the messages and fields that are used here are declared. Every version adds others; they are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fidelio.errors import ConversationLost, ExecutorFailure, LimitReached
from fidelio.orchestrator.record.model import Usage

Json = dict[str, Any]


class Tokens(msgspec.Struct, frozen=True):
    """Token counts of a model answer. Cached input counts as input."""

    input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0
    cache_read_input_tokens: int | None = 0
    output_tokens: int | None = 0

    @property
    def total(self) -> Usage:
        inputs = (self.input_tokens, self.cache_creation_input_tokens, self.cache_read_input_tokens)
        return Usage(input_tokens=sum(tokens or 0 for tokens in inputs), output_tokens=self.output_tokens or 0)


class ModelTokens(msgspec.Struct, frozen=True, rename="camel"):
    """Token counts of a model in a whole conversation."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0


class Block(msgspec.Struct, frozen=True):
    """A content block of a message: a text, a tool call, or a tool result. Of other types only the type is read."""

    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: Any = None
    tool_use_id: str = ""
    is_error: bool | None = None
    content: Any = None

    @property
    def result_text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        blocks = self.content if isinstance(self.content, list) else []
        return "\n".join(str(block["text"]) for block in blocks if isinstance(block, dict) and "text" in block)


class AssistantBody(msgspec.Struct, frozen=True):
    """A model answer, or some of its content blocks."""

    id: str
    content: list[Block]
    model: str = ""
    usage: Tokens | None = None


class UserBody(msgspec.Struct, frozen=True):
    """A text, or tool results."""

    content: str | list[Block]


class Server(msgspec.Struct, frozen=True):
    """An MCP server of the agent and its connection status."""

    name: str
    status: str = ""


class System(msgspec.Struct, frozen=True, tag_field="type", tag="system"):
    """Status: `init` begins a turn, `api_retry` reports a failed model call, `background_tasks_changed` lists running tasks."""

    subtype: str
    session_id: str = ""
    mcp_servers: list[Server] = msgspec.field(default_factory=list)
    error_status: int | None = None
    attempt: int = 0
    tasks: list[Any] | None = None


class Assistant(msgspec.Struct, frozen=True, tag_field="type", tag="assistant"):
    """A message of the model, or a synthetic message of the agent. With a parent it is from a subagent."""

    message: AssistantBody
    parent_tool_use_id: str | None = None


class User(msgspec.Struct, frozen=True, tag_field="type", tag="user"):
    """Input of the model: tool results."""

    message: UserBody


class Result(msgspec.Struct, frozen=True, tag_field="type", tag="result"):
    """The end of a turn. Its cost is that of the whole conversation."""

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
    def total(self) -> Usage:
        return conversation_total(self.total_cost_usd, self.model_usage)


class ControlRequestBody(msgspec.Struct, frozen=True):
    """The content of a control request, such as a permission request for a tool call."""

    subtype: str
    tool_name: str = ""
    tool_use_id: str = ""
    input: Json = msgspec.field(default_factory=dict)
    description: str | None = None
    blocked_path: str | None = None
    permission_suggestions: list[Json] | None = None


class ControlRequest(msgspec.Struct, frozen=True, tag_field="type", tag="control_request"):
    """A request of the agent to its client, answered by a response with the same id."""

    request_id: str
    request: ControlRequestBody


class ControlCancel(msgspec.Struct, frozen=True, tag_field="type", tag="control_cancel_request"):
    """The agent withdraws a request."""

    request_id: str


class ConversationUsage(msgspec.Struct, frozen=True):
    """Usage of a whole conversation."""

    total_cost_usd: float | None = None
    model_usage: dict[str, ModelTokens] | None = None


class UsageReport(msgspec.Struct, frozen=True):
    """The reply to `get_usage`."""

    session: ConversationUsage = ConversationUsage()


class Response(msgspec.Struct, frozen=True):
    """The content of a control response; `response` is set if `subtype` is success."""

    subtype: str
    request_id: str
    response: UsageReport | None = None


class ControlResponse(msgspec.Struct, frozen=True, tag_field="type", tag="control_response"):
    """The reply to `get_usage`, the only request that this client sends."""

    response: Response

    @property
    def total(self) -> Usage | None:
        if self.response.subtype != "success" or self.response.response is None:
            return None
        session = self.response.response.session
        return conversation_total(session.total_cost_usd, session.model_usage)


Message = System | Assistant | User | Result | ControlRequest | ControlCancel | ControlResponse
_decoder = msgspec.json.Decoder(Message)


def read_message(line: str) -> Message | None:
    """Decode a line; None for messages that are not declared here."""
    try:
        message: Message = _decoder.decode(line)
    except msgspec.DecodeError:
        return None
    return message


def conversation_total(cost: float | None, models: Mapping[str, ModelTokens] | None) -> Usage:
    used = (models or {}).values()
    return Usage(
        input_tokens=sum(
            model.input_tokens + model.cache_creation_input_tokens + model.cache_read_input_tokens for model in used
        ),
        output_tokens=sum(model.output_tokens for model in used),
        cost_usd=cost or 0.0,
    )


_UNKNOWN_CONVERSATION = "No conversation found"
_LOGIN_REMEDY = (
    "Set ANTHROPIC_API_KEY, or log in with `claude auth login`. "
    "If the key is in a settings file, name the kind of that file in the option setting_sources of the blueprint."
)


def result_failure(result: Result, partial: str) -> ExecutorFailure:
    """The error for a turn that the agent itself reports as failed."""
    message = "; ".join(map(str, result.errors or ())) or result.result or result.subtype or "no reason reported"
    if lost := stderr_failure(message):
        return lost
    if result.subtype == "error_max_budget_usd":
        return LimitReached("The run has reached its cost limit.", reason="limit.cost_usd", partial=partial)
    status = result.api_error_status
    if status in {401, 403} or "/login" in message:
        return login_failure(status, partial)
    reason = f"model.{status}" if status else result.terminal_reason or "failed"
    return ExecutorFailure(f"Claude Code could not finish: {message}", reason=reason, partial=partial)


def login_failure(status: int | None, partial: str = "") -> ExecutorFailure:
    sentence = "The model does not accept Claude Code's key." if status else "Claude Code is not logged in."
    return ExecutorFailure(sentence, remedy=_LOGIN_REMEDY, reason="not-logged-in", partial=partial)


def missing_server_failure(names: Iterable[str]) -> ExecutorFailure:
    """The error for missing MCP servers, without which the agent cannot follow its prompt."""
    missing = ", ".join(sorted(names))
    remedy = "Check the command or the address of the server in the blueprint."
    return ExecutorFailure(f"Claude Code cannot reach the MCP server {missing}.", remedy=remedy, reason="mcp-server")


def stderr_failure(text: str) -> ConversationLost | None:
    """The error for a process that ended before its first turn, if its output says that the conversation is unknown."""
    if _UNKNOWN_CONVERSATION not in text:
        return None
    return ConversationLost("Claude Code does not know this conversation.", reason="conversation-lost")
