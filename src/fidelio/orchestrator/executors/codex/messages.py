"""Messages and items of Codex, their report to the orchestrator, and the result or failure of a turn.

Only fields that are used have a declared type; unknown messages and items are ignored. A declared message with another
structure is a failure of the turn that names the message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, TypeVar
from uuid import UUID

import msgspec

from fidelio.errors import Command, ConversationLost, ExecutorFailure, Hint
from fidelio.orchestrator.executors.common import mcp_tool_name
from fidelio.orchestrator.executors.contract import Reporter

Json = dict[str, Any]
# Up to 2**53, the largest integer that every JSON parser reads exactly.
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
T = TypeVar("T")


class Identified(msgspec.Struct, frozen=True):
    """A thread or a turn, of which only the id is read."""

    id: str


class ErrorDetail(msgspec.Struct, frozen=True):
    """The message of an error."""

    message: str


def parse_line(line: str) -> Json | None:
    """Parse a line of output; None if it is no JSON object, such as a log line."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def convert_message(value: Any, shape: type[T], what: str) -> T:
    """Convert `value` to `shape`, or raise `ExecutorFailure`; `what` names the message in the error."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise ExecutorFailure(
            f"Codex sent {what} with an unexpected structure: {error}.",
            reason="protocol",
            remedy=Hint("Try another version of Codex; ", Command("doctor"), " says which one is installed."),
        ) from error


SHELL, PATCH = "shell", "apply_patch"


class AgentMessage(msgspec.Struct, frozen=True):
    """A message of Codex."""

    text: str


class _ToolCall(msgspec.Struct, frozen=True):
    """Base of the tool calls. Each kind returns its tool and arguments in `call`."""

    status: Any = "completed"
    error: ErrorDetail | None = None

    @property
    def ok(self) -> bool:
        return bool(self.status == "completed")

    def result_text(self) -> str:
        """The result of a successful call as text."""
        return ""


class CommandCall(_ToolCall, frozen=True, kw_only=True):
    """A command in the shell."""

    command: Any
    aggregated_output: Any = None

    def call(self) -> tuple[str, Any]:
        return SHELL, {"command": self.command}

    def result_text(self) -> str:
        return "" if self.aggregated_output is None else str(self.aggregated_output)


class FileChange(_ToolCall, frozen=True, kw_only=True):
    """A patch of files."""

    changes: tuple[Json, ...]

    def call(self) -> tuple[str, Any]:
        return PATCH, {"changes": self.changes}


class McpResult(msgspec.Struct, frozen=True):
    """The result of an MCP tool."""

    content: tuple[Json, ...] = ()


class McpCall(_ToolCall, frozen=True, kw_only=True):
    """A call of an MCP tool."""

    server: str
    tool: str
    arguments: Any = None
    result: McpResult | None = None

    def call(self) -> tuple[str, Any]:
        return mcp_tool_name(self.server, self.tool), self.arguments

    def result_text(self) -> str:
        return "\n".join(_content_text(part) for part in self.result.content) if self.result else ""


class SearchCall(_ToolCall, frozen=True, kw_only=True):
    """A search in the web."""

    query: Any = ""

    def call(self) -> tuple[str, Any]:
        return "web_search", {"query": self.query}


class SubagentCall(_ToolCall, frozen=True, kw_only=True):
    """A call of a subagent of Codex."""

    tool: str
    prompt: Any = None

    def call(self) -> tuple[str, Any]:
        return self.tool, {"prompt": self.prompt}


ToolCall = CommandCall | FileChange | McpCall | SearchCall | SubagentCall

_SHAPES: Mapping[str, type[AgentMessage | ToolCall]] = MappingProxyType(
    {
        "agent_message": AgentMessage,
        "command_execution": CommandCall,
        "file_change": FileChange,
        "mcp_tool_call": McpCall,
        "web_search": SearchCall,
        "collab_agent_tool_call": SubagentCall,
    }
)


class _Head(msgspec.Struct, frozen=True):
    id: str
    type: str


class Item(msgspec.Struct, frozen=True):
    """An item of a turn. `content` is None for unknown types."""

    id: str
    content: AgentMessage | ToolCall | None


def parse_item(raw: Any) -> Item:
    head = convert_message(raw, _Head, "an item")
    shape = _SHAPES.get(_to_snake_case(head.type))
    if shape is None:
        return Item(head.id, None)
    return Item(
        head.id, convert_message({_to_snake_case(key): value for key, value in raw.items()}, shape, f"the item {head.type}")
    )


class ItemReporter:
    """Report items as they arrive. `steps` is the number of items of the model so far.

    `items` are the started and not completed items, the newest last.
    """

    def __init__(self, reporter: Reporter) -> None:
        self.last_message = ""
        self.steps = 0
        self.items: dict[str, Item] = {}
        self._reporter = reporter
        self._called: set[str] = set()

    async def report_started(self, raw: Any) -> None:
        item = parse_item(raw)
        self.items[item.id] = item
        if isinstance(item.content, ToolCall):
            await self._use(item.id, item.content)

    async def report_completed(self, raw: Any) -> None:
        item = parse_item(raw)
        self.items.pop(item.id, None)
        if isinstance(item.content, AgentMessage):
            self.steps += 1
            self.last_message = item.content.text
            await self._reporter.report_message(self.last_message)
        elif item.content is not None:
            await self._use(item.id, item.content)
            text = item.content.error.message if item.content.error else item.content.result_text()
            await self._reporter.report_tool_result(item.id, ok=item.content.ok, text=text)

    async def _use(self, id_: str, use: ToolCall) -> None:
        if id_ not in self._called:
            self._called.add(id_)
            self.steps += 1
            tool, arguments = use.call()
            await self._reporter.report_tool_call(id_, tool, arguments)


def _to_snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _content_text(part: Json) -> str:
    text = part.get("text")
    return text if isinstance(text, str) else json.dumps(part)


NO_THREAD = "no rollout found"


class TurnError(msgspec.Struct, frozen=True, rename="camel"):
    """The error of a failed turn."""

    message: str = ""
    codex_error_info: Any = None


class CompletedTurn(msgspec.Struct, frozen=True):
    """The end of a turn, with its status."""

    status: str
    error: TurnError | None = None


def conversation_lost(conversation: str) -> ConversationLost:
    return ConversationLost(
        f"Codex does not know the conversation {conversation}.", reason="conversation-lost", remedy="Start a new session."
    )


def require_thread_id(conversation: str | None) -> None:
    """Require a UUID, because Codex reads any other text as the name of a conversation."""
    try:
        UUID(conversation or "0" * 32)
    except ValueError as error:
        raise conversation_lost(str(conversation)) from error


def turn_failure(turn: CompletedTurn, partial: str) -> ExecutorFailure:
    """The error for a failed turn, with the message and reason of Codex."""
    error = turn.error or TurnError()
    message = error.message or f"The turn was {turn.status}."
    return ExecutorFailure(message, reason=_reason_code(error.codex_error_info, turn.status), partial=partial)


def _reason_code(info: Any, status: str) -> str:
    """Convert `usageLimitExceeded` to `usage-limit-exceeded`. Some errors are an object with the name as its only key."""
    name = next(iter(info), status) if isinstance(info, dict) else info
    if not isinstance(name, str) or name == "other":
        return f"turn-{status}"
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
