"""A stage for scenarios: a runtime with real sandboxes, a scripted model and a person who sends and answers.

A scenario is a row: what people do, what the model replies turn by turn, and what must be on record afterwards. The wakes that
are due are carried out after each thing that a person does: one by one, or, with `workers`, by workers beside the test.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from fidelio.clock import now_ms
from fidelio.home import Home
from fidelio.ledger import open_ledger
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.long_text import load_text
from fidelio.ledger.model import Completion, Event
from fidelio.providers.model import ModelReply, ModelRequest, TextBlock, ToolResultBlock, ToolUseBlock
from fidelio.providers.registry import Providers
from fidelio.providers.scripted import ScriptedProvider
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import parse_agent
from fidelio.runtime.agents.versions import define_agent
from fidelio.runtime.ports import RuntimePorts
from fidelio.runtime.record import RuntimeRecord, RuntimeRecords
from fidelio.runtime.service import NewAgentSession, RuntimeService
from fidelio.runtime.skills.roots import list_default_roots
from fidelio.runtime.specs import build_spec
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.runtime.wakes.record import JOB_KINDS, OpenCall
from fidelio.runtime.wakes.rules import NothingDue, plan_wake
from fidelio.runtime.wakes.wake import WakeRunner
from fidelio.runtime.wakes.worker import Worker, keep_working
from fidelio.sandbox.host.client import LocalSandboxes
from fidelio.sandbox.host.pool import LaunchedProcess, SandboxPool
from fidelio.sandbox.levels import detect_level
from fidelio.sandbox.model import LevelReport, SandboxSpec
from fidelio.sandbox.port import Sandboxes
from fidelio.sandbox.process import SandboxProcess
from tests.runtime.support import KEYS
from tests.support.parts import require_part

AGENT = "helper"
PERSON = "person:anna"
LEASE_MS = 30_000
# No scenario takes as long as this.
TIMEOUT_SECONDS = 30.0
MAX_WAKES = 30


class Clock:
    """The time, which can be moved on."""

    def __init__(self) -> None:
        self._moved = 0

    def __call__(self) -> int:
        return now_ms() + self._moved

    def move(self, seconds: float) -> None:
        self._moved += int(seconds * 1000)


class StageTurn:
    """What the model is asked: the request, and the stage on which it plays."""

    def __init__(self, stage: Stage, request: ModelRequest) -> None:
        self.stage, self.request = stage, request

    @property
    def results(self) -> list[dict[str, Any]]:
        """The results of all tool calls so far."""
        return [read_block(block) for block in list_results(self.request)]

    @property
    def last(self) -> dict[str, Any]:
        return self.results[-1]


StageReply: TypeAlias = ModelReply | Callable[[StageTurn], ModelReply | Awaitable[ModelReply]]
StageAction: TypeAlias = Callable[["Stage"], Awaitable[None]]
StageCheck: TypeAlias = Callable[["Stage"], Awaitable[None]]


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A row. `does`: what people do. `model`: the turns of the model. `expects`: what must be on record afterwards.

    `agent` is the definition of the agent, in which nothing about permissions is set: every gate is at its default.
    """

    id: str
    does: tuple[StageAction, ...]
    model: tuple[StageReply, ...]
    expects: tuple[StageCheck, ...]
    agent: Mapping[str, Any] = msgspec.field(default_factory=dict)
    workers: int = 0


class StageCallResult(msgspec.Struct, frozen=True):
    """A tool call on record with its result."""

    name: str
    output: dict[str, Any]
    is_error: bool


class Stage:
    """One agent in a home of its own."""

    def __init__(self, stack: AsyncExitStack, home: Home, sandboxes: Sandboxes, workers: int = 0) -> None:
        self._stack, self._home, self._sandboxes = stack, home, sandboxes
        self.clock, self.workers = Clock(), workers
        self.sessions: list[str] = []
        self.requests: list[ModelRequest] = []
        self.scripts: dict[str, list[StageReply]] = {}
        # What sessions reply that the agent itself has begun.
        self.children: list[StageReply] = []

    async def open(self) -> None:
        """Open the ledger of the home; a second time it is as if another process went on."""
        ledger = await self._stack.enter_async_context(await open_ledger(str(self._home.ledger), clock=self.clock))
        ledger.record_type = lambda kind: RuntimeRecords() if kind == "runtime" else None
        models = Providers({"scripted": ScriptedProvider(self.answer)})
        ports = RuntimePorts(models=models, skill_roots=partial(list_default_roots, self._home))
        self.context = RuntimeContext(ledger, self.clock, self._home, self._sandboxes, lambda: KEYS, ports)
        self.service, self.runner = RuntimeService(self.context), WakeRunner(self.context)

    def start_worker(self) -> AbstractAsyncContextManager[Worker]:
        return keep_working(self.runner)

    @property
    def session(self) -> str:
        """The session in which the scenario goes on."""
        return self.sessions[-1]

    @property
    def project(self) -> str:
        return str(self.context.home.path.parent / "project")

    @property
    def own_requests(self) -> list[ModelRequest]:
        return [request for request in self.requests if request.conversation == self.session and not request.force_tool]

    async def define(self, **definition: Any) -> None:
        given = parse_agent({"model": "scripted:test", **definition}, "The agent")
        await define_agent(self.context, self.project, AGENT, given, by=PERSON)

    async def begin(self, script: Sequence[StageReply] = ()) -> str:
        """Begin another session of the agent, in which the scenario goes on."""
        self.sessions.append(await self.service.start_session(NewAgentSession(project=self.project, agent=AGENT)))
        self.scripts[self.session] = list(script)
        return self.session

    async def send(self, event: Mapping[str, Any], session: str = "") -> Event:
        (sent,) = await self.service.send(session or self.session, (event,), by=PERSON, channel="cli")
        return sent

    async def settle(self) -> None:
        """Wait until nothing is due any more."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await (self._wait_for_rest() if self.workers else self._work())

    async def _work(self) -> None:
        for _ in range(MAX_WAKES):
            lease = await self.context.ledger.claim("worker", JOB_KINDS, lease_ms=LEASE_MS)
            if lease is None:
                return
            assignment = Assignment(self.context.ledger, lease)
            await self.runner.run(assignment)
            if not assignment.is_settled:
                await self.context.ledger.settle(lease, Completion())
        raise AssertionError(f"more than {MAX_WAKES} wakes were due")

    async def _wait_for_rest(self) -> None:
        """Follow the ledger until every session of the scenario rests."""
        position = await self.context.ledger.wait(after=-1, timeout=0)
        while not await self._is_at_rest():
            position = await self.context.ledger.wait(after=position, timeout=TIMEOUT_SECONDS)

    async def _is_at_rest(self) -> bool:
        plans = [plan_wake(await self.record(session), now=self.clock()) for session in self.sessions]
        return all(isinstance(plan, NothingDue) for plan in plans)

    async def answer(self, request: ModelRequest) -> ModelReply:
        """The reply of the model: the next one of the session's script, and then that it is done."""
        self.requests.append(request)
        script = self.scripts.setdefault(request.conversation, list(self.children))
        reply = script.pop(0) if script else say("Done.")
        if isinstance(reply, ModelReply):
            return reply
        made = reply(StageTurn(self, request))
        return await made if inspect.isawaitable(made) else made

    async def record(self, session: str = "") -> RuntimeRecord:
        return (await self.context.unit.load(session or self.session)).record

    async def blocking(self) -> tuple[OpenCall, ...]:
        return (await self.record()).wakes.blocking

    async def events(self, *types: str, session: str = "") -> tuple[Event, ...]:
        return await self.context.ledger.events(session or self.session, types=types, limit=1_000)

    async def calls(self, session: str = "") -> list[StageCallResult]:
        """The tool calls of a session in the order in which the model made them, with their results."""
        ends = {event.body["tool_use_id"]: event.body for event in await self.events(e.TOOL_RESULT, session=session)}
        uses = [event.body for event in await self.events(e.TOOL_USE, session=session)]
        return [await self._read_call(use, ends[use["id"]]) for use in uses]

    async def _read_call(self, use: Mapping[str, Any], end: Mapping[str, Any]) -> StageCallResult:
        text = await load_text(self.context.ledger, end["result"])
        return StageCallResult(use["name"], msgspec.json.decode(text), end["is_error"])

    async def messages(self, session: str = "") -> list[str]:
        """The messages of the agent."""
        return [event.body["content"][0]["text"] for event in await self.events(e.AGENT_MESSAGE, session=session)]

    async def read_file(self, path: str, session: str = "") -> str | None:
        """The content of a file as the sandbox sees it; None if there is none."""
        loaded = await self.context.unit.load(session or self.session)
        spec = await build_spec(self.context, loaded)
        result = await self.context.sandboxes.call(spec, "read_text", {"path": path})
        return str(result.output["content"]) if result.ok else None


def say(text: str, **directive: Any) -> ModelReply:
    """A reply that is only a text, with a directive at its end."""
    end = f"\n<fidelio-loop>{msgspec.json.encode({'outcome': 'sleep', **directive}).decode()}</fidelio-loop>"
    return ModelReply(content=(TextBlock(text + end),), stop_reason="end_turn")


def call(tool: str, **arguments: Any) -> ModelReply:
    """A reply that calls one tool."""
    return call_all((tool, arguments))


def call_all(*calls: tuple[str, Mapping[str, Any]], text: str = "") -> ModelReply:
    """A reply that calls tools side by side."""
    blocks = [ToolUseBlock(f"call_{number}", name, arguments) for number, (name, arguments) in enumerate(calls)]
    return ModelReply(content=(*([TextBlock(text)] if text else []), *blocks), stop_reason="tool_use")


def list_results(request: ModelRequest) -> list[ToolResultBlock]:
    return [block for message in request.messages for block in message.content if isinstance(block, ToolResultBlock)]


def read_block(block: ToolResultBlock) -> dict[str, Any]:
    """The result as the model reads it: JSON of a tool of ours, or the text of a custom tool."""
    text = "".join(part.text for part in block.content if isinstance(part, TextBlock))
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return {"text": text}


def list_texts(request: ModelRequest) -> str:
    """Everything that the user side of a conversation says, apart from results of tools."""
    blocks = [block for message in request.messages if message.role == "user" for block in message.content]
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


@cache
def read_level() -> LevelReport:
    return detect_level()


def require_commands() -> None:
    """Skip or fail the test where sandboxes run no commands."""
    report = read_level()
    if not report.runs_commands:
        require_part("Isolation for commands", f"{report.reason} {report.remedy}")


async def _start_sandbox(spec: SandboxSpec, _: AsyncExitStack) -> LaunchedProcess:
    process = await SandboxProcess.start(spec, read_level())
    return LaunchedProcess(process, read_level().level, process.pid)


@asynccontextmanager
async def open_sandboxes() -> AsyncIterator[Sandboxes]:
    """Real sandboxes in the process of the test, ended with it."""

    async def read() -> LevelReport:
        return read_level()

    pool = SandboxPool(_start_sandbox)
    yield LocalSandboxes(pool, read)
    await pool.close()


@asynccontextmanager
async def open_stage(directory: Path, sandboxes: Sandboxes, *, workers: int = 0) -> AsyncIterator[Stage]:
    """A stage. Its sandboxes are stopped afterwards."""
    (directory / "project").mkdir()
    async with AsyncExitStack() as stack:
        stage = Stage(stack, Home(directory / "home").ensure(), sandboxes, workers)
        await stage.open()
        for _ in range(workers):
            await stack.enter_async_context(stage.start_worker())
        yield stage
        for session in stage.sessions:
            await sandboxes.stop(session)
