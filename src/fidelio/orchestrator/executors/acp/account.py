"""Tells the orchestrator what an agent says and does, whole: the protocol sends messages in pieces and uses in stages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from acp.schema import AgentMessageChunk, PromptResponse, TextContentBlock, ToolCallProgress, ToolCallStart

from fidelio.orchestrator.executors.acp.tools import Use, arguments_of, name_of, outcome_of
from fidelio.orchestrator.executors.contract import Reporter
from fidelio.orchestrator.record.model import Usage

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
