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
from fidelio.orchestrator.executors.common import mcp_name
from fidelio.orchestrator.executors.contract import Finished, Reporter

Json = dict[str, Any]
# As much as every reader of JSON takes for a whole number.
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
T = TypeVar("T")


class Named(msgspec.Struct, frozen=True):
    """A thread, a turn: whatever has an id."""

    id: str


class Problem(msgspec.Struct, frozen=True):
    """Why something failed."""

    message: str


def read_line(line: str) -> Json | None:
    """A message; None for a line that is none, because somebody else has written there."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def read(value: Any, shape: type[T], what: str) -> T:
    """Raises when `value` is not built like that; `what` says where it stood."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise ExecutorFailure(
            f"Codex said something in {what} that cannot be understood: {error}.",
            reason="protocol",
            remedy="Another version of Codex may do better; `fidelio doctor` says which one is installed.",
        ) from error


SHELL, PATCH = "shell", "apply_patch"


class Message(msgspec.Struct, frozen=True):
    """Something that Codex says."""

    text: str


class _Use(msgspec.Struct, frozen=True):
    """The use of a tool. Each kind says in `call` which tool, and what it is given."""

    status: Any = "completed"
    error: Problem | None = None

    @property
    def ok(self) -> bool:
        return bool(self.status == "completed")

    def outcome(self) -> str:
        """What came of it, as text, where nothing went wrong."""
        return ""


class CommandUse(_Use, frozen=True, kw_only=True):
    """A command is run."""

    command: Any
    aggregated_output: Any = None

    def call(self) -> tuple[str, Any]:
        return SHELL, {"command": self.command}

    def outcome(self) -> str:
        return "" if self.aggregated_output is None else str(self.aggregated_output)


class FileUse(_Use, frozen=True, kw_only=True):
    """Files are changed."""

    changes: tuple[Json, ...]

    def call(self) -> tuple[str, Any]:
        return PATCH, {"changes": self.changes}


class McpResult(msgspec.Struct, frozen=True):
    """What an MCP server has answered."""

    content: tuple[Json, ...] = ()


class McpUse(_Use, frozen=True, kw_only=True):
    """A tool of an MCP server."""

    server: str
    tool: str
    arguments: Any = None
    result: McpResult | None = None

    def call(self) -> tuple[str, Any]:
        return mcp_name(self.server, self.tool), self.arguments

    def outcome(self) -> str:
        return "\n".join(_part(part) for part in self.result.content) if self.result else ""


class SearchUse(_Use, frozen=True, kw_only=True):
    """The web is searched."""

    query: Any = ""

    def call(self) -> tuple[str, Any]:
        return "web_search", {"query": self.query}


class HelperUse(_Use, frozen=True, kw_only=True):
    """Codex lets another of its kind do something."""

    tool: str
    prompt: Any = None

    def call(self) -> tuple[str, Any]:
        return self.tool, {"prompt": self.prompt}


Use = CommandUse | FileUse | McpUse | SearchUse | HelperUse

_SHAPES: Mapping[str, type[Message | Use]] = MappingProxyType(
    {
        "agent_message": Message,
        "command_execution": CommandUse,
        "file_change": FileUse,
        "mcp_tool_call": McpUse,
        "web_search": SearchUse,
        "collab_agent_tool_call": HelperUse,
    }
)


class _Head(msgspec.Struct, frozen=True):
    id: str
    type: str


class Item(msgspec.Struct, frozen=True):
    """One item. `what` is None for those that nothing depends on."""

    id: str
    what: Message | Use | None


def item_of(raw: Any) -> Item:
    head = read(raw, _Head, "an item")
    shape = _SHAPES.get(_snake(head.type))
    if shape is None:
        return Item(head.id, None)
    return Item(head.id, read({_snake(key): value for key, value in raw.items()}, shape, f"the item {head.type}"))


class Account:
    """Tells items as they come. `last` is the newest message, `steps` how many items the model has made.

    `items` are those that have begun and not ended yet, the newest last.
    """

    def __init__(self, reporter: Reporter) -> None:
        self.last = ""
        self.steps = 0
        self.items: dict[str, Item] = {}
        self._reporter = reporter
        self._called: set[str] = set()

    async def started(self, raw: Any) -> None:
        item = item_of(raw)
        self.items[item.id] = item
        if isinstance(item.what, Use):
            await self._use(item.id, item.what)

    async def completed(self, raw: Any) -> None:
        item = item_of(raw)
        self.items.pop(item.id, None)
        if isinstance(item.what, Message):
            self.steps += 1
            self.last = item.what.text
            await self._reporter.said(self.last)
        elif item.what is not None:
            await self._use(item.id, item.what)
            text = item.what.error.message if item.what.error else item.what.outcome()
            await self._reporter.returned(item.id, ok=item.what.ok, text=text)

    async def _use(self, id_: str, use: Use) -> None:
        if id_ not in self._called:
            self._called.add(id_)
            self.steps += 1
            tool, arguments = use.call()
            await self._reporter.called(id_, tool, arguments)


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _part(part: Json) -> str:
    text = part.get("text")
    return text if isinstance(text, str) else json.dumps(part)


NO_THREAD = "no rollout found"


class TurnError(msgspec.Struct, frozen=True, rename="camel"):
    """Why a turn was not completed."""

    message: str = ""
    codex_error_info: Any = None


class Outcome(msgspec.Struct, frozen=True):
    """A turn that is over."""

    status: str
    error: TurnError | None = None


def finished(text: str, blueprint: Blueprint) -> Finished:
    return Finished(text=text, data=_data(text) if blueprint.output_schema is not None else None)


def lost(conversation: str) -> ConversationLost:
    return ConversationLost(
        f"Codex does not know the conversation {conversation}.", reason="conversation-lost", remedy="Start a new session."
    )


def require_thread_id(conversation: str | None) -> None:
    """Codex takes everything else for the name of a conversation."""
    try:
        UUID(conversation or "0" * 32)
    except ValueError as error:
        raise lost(str(conversation)) from error


def turn_failure(turn: Outcome, partial: str) -> ExecutorFailure:
    """The error for a turn that was not completed, as Codex describes it."""
    error = turn.error or TurnError()
    message = error.message or f"The turn was {turn.status}."
    return ExecutorFailure(message, reason=_reason(error.codex_error_info, turn.status), partial=partial)


def _reason(info: Any, status: str) -> str:
    """`usageLimitExceeded` becomes `usage-limit-exceeded`; some come with details, under their name."""
    name = next(iter(info), status) if isinstance(info, dict) else info
    if not isinstance(name, str) or name == "other":
        return f"turn-{status}"
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def _data(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
