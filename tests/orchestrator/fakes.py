"""An orchestrator in miniature: blueprints from a dictionary, and agents whose part a test writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fidelio.errors import BlueprintNotFound
from fidelio.home import Home
from fidelio.ledger import Ledger
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.contract import Availability, Executor, Reporter, Turn, TurnResult
from fidelio.orchestrator.record.model import AgentSession, StartAgent
from fidelio.orchestrator.runs.host import AgentHost
from fidelio.orchestrator.service.service import AgentService
from fidelio.processes.table import ProcessIdentity
from fidelio.settings import AgentLimits

TIMEOUT_SECONDS = 20.0
TurnFunction = Callable[[Turn, Reporter], Awaitable[TurnResult]]
HIGH_LIMITS = AgentLimits(per_project=300, total=300, depth=3)


async def echo(turn: Turn, reporter: Reporter) -> TurnResult:
    await reporter.report_conversation(turn.conversation or turn.fresh)
    await reporter.report_message(turn.prompt)
    return TurnResult(text=turn.prompt)


@dataclass
class FakeExecutor:
    """An executor that plays what a test gives it, in this process. `turns` is everything it was asked to do."""

    part: TurnFunction = echo
    name: str = "actor"
    complaints: tuple[str, ...] = ()
    works: bool = True
    turns: list[Turn] = field(default_factory=list)

    async def availability(self, _: Mapping[str, str] | None = None, /) -> Availability:
        return Availability(works=self.works, why="It plays." if self.works else "It has lost its voice.")

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:  # noqa: ARG002  # it complains of all alike
        return self.complaints

    async def carry_out(self, turn: Turn, reporter: Reporter) -> TurnResult:
        self.turns.append(turn)
        return await self.part(turn, reporter)

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: Reporter) -> TurnResult | None:  # noqa: ARG002  # it has no process
        return None


@dataclass
class PausedTurn:
    """What an agent in a test waits for, so that the test decides when it goes on."""

    entered: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    left: list[str] = field(default_factory=list)

    async def part(self, turn: Turn, reporter: Reporter) -> TurnResult:
        try:
            await reporter.report_conversation(turn.conversation or turn.fresh)
            self.entered.set()
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.left.append(turn.run)
            raise
        await reporter.report_message(turn.prompt)
        return TurnResult(text=f"done: {turn.prompt}")


@dataclass
class FakeBlueprints:
    """Blueprints by name."""

    known: dict[str, Blueprint] = field(default_factory=dict)

    def add(self, name: str, **more: Any) -> None:
        self.known[name] = Blueprint(name=name, description=name, executor="actor", hash=f"hash of {name}", **more)

    def get(self, name: str, project: Path) -> Blueprint:  # noqa: ARG002  # the fake has one catalogue for all projects
        if name not in self.known:
            raise BlueprintNotFound(f"Agent not found: {name}.", remedy="Use `list_agent_blueprints`.")
        return self.known[name]


@dataclass
class OrchestratorHarness:
    """One home with its ledger, and the services of as many processes as a test imagines."""

    ledger: Ledger
    home: Home
    project: Path
    actor: FakeExecutor = field(default_factory=FakeExecutor)
    blueprints: FakeBlueprints = field(default_factory=FakeBlueprints)
    limits: AgentLimits = HIGH_LIMITS
    others: dict[str, Executor] = field(default_factory=dict)

    def service(self, **more: Any) -> AgentService:
        return AgentService(
            self.ledger,
            self.blueprints,
            {"actor": self.actor, **self.others},
            home=self.home,
            project=str(self.project),
            limits=self.limits,
            executor="actor",
            **more,
        )

    def host(self, service: AgentService | None = None, *, grace: float = 0.5) -> AgentHost:
        return AgentHost((service or self.service()).context, grace=grace)


async def wait_until_finished(service: AgentService, *names: str) -> tuple[AgentSession, ...]:
    """The sessions once all of them have finished, within bounds."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return await service.wait(names, mode="all", seconds=TIMEOUT_SECONDS)


async def start(service: AgentService, name: str, prompt: str = "Sing.", **more: Any) -> AgentSession:
    return await service.start(StartAgent(name=name, prompt=prompt, **more))


async def wait_until(service: AgentService, name: str, wanted: Callable[[AgentSession], bool]) -> AgentSession:
    """The session as soon as it is as wanted, whoever changes it."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        position = await service.context.ledger.wait(after=-1, timeout=0)
        while not wanted(found := await service.find(name)):
            position = await service.context.ledger.wait(after=position, timeout=TIMEOUT_SECONDS)
    return found
