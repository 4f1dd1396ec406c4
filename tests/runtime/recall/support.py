"""Helpers for tests of recall: sessions with any content, searches, and values without a ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fidelio.errors import ToolRefused, UsageProblem
from fidelio.ids import new_id
from fidelio.ledger.model import NewEvent, Session
from fidelio.runtime import events as e
from fidelio.runtime.calls import NO_SANDBOX
from fidelio.runtime.outcomes.record import Criterion, Outcome, OutcomesRecord
from fidelio.runtime.recall.definitions import DEFINITIONS
from fidelio.runtime.recall.model import Found, RecallResult, RecallScope, VisibleSession
from fidelio.runtime.recall.search import recall
from fidelio.runtime.recall.tools import IMPLEMENTATIONS
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.stores import open_store
from fidelio.runtime.tools.definitions import DEFINITIONS as ALL_DEFINITIONS
from fidelio.runtime.tools.model import Preparation, RuntimeContext, ToolCall
from fidelio.runtime.wakes.record import WakeRecord
from fidelio.toolkit import read_arguments
from tests.runtime.navigation.support import PROJECT, World, make
from tests.support.ledgers import MovingClock

TOOLS = {tool.name: tool for tool in DEFINITIONS}
ALL_TOOLS = frozenset({*ALL_DEFINITIONS, *TOOLS})


class RecallWorld(World):
    """A ledger with runtime sessions, in which can be searched."""

    def __init__(self, context: RuntimeContext, clock: MovingClock) -> None:
        super().__init__(context)
        self.clock = clock

    async def search(self, session: str, query: str, *, tools: frozenset[str] = ALL_TOOLS, **scope: Any) -> RecallResult:
        """Search from a session, with everything indexed."""
        await self.context.ledger.update_index()
        return await recall(self.context, await self.load(session), query, tools=tools, scope=RecallScope(**scope))

    async def sources(self, session: str, query: str, **scope: Any) -> list[tuple[str | None, str]]:
        """Session and source of the hits, sorted."""
        hits = (await self.search(session, query, **scope)).hits
        return sorted(((hit["sessionId"], hit["source"]) for hit in hits), key=str)

    async def learn(self, title: str, detail: str, *, session: str = "s_origin", network: str = "none") -> None:
        store = await open_store(self.context, "substrate", project=PROJECT, agent="default")
        body = {
            "learning_id": new_id("lrn_"),
            "kind": "lesson",
            "title": title,
            "detail": detail,
            "dedupe_key": "",
            "promote_to_memory": False,
            "session_id": session,
            "wake_id": "w",
            "network": network,
        }
        await self.context.ledger.commit(store.change(make(e.LEARNING_CAPTURED, body)))

    async def use_tool(self, session: str, tool: str, **arguments: Any) -> dict[str, Any]:
        """The output of a call that must work."""
        await self.context.ledger.update_index()
        valid = read_arguments(tool, TOOLS[tool].parameters, arguments)
        call = ToolCall(self.context, await self.load(session), new_id("toolu_"), TOOLS[tool], NO_SANDBOX, ALL_TOOLS)
        return dict((await IMPLEMENTATIONS[tool].run(call, valid, Preparation())).output)

    async def refuse_tool(self, session: str, tool: str, **arguments: Any) -> str:
        """The error of a call that must be refused."""
        try:
            output = await self.use_tool(session, tool, **arguments)
        except (ToolRefused, UsageProblem) as error:
            return str(error)
        raise AssertionError(output)


def check_call(step: Mapping[str, Any]) -> None:
    """A suggested call must be valid for its own tool."""
    definition = {**ALL_DEFINITIONS, **TOOLS}[step["tool"]]
    read_arguments(step["tool"], definition.parameters, step["args"])


def make_session(
    name: str = "s_other", *, parent: str | None = None, setup: str = "", outcome: Outcome | None = None, **record: Any
) -> VisibleSession:
    """A session without a ledger."""
    row = Session(name, "runtime", "runtime:/p", None, parent, "idle", "", "{}", 1, b"", 0, 0)
    outcomes = OutcomesRecord((outcome,) if outcome is not None else ())
    values = RuntimeRecord(agent="a", project="/p", wakes=WakeRecord(setup=setup), outcomes=outcomes)
    return VisibleSession(row, msgspec.structs.replace(values, **record))


def make_outcome(title: str, *criteria: str, **more: Any) -> Outcome:
    return Outcome(id="o", title=title, criteria=tuple(Criterion(text) for text in criteria), author="agent", **more)


def make_found(**more: Any) -> Found:
    values: dict[str, Any] = {"backend": "session_context", "source": "session_context", "relevance": 1.0, "text": "text"}
    return Found(**{**values, "snippet": "snippet", **more})


def tool_call(tool: str, arguments: Mapping[str, Any], result: str, wake_id: str = "w") -> Sequence[NewEvent]:
    """The two events of a tool call."""
    use = {"id": "toolu_1", "name": tool, "input": dict(arguments), "wake_id": wake_id}
    return (
        make(e.TOOL_USE, use),
        make(e.TOOL_RESULT, {"tool_use_id": "toolu_1", "name": tool, "result": {"text": result}, "wake_id": wake_id}),
    )
