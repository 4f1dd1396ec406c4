"""A home with sessions whose memory tools are called directly, with all commits and without a permission gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fidelio.home import Home
from fidelio.ids import new_id
from fidelio.inbox import Inbox
from fidelio.ledger import Ledger
from fidelio.ledger.model import Event, NewEvent
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime.calls import NO_SANDBOX
from fidelio.runtime.environments.versions import Environment, define
from fidelio.runtime.memory.definitions import DEFINITIONS
from fidelio.runtime.memory.learnings import LearningPlan, plan_learnings
from fidelio.runtime.memory.promotions import commit_promotions
from fidelio.runtime.memory.tools import IMPLEMENTATIONS
from fidelio.runtime.tools.model import CallOrigin, Preparation, RuntimeContext, ToolCall
from fidelio.sandbox.model import Network
from tests.runtime.resources.support import Bench
from tests.support.ledgers import MovingClock

TOOLS = {tool.name: tool for tool in DEFINITIONS}


class MemoryBench(Bench):
    """Sessions with memory tools. The ledger has the same clock as the tools."""

    def __init__(self, home: Home, ledger: Ledger, clock: MovingClock) -> None:
        super().__init__(home, ledger)
        self.clock = clock
        self.context = RuntimeContext(ledger, clock, home, self.sandboxes, lambda: self.keys)

    async def begin(self, session: str, tool: str, wake: str = "") -> ToolCall:
        call = ToolCall(
            self.context, await self.load(session), new_id("toolu_"), TOOLS[tool], NO_SANDBOX, frozenset(IMPLEMENTATIONS)
        )
        call.origin = CallOrigin(wake=wake)
        return call

    async def prepare(self, session: str, tool: str, **arguments: Any) -> tuple[ToolCall, Any, Preparation]:
        call = await self.begin(session, tool, arguments.pop("wake", ""))
        parsed = msgspec.convert(arguments, TOOLS[tool].parameters)
        return call, parsed, await IMPLEMENTATIONS[tool].prepare(call, parsed)

    async def finish(self, prepared: tuple[ToolCall, Any, Preparation]) -> Mapping[str, Any]:
        call, arguments, preparation = prepared
        result = await IMPLEMENTATIONS[call.definition.name].run(call, arguments, preparation)
        assert set(result.output) == set(call.definition.output)
        await self.commit(call, result)
        return result.output

    async def start_in(self, network: Network, name: str) -> str:
        """A session whose environment has this network."""
        chosen = await define(self.context, f"net-{network}", Environment(network=network), by="anna")
        return await self.start(name, environment=chosen.name, environment_version=chosen.version)

    async def learn(self, session: str, *items: Any, wake: str = "wake_1") -> LearningPlan:
        """Commit the learnings of a directive as the end of a wake does."""
        loaded = await self.load(session)
        plan = await plan_learnings(self.context, loaded, items, wake=wake)
        decision = SessionDecision(None, events=plan.events, linked=plan.linked, requests=plan.requests)
        if plan.linked:
            await self.context.unit.commit(loaded, decision)
        return plan

    async def answer(self, plan: LearningPlan, option: str, number: int = 0) -> None:
        inbox = Inbox(self.ledger, clock=self.clock)
        await inbox.answer(plan.requests[number].id, option, by="person:anna", channel="cli")

    async def wake(self, session: str) -> None:
        """What a wake does first."""
        await commit_promotions(self.context, await self.load(session))

    async def append(self, session: str, type_: str, **body: Any) -> None:
        decision = SessionDecision(None, events=(NewEvent(type=type_, body=body),))
        await self.context.unit.update(session, lambda _: decision)

    async def events(self, session: str, type_: str) -> tuple[Event, ...]:
        return await self.ledger.events(session, types=(type_,))

    async def memory_text(self) -> str:
        """What MEMORY.md contains now; empty if there is none."""
        substrate = await self.substrate()
        version = (await substrate.load("MEMORY.md")).version
        return "" if version is None else (await substrate.load_content(version)).decode()
