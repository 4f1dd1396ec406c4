"""A runtime with a scripted model, for tests of wakes: what was sent, what the model saw, what is on record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from fidelio.home import Home
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.model import Event
from fidelio.providers.model import ModelInfo, ModelReply, ModelRequest, TextBlock, ToolResultBlock, ToolUseBlock
from fidelio.providers.registry import Providers
from fidelio.providers.scripted import ScriptedProvider
from fidelio.runtime.agents.definition import parse_agent
from fidelio.runtime.agents.versions import define_agent
from fidelio.runtime.ports import RuntimePorts
from fidelio.runtime.record import RuntimeRecord, RuntimeRecords
from fidelio.runtime.service import NewAgentSession, RuntimeService
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.runtime.wakes.model_calls import Timing
from fidelio.runtime.wakes.record import JOB_KINDS
from fidelio.runtime.wakes.wake import WakeRunner
from fidelio.sandbox.port import Sandboxes
from tests.runtime.support import KEYS, FakeSandboxes
from tests.support.ledgers import MovingClock

ModelBehaviour = Callable[[ModelRequest], ModelReply | Awaitable[ModelReply]]
PROJECT = "/project"
LEASE_MS = 30_000


def say(text: str, directive: Mapping[str, Any] | None = None) -> ModelReply:
    """A reply that is only a text, with a directive at its end."""
    end = f"\n<fidelio-loop>{msgspec.json.encode(directive).decode()}</fidelio-loop>" if directive is not None else ""
    return ModelReply(content=(TextBlock(text + end),), stop_reason="end_turn")


def use(*calls: tuple[str, Mapping[str, Any]], text: str = "") -> ModelReply:
    """A reply that calls tools."""
    blocks = [ToolUseBlock(f"call_{number}", name, arguments) for number, (name, arguments) in enumerate(calls)]
    return ModelReply(content=(*([TextBlock(text)] if text else []), *blocks), stop_reason="tool_use")


def replies(*scripted: ModelReply) -> ModelBehaviour:
    """A model that gives these replies in turn, and then says that it is done."""
    left = list(scripted)
    return lambda _: left.pop(0) if left else say("Done.", {"outcome": "sleep"})


class Runtime:
    """A runtime, and the worker that carries out its wakes one by one."""

    def __init__(self, context: RuntimeContext, clock: MovingClock, script: list[ModelBehaviour]) -> None:
        self.context, self.clock = context, clock
        self.service = RuntimeService(context)
        self.requests: list[ModelRequest] = []
        self.pauses: list[float] = []
        self.texts: list[str] = []
        self._script = script
        self.runner = WakeRunner(
            context, on_text=lambda _, text: self.texts.append(text), timing=Timing(self._sleep, lambda: 0.5)
        )

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.now += int(seconds * 1000)

    @property
    def ledger(self) -> Ledger:
        return self.context.ledger

    def script(self, script: ModelBehaviour) -> None:
        self._script[0] = script

    async def define(self, name: str = "helper", **definition: Any) -> None:
        given = parse_agent({"model": "scripted:test", **definition}, "The agent")
        await define_agent(self.context, PROJECT, name, given, by="person:test")

    async def start(self, *, agent: str = "helper", **more: Any) -> str:
        return await self.service.start_session(NewAgentSession(project=PROJECT, agent=agent, **more))

    async def begin(self, **definition: Any) -> str:
        """A session of a new agent."""
        await self.define(**definition)
        return await self.start()

    async def tell(self, session: str, text: str) -> Event:
        (event,) = await self.send(session, {"type": "user.message", "content": text})
        return event

    async def send(self, session: str, *events: Mapping[str, Any]) -> tuple[Event, ...]:
        return await self.service.send(session, events, by="person:test", channel="cli")

    async def work(self, *, most: int = 50) -> int:
        """Carry out every wake that is due; return how many jobs there were."""
        for number in range(most):
            lease = await self.ledger.claim("worker", JOB_KINDS, lease_ms=LEASE_MS)
            if lease is None:
                return number
            await self.run(Assignment(self.ledger, lease))
        raise AssertionError(f"more than {most} wakes were due")

    async def run(self, assignment: Assignment) -> None:
        await self.runner.run(assignment)
        if not assignment.is_settled:
            from fidelio.ledger.model import Completion

            await self.ledger.settle(assignment.lease, Completion())

    async def claim(self) -> Assignment:
        lease = await self.ledger.claim("worker", JOB_KINDS, lease_ms=LEASE_MS)
        assert lease is not None, "no wake is due"
        return Assignment(self.ledger, lease)

    async def record(self, session: str) -> RuntimeRecord:
        return RuntimeRecords().read((await self.ledger.session(session)).raw)

    async def events(self, session: str, *types: str) -> tuple[Event, ...]:
        return await self.ledger.events(session, types=types)

    async def types(self, session: str) -> list[str]:
        return [event.type for event in await self.events(session)]


def results_of(request: ModelRequest) -> list[ToolResultBlock]:
    return [block for message in request.messages for block in message.content if isinstance(block, ToolResultBlock)]


def texts_of(request: ModelRequest) -> str:
    return "\n".join(block.text for message in request.messages for block in message.content if isinstance(block, TextBlock))


@asynccontextmanager
async def open_runtime(
    path: Path,
    script: ModelBehaviour | None = None,
    *,
    sandboxes: Sandboxes | None = None,
    ledger: str = "",
    info: ModelInfo | None = None,
) -> AsyncIterator[Runtime]:
    clock = MovingClock(1_700_000_000_000)
    current: list[ModelBehaviour] = [script or replies()]
    home = Home(path / "home")
    home.ensure()
    holder: list[Runtime] = []

    async def reply(request: ModelRequest) -> ModelReply:
        holder[0].requests.append(request)
        made = current[0](request)
        return made if isinstance(made, ModelReply) else await made

    async with await open_ledger(ledger or str(home.ledger), clock=clock) as opened:
        ports = RuntimePorts(models=Providers({"scripted": _make_provider(reply, info)}))
        context = RuntimeContext(opened, clock, home, sandboxes or FakeSandboxes(), lambda: KEYS, ports)
        runtime = Runtime(context, clock, current)
        holder.append(runtime)
        yield runtime


def _make_provider(reply: ModelBehaviour, info: ModelInfo | None) -> ScriptedProvider:
    return ScriptedProvider(reply) if info is None else ScriptedProvider(reply, info=info)


def types_of(events: Sequence[Event]) -> list[str]:
    return [event.type for event in events]


WRITE = ("write", {"path": "a.txt", "content": "A"})
RUN = ("shell_run", {"command": "make"})


def make_sandboxes() -> FakeSandboxes:
    return FakeSandboxes(
        {
            "write_text": lambda given: {"path": given["path"], "bytes": 1},
            "read_text": lambda given: {"path": given["path"], "content": "A", "truncated": False},
            "run_shell": lambda given: {
                "commandId": given.get("commandId"),
                "status": "completed",
                "exitCode": 0,
                "stdout": "ok",
            },
        }
    )
