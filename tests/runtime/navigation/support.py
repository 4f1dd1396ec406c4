"""Helpers for tests of navigation: sessions with any content, and calls of the tools without a gate and without commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelio.errors import ToolRefused
from fidelio.ids import new_id, new_session_id
from fidelio.ledger.model import NewEvent, NewSession, PutDocument
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.calls import NO_SANDBOX
from fidelio.runtime.navigation.definitions import DEFINITIONS
from fidelio.runtime.navigation.tools import IMPLEMENTATIONS
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.tools.definitions import SANDBOX_TOOL_NAMES
from fidelio.runtime.tools.model import LoadedRuntime, Preparation, RuntimeContext, ToolCall
from fidelio.toolkit import read_arguments

TOOLS = {tool.name: tool for tool in DEFINITIONS}
OTHERS = {"session_search_context", "retrieval_search", "outcome_evaluate", "outcome_history", "outcome_define"}
ALL = frozenset({*SANDBOX_TOOL_NAMES, *TOOLS, *OTHERS})
PROJECT = "/project"


class World:
    """A ledger with runtime sessions."""

    def __init__(self, context: RuntimeContext) -> None:
        self.context = context

    async def start(
        self, *events: NewEvent, parent: str | None = None, project: str = PROJECT, agent: str = "default", **body: Any
    ) -> str:
        """A new session with these events after its first."""
        session = new_session_id()
        started = NewEvent(type=e.STARTED, body={"agent": agent, "project": project, "directory": session, **body})
        create = NewSession(kind="runtime", namespace=f"runtime:{project}", parent=parent)
        await self.context.unit.create(
            session, RuntimeRecord(), SessionDecision(None, events=(started, *events), create=create)
        )
        return session

    async def append(self, session: str, *events: NewEvent, documents: tuple[PutDocument, ...] = ()) -> LoadedRuntime:
        return await self.context.unit.update(session, lambda _: SessionDecision(None, events=events, documents=documents))

    async def load(self, session: str) -> LoadedRuntime:
        return await self.context.unit.load(session)

    async def call(self, session: str, tool: str, tools: frozenset[str] = ALL) -> ToolCall:
        return ToolCall(self.context, await self.load(session), new_id("toolu_"), TOOLS[tool], NO_SANDBOX, tools)

    async def use(self, session: str, tool: str, *, tools: frozenset[str] = ALL, **arguments: Any) -> dict[str, Any]:
        """The output of a call that must work."""
        valid = read_arguments(tool, TOOLS[tool].parameters, arguments)
        call = await self.call(session, tool, tools)
        return dict((await IMPLEMENTATIONS[tool].run(call, valid, Preparation())).output)

    async def refuse(self, session: str, tool: str, **arguments: Any) -> ToolRefused:
        """The error of a call that must be refused."""
        try:
            output = await self.use(session, tool, **arguments)
        except ToolRefused as error:
            return error
        raise AssertionError(output)


def wake(wake_id: str, *inner: NewEvent, summary: str = "", setup: str = "", messages: int = 0) -> tuple[NewEvent, ...]:
    """The events of a whole wake that has taken this number of messages."""
    started = {"span_id": wake_id, "span_kind": "wake", "name": "session_run", "wake_id": wake_id}
    completed = {**started, "result": "success", "summary": summary}
    idle = {"stop_reason": {"type": "end_turn"}, "blockingEventIds": [], "summary": summary, "wake_id": wake_id}
    return (
        make(e.SPAN_STARTED, {**started, "messages": messages, **({"setup": setup} if setup else {})}),
        make(e.STATUS_RUNNING, {"wake_id": wake_id}),
        *inner,
        make(e.STATUS_IDLE, idle),
        make(e.SPAN_COMPLETED, completed),
    )


def message(text: str) -> NewEvent:
    return make(e.USER_MESSAGE, {"content": [{"type": "text", "text": text}]})


def reply(wake_id: str, text: str) -> NewEvent:
    return make(e.AGENT_MESSAGE, {"content": [{"type": "text", "text": text}], "wake_id": wake_id})


def make(type_: str, body: Mapping[str, Any]) -> NewEvent:
    return NewEvent(type=type_, body=body, actor="agent")


def suggestions(value: object) -> list[dict[str, Any]]:
    """Every suggested call in a result, at any depth."""
    if isinstance(value, dict):
        own = [value] if isinstance(value.get("tool"), str) and "args" in value else []
        return own + [found for item in value.values() for found in suggestions(item)]
    return [found for item in value for found in suggestions(item)] if isinstance(value, list | tuple) else []
