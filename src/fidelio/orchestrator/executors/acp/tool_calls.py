"""Tool calls and messages of an ACP agent: names, permission decisions, and their report to the orchestrator.

The protocol sends messages in chunks and a tool call in several updates; the orchestrator gets whole messages and each call
once.
"""

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

from fidelio.orchestrator.executors.common import ALLOW, REFUSE, Change, decide_permission, mcp_tool_name
from fidelio.orchestrator.executors.contract import AgentQuestion, Reporter, Turn
from fidelio.orchestrator.record.model import Usage

AnyToolCall = ToolCall | ToolCallUpdate

# The title of an MCP tool in Gemini and Qwen; the id of a call in Gemini; a title without spaces is a tool name (OpenCode).
_TITLE = re.compile(r"(\S+) \((.+) MCP Server\)")
_GENERATED_ID = re.compile(r"(.+)__\1_\d+_\d+")
_NAME = re.compile(r"[\w.-]+")

_READ_ONLY_KINDS = frozenset({"read", "search", "think"})
_FILE_KINDS = frozenset({"edit", "delete", "move"})


def tool_name(call: AnyToolCall, servers: Iterable[str]) -> str:
    """The name of the tool: `mcp__SERVER__TOOL` for a tool of an MCP server, else the agent's own name."""
    title = call.title or ""
    if found := _TITLE.match(title):
        return mcp_tool_name(found[2], found[1])
    meta_name = (call.field_meta or {}).get("toolName")
    generated = _GENERATED_ID.fullmatch(call.tool_call_id)
    id_name = generated[1] if generated else ""
    name = str(meta_name or id_name or (title if _NAME.fullmatch(title) else "") or call.kind or "tool")
    return _add_server(name, servers)


def classify_change(call: AnyToolCall, project: Path) -> Change:
    """Classify a call by what the agent declares. Files outside of the project count as `something`."""
    if call.kind in _READ_ONLY_KINDS:
        return "nothing"
    paths = [Path(location.path) for location in call.locations or ()]
    is_inside = paths and all((project / path).resolve().is_relative_to(project.resolve()) for path in paths)
    return "files" if call.kind in _FILE_KINDS and is_inside else "something"


def result_text(call: AnyToolCall) -> str:
    """The content of a tool call as text."""
    texts = []
    for content in call.content or ():
        if isinstance(content, FileEditToolCallContent):
            texts.append(f"{content.path} was changed.")
        elif isinstance(content, ContentToolCallContent) and isinstance(content.content, TextContentBlock):
            texts.append(content.content.text)
    return "\n".join(texts)


def call_arguments(call: AnyToolCall) -> Any:
    return call.raw_input or ({"title": call.title} if call.title else None)


def _add_server(name: str, servers: Iterable[str]) -> str:
    for server in servers:
        for prefix in (f"mcp__{server}__", f"mcp_{server}_", f"{server}_"):
            if name.startswith(prefix):
                return mcp_tool_name(server, name.removeprefix(prefix))
    return name


_DECISIONS = {"allow_once": ALLOW, "reject_once": REFUSE}


class PermissionChooser:
    """Choose the reply to an ACP permission request: by the permissions of the blueprint, or by asking a person."""

    def __init__(self, title: str, turn: Turn, reporter: Reporter) -> None:
        self._title, self._turn, self._reporter = title, turn, reporter
        self._answers: dict[str, str] = {}

    async def choose(self, call: ToolCallUpdate, name: str, options: Sequence[PermissionOption]) -> str | None:
        """The id of the chosen option; None if the agent offers no matching option, which refuses the call."""
        names = (name, str(call.kind)) if call.kind else (name,)
        decided: str = decide_permission(self._turn.blueprint.permissions, names, classify_change(call, self._turn.directory))
        offered = _index_by_decision(options)
        if decided == "ask":
            decided = await self._ask(self._question(call, name, offered))
        chosen = offered.get({"deny": REFUSE}.get(decided, decided))
        return chosen.option_id if chosen else None

    async def _ask(self, question: AgentQuestion) -> str:
        """Ask once for each call. OpenCode asks about a command and again about each external directory that it touches.

        A signature is for exactly what was asked, so where it is demanded every question is asked.
        """
        if self._turn.blueprint.permissions.needs_proof:
            return (await self._reporter.ask(question)).option
        if question.key not in self._answers:
            self._answers[question.key] = (await self._reporter.ask(question)).option
        return self._answers[question.key]

    def _question(self, call: ToolCallUpdate, name: str, offered: dict[str, PermissionOption]) -> AgentQuestion:
        title = call.title or name
        label = title if name in title else f"{name}: {title}"
        return AgentQuestion(
            key=call.tool_call_id,
            kind="permission",
            text=f"{self._title} wants to use {label}",
            options=tuple((decision, option.name) for decision, option in offered.items()),
            detail={"tool": name, "arguments": call_arguments(call), "content": result_text(call)},
        )


def is_allowing(chosen: str | None, options: Sequence[PermissionOption]) -> bool:
    return any(option.option_id == chosen and str(option.kind).startswith("allow") for option in options)


def _index_by_decision(options: Sequence[PermissionOption]) -> dict[str, PermissionOption]:
    """The options by decision: the first to allow or reject once as ALLOW or REFUSE, others under the agent's own ids."""
    offered: dict[str, PermissionOption] = {}
    for option in options:
        decision = _DECISIONS.get(str(option.kind), option.option_id)
        offered[option.option_id if decision in offered else decision] = option
    return offered


_FINAL_STATUSES = ("completed", "failed")


class UpdateReporter:
    """Report the updates of a turn. `refused_tool` is the tool refused since the last message, an empty text for none."""

    def __init__(self, reporter: Reporter, servers: Iterable[str]) -> None:
        self.last_message = ""
        self.refused_tool = ""
        self._reporter, self._servers = reporter, tuple(servers)
        self._names: dict[str, str] = {}
        self._reported: set[str] = set()
        self._finished: set[str] = set()
        self._chunks: list[str] = []
        self._message_id: str | None = None
        self._usage = Usage()

    async def report_update(self, update: Any) -> None:
        if isinstance(update, AgentMessageChunk):
            await self._add_chunk(update)
        elif isinstance(update, ToolCallStart | ToolCallProgress):
            await self._report_tool(update)

    async def report_requested_call(self, call: AnyToolCall) -> str:
        """Report the call that needs permission; return the name of its tool."""
        await self.flush()
        await self._report_call(call)
        return self._name(call)

    async def report_end(self, response: PromptResponse, usage: Usage | None) -> None:
        """Report the last message and the usage of the turn: `usage`, or what the response says."""
        await self.flush()
        usage = usage or _read_usage(response)
        if usage is not None:
            self._usage = msgspec.structs.replace(usage, turns=max(1, self._usage.turns))
        await self._reporter.report_usage(self._usage)

    async def flush(self) -> None:
        """Report the chunks so far as a whole message."""
        text, self._chunks = "".join(self._chunks), []
        if text.strip():
            self.last_message, self.refused_tool = text, ""
            await self._reporter.report_message(text)

    async def _add_chunk(self, chunk: AgentMessageChunk) -> None:
        if usage := (chunk.field_meta or {}).get("usage"):
            await self._add_usage(usage)
        if chunk.message_id != self._message_id:
            await self.flush()
            self._message_id = chunk.message_id
        if isinstance(chunk.content, TextContentBlock):
            self._chunks.append(chunk.content.text)

    async def _add_usage(self, usage: dict[str, Any]) -> None:
        """Add the usage of a model answer, for agents that report it with each."""
        self._usage += Usage(
            turns=1, input_tokens=int(usage.get("inputTokens") or 0), output_tokens=int(usage.get("outputTokens") or 0)
        )
        await self._reporter.report_usage(self._usage)

    async def _report_tool(self, call: ToolCallStart | ToolCallProgress) -> None:
        await self.flush()
        self._name(call)
        # A pending call does not have all of its arguments yet.
        if call.status != "pending":
            await self._report_call(call)
        if call.status in _FINAL_STATUSES and call.tool_call_id not in self._finished:
            self._finished.add(call.tool_call_id)
            await self._reporter.report_tool_result(call.tool_call_id, ok=call.status == "completed", text=result_text(call))

    async def _report_call(self, call: AnyToolCall) -> None:
        if call.tool_call_id not in self._reported:
            self._reported.add(call.tool_call_id)
            await self._reporter.report_tool_call(call.tool_call_id, self._name(call), call_arguments(call))

    def _name(self, call: AnyToolCall) -> str:
        """The name at the first update, because later titles describe the action instead of the tool."""
        return self._names.setdefault(call.tool_call_id, tool_name(call, self._servers))


def _read_usage(response: PromptResponse) -> Usage | None:
    """Read the usage in the field of the protocol, or in Gemini's own."""
    if response.usage is not None:
        return Usage(input_tokens=response.usage.input_tokens, output_tokens=response.usage.output_tokens)
    counted = ((response.field_meta or {}).get("quota") or {}).get("token_count")
    return Usage(input_tokens=int(counted["input_tokens"]), output_tokens=int(counted["output_tokens"])) if counted else None
