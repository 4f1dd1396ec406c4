"""What an agent of the protocol does with its tools: their names, what they change, and what came of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from acp.schema import (
    AgentMessageChunk,
    ContentToolCallContent,
    FileEditToolCallContent,
    PermissionOption,
    PromptResponse,
    TextContentBlock,
    ToolCall,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
)

from fidelio.orchestrator.executors.common import ALLOW, REFUSE, Change, mcp_name, verdict
from fidelio.orchestrator.executors.contract import Question, Reporter, Turn
from fidelio.orchestrator.record.model import Usage

Use = ToolCall | ToolCallUpdate

# Gemini and Qwen title a tool of a server so, Gemini makes up ids so, and a title without spaces is a name (OpenCode).
_TITLE = re.compile(r"(\S+) \((.+) MCP Server\)")
_MADE_UP = re.compile(r"(.+)__\1_\d+_\d+")
_NAME = re.compile(r"[\w.-]+")

_HARMLESS = frozenset({"read", "search", "think"})
_FILES = frozenset({"edit", "delete", "move"})


def name_of(use: Use, servers: Iterable[str]) -> str:
    """How the tool is called: for a tool of an MCP server `mcp__SERVER__TOOL`, else as the agent calls it."""
    title = use.title or ""
    if found := _TITLE.match(title):
        return mcp_name(found[2], found[1])
    given = (use.field_meta or {}).get("toolName")
    made_up = _MADE_UP.fullmatch(use.tool_call_id)
    name = str(given or (made_up[1] if made_up else "") or (title if _NAME.fullmatch(title) else "") or use.kind or "tool")
    return _of_server(name, servers)


def change_of(use: Use, project: Path) -> Change:
    """What the tool changes, as far as the agent says. Files elsewhere are not files of the project."""
    if use.kind in _HARMLESS:
        return "nothing"
    places = [Path(location.path) for location in use.locations or ()]
    inside = places and all((project / place).resolve().is_relative_to(project.resolve()) for place in places)
    return "files" if use.kind in _FILES and inside else "something"


def outcome_of(use: Use) -> str:
    """What came of it, as text."""
    texts = []
    for content in use.content or ():
        if isinstance(content, FileEditToolCallContent):
            texts.append(f"{content.path} was changed.")
        elif isinstance(content, ContentToolCallContent) and isinstance(content.content, TextContentBlock):
            texts.append(content.content.text)
    return "\n".join(texts)


def arguments_of(use: Use) -> Any:
    return use.raw_input or ({"title": use.title} if use.title else None)


def _of_server(name: str, servers: Iterable[str]) -> str:
    for server in servers:
        for beginning in (f"mcp__{server}__", f"mcp_{server}_", f"{server}_"):
            if name.startswith(beginning):
                return mcp_name(server, name.removeprefix(beginning))
    return name


_DECISIONS = {"allow_once": ALLOW, "reject_once": REFUSE}


class Leave:
    """Decides what the permissions of the blueprint decide, and asks a person about the rest."""

    def __init__(self, title: str, turn: Turn, reporter: Reporter) -> None:
        self._title, self._turn, self._reporter = title, turn, reporter
        self._answers: dict[str, str] = {}

    async def choose(self, use: ToolCallUpdate, name: str, options: Sequence[PermissionOption]) -> str | None:
        """The id of the option; None where the agent offers none that fits, which means no."""
        names = (name, str(use.kind)) if use.kind else (name,)
        decided: str = verdict(self._turn.blueprint.permissions, names, change_of(use, self._turn.directory))
        offered = _by_decision(options)
        if decided == "ask":
            decided = await self._answer(self._question(use, name, offered))
        chosen = offered.get({"deny": REFUSE}.get(decided, decided))
        return chosen.option_id if chosen else None

    async def _answer(self, question: Question) -> str:
        """One answer holds for one use: OpenCode asks about a command, and about each place outside that it touches."""
        if question.key not in self._answers:
            self._answers[question.key] = (await self._reporter.ask(question)).option
        return self._answers[question.key]

    def _question(self, use: ToolCallUpdate, name: str, offered: dict[str, PermissionOption]) -> Question:
        title = use.title or name
        what = title if name in title else f"{name}: {title}"
        return Question(
            key=use.tool_call_id,
            kind="permission",
            text=f"{self._title} wants to use {what}",
            options=tuple((decision, option.name) for decision, option in offered.items()),
            detail={"tool": name, "arguments": arguments_of(use), "content": outcome_of(use)},
        )


def allows(chosen: str | None, options: Sequence[PermissionOption]) -> bool:
    return any(option.option_id == chosen and str(option.kind).startswith("allow") for option in options)


def _by_decision(options: Sequence[PermissionOption]) -> dict[str, PermissionOption]:
    """One yes and one no are called as everywhere; what an agent offers besides keeps its own name."""
    offered: dict[str, PermissionOption] = {}
    for option in options:
        decision = _DECISIONS.get(str(option.kind), option.option_id)
        offered[option.option_id if decision in offered else decision] = option
    return offered


_OVER = ("completed", "failed")


class Account:
    """One turn. `last` is the newest whole message, `refused` the tool that was refused if nothing has been said since."""

    def __init__(self, reporter: Reporter, servers: Iterable[str]) -> None:
        self.last = ""
        self.refused = ""
        self._reporter, self._servers = reporter, tuple(servers)
        self._names: dict[str, str] = {}
        self._told: set[str] = set()
        self._over: set[str] = set()
        self._message: list[str] = []
        self._message_id: str | None = None
        self._usage = Usage()

    async def take(self, update: Any) -> None:
        if isinstance(update, AgentMessageChunk):
            await self._chunk(update)
        elif isinstance(update, ToolCallStart | ToolCallProgress):
            await self._used_tool(update)

    async def asks_for(self, use: Use) -> str:
        """The name of the tool that the agent wants to use; it has been told when this returns."""
        await self.flush()
        await self._called(use)
        return self._name(use)

    async def finish(self, response: PromptResponse, spent: Usage | None) -> None:
        """The turn is over: what is left to say, and what it has cost, as the agent says now or as is known otherwise."""
        await self.flush()
        spent = spent or _spent_in(response)
        if spent is not None:
            self._usage = msgspec.structs.replace(spent, turns=max(1, self._usage.turns))
        await self._reporter.used(self._usage)

    async def flush(self) -> None:
        """The pieces so far are a whole message."""
        text, self._message = "".join(self._message), []
        if text.strip():
            self.last, self.refused = text, ""
            await self._reporter.said(text)

    async def _chunk(self, chunk: AgentMessageChunk) -> None:
        if spent := (chunk.field_meta or {}).get("usage"):
            await self._spent(spent)
        if chunk.message_id != self._message_id:
            await self.flush()
            self._message_id = chunk.message_id
        if isinstance(chunk.content, TextContentBlock):
            self._message.append(chunk.content.text)

    async def _spent(self, spent: dict[str, Any]) -> None:
        """What one answer of the model has cost, from agents that say it as they go."""
        before = self._usage
        self._usage = Usage(
            turns=before.turns + 1,
            input_tokens=before.input_tokens + int(spent.get("inputTokens") or 0),
            output_tokens=before.output_tokens + int(spent.get("outputTokens") or 0),
        )
        await self._reporter.used(self._usage)

    async def _used_tool(self, use: ToolCallStart | ToolCallProgress) -> None:
        await self.flush()
        self._name(use)
        # A use is announced before all of its arguments are known.
        if use.status != "pending":
            await self._called(use)
        if use.status in _OVER and use.tool_call_id not in self._over:
            self._over.add(use.tool_call_id)
            await self._reporter.returned(use.tool_call_id, ok=use.status == "completed", text=outcome_of(use))

    async def _called(self, use: Use) -> None:
        if use.tool_call_id not in self._told:
            self._told.add(use.tool_call_id)
            await self._reporter.called(use.tool_call_id, self._name(use), arguments_of(use))

    def _name(self, use: Use) -> str:
        """What is known at first holds: later a title says what is done instead of with what."""
        return self._names.setdefault(use.tool_call_id, name_of(use, self._servers))


def _spent_in(response: PromptResponse) -> Usage | None:
    """The protocol has a place for it; Gemini has its own."""
    if response.usage is not None:
        return Usage(input_tokens=response.usage.input_tokens, output_tokens=response.usage.output_tokens)
    counted = ((response.field_meta or {}).get("quota") or {}).get("token_count")
    return Usage(input_tokens=int(counted["input_tokens"]), output_tokens=int(counted["output_tokens"])) if counted else None
