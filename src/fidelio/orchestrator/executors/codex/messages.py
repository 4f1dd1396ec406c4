"""What has to be where in what Codex says. A message that is built otherwise is its failure, and is named as such.

Only what something depends on has a shape; what is merely passed on may be anything, and what is not known here is passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, TypeVar
from uuid import UUID

import msgspec

from fidelio.errors import ConversationLost, ExecutorFailure
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.common import mcp_tool_name
from fidelio.orchestrator.executors.contract import Reporter, TurnResult

Json = dict[str, Any]
# As much as every reader of JSON takes for a whole number.
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
T = TypeVar("T")


class Identified(msgspec.Struct, frozen=True):
    """A thread, a turn: whatever has an id."""

    id: str


class ErrorDetail(msgspec.Struct, frozen=True):
    """Why something failed."""

    message: str


def parse_line(line: str) -> Json | None:
    """A message; None for a line that is none, because somebody else has written there."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def convert_message(value: Any, shape: type[T], what: str) -> T:
    """Raises when `value` is not built like that; `content` says where it stood."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise ExecutorFailure(
            f"Codex said something in {what} that cannot be understood: {error}.",
            reason="protocol",
            remedy="Another version of Codex may do better; `fidelio doctor` says which one is installed.",
        ) from error


SHELL, PATCH = "shell", "apply_patch"


class AgentMessage(msgspec.Struct, frozen=True):
    """Something that Codex says."""

    text: str


class _ToolCall(msgspec.Struct, frozen=True):
    """The use of a tool. Each kind says in `call` which tool, and what it is given."""

    status: Any = "completed"
    error: ErrorDetail | None = None

    @property
    def ok(self) -> bool:
        return bool(self.status == "completed")

    def result_text(self) -> str:
        """What came of it, as text, where nothing went wrong."""
        return ""


class CommandCall(_ToolCall, frozen=True, kw_only=True):
    """A command is run."""

    command: Any
    aggregated_output: Any = None

    def call(self) -> tuple[str, Any]:
        return SHELL, {"command": self.command}

    def result_text(self) -> str:
        return "" if self.aggregated_output is None else str(self.aggregated_output)


class FileChange(_ToolCall, frozen=True, kw_only=True):
    """Files are changed."""

    changes: tuple[Json, ...]

    def call(self) -> tuple[str, Any]:
        return PATCH, {"changes": self.changes}


class McpResult(msgspec.Struct, frozen=True):
    """What an MCP server has answered."""

    content: tuple[Json, ...] = ()


class McpCall(_ToolCall, frozen=True, kw_only=True):
    """A tool of an MCP server."""

    server: str
    tool: str
    arguments: Any = None
    result: McpResult | None = None

    def call(self) -> tuple[str, Any]:
        return mcp_tool_name(self.server, self.tool), self.arguments

    def result_text(self) -> str:
        return "\n".join(_content_text(part) for part in self.result.content) if self.result else ""


class SearchCall(_ToolCall, frozen=True, kw_only=True):
    """The web is searched."""

    query: Any = ""

    def call(self) -> tuple[str, Any]:
        return "web_search", {"query": self.query}


class SubagentCall(_ToolCall, frozen=True, kw_only=True):
    """Codex lets another of its kind do something."""

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
    """One item. `content` is None for those that nothing depends on."""

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
    """Tells items as they come. `last_message` is the newest message, `steps` how many items the model has made.

    `items` are those that have begun and not ended yet, the newest last.
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
    """Why a turn was not completed."""

    message: str = ""
    codex_error_info: Any = None


class CompletedTurn(msgspec.Struct, frozen=True):
    """A turn that is over."""

    status: str
    error: TurnError | None = None


def turn_result(text: str, blueprint: Blueprint) -> TurnResult:
    return TurnResult(text=text, data=_parse_json(text) if blueprint.output_schema is not None else None)


def conversation_lost(conversation: str) -> ConversationLost:
    return ConversationLost(
        f"Codex does not know the conversation {conversation}.", reason="conversation-lost", remedy="Start a new session."
    )


def require_thread_id(conversation: str | None) -> None:
    """Codex takes everything else for the name of a conversation."""
    try:
        UUID(conversation or "0" * 32)
    except ValueError as error:
        raise conversation_lost(str(conversation)) from error


def turn_failure(turn: CompletedTurn, partial: str) -> ExecutorFailure:
    """The error for a turn that was not completed, as Codex describes it."""
    error = turn.error or TurnError()
    message = error.message or f"The turn was {turn.status}."
    return ExecutorFailure(message, reason=_reason_code(error.codex_error_info, turn.status), partial=partial)


def _reason_code(info: Any, status: str) -> str:
    """`usageLimitExceeded` becomes `usage-limit-exceeded`; some come with details, under their name."""
    name = next(iter(info), status) if isinstance(info, dict) else info
    if not isinstance(name, str) or name == "other":
        return f"turn-{status}"
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
