"""Benchmark of wakes: an activation without model and sandbox, a tool round, many sessions due at once, and what is sent first.

python -m benchmarks wakes

The model is scripted and answers at once. CPU is that of this process, in rounds that alternate between the two cases
of a ratio. Many sessions are copies of a real sleeping one, written by the ledger itself.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.figures import Figure
from benchmarks.mcp import environment
from benchmarks.measure import interleaved, ratio
from fidelio.clock import now_ms
from fidelio.home import Home
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, NewEvent, NewJob, NewSession
from fidelio.providers.model import ModelReply, ModelRequest, TextBlock, ToolUseBlock
from fidelio.providers.registry import Providers
from fidelio.providers.scripted import ScriptedProvider
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import AgentDefinition, Budget
from fidelio.runtime.agents.versions import define_agent
from fidelio.runtime.ports import RuntimePorts
from fidelio.runtime.record import RuntimeRecords
from fidelio.runtime.service import NewAgentSession, RuntimeContext, RuntimeService
from fidelio.runtime.tools.definitions import RUNTIME_TOOLS
from fidelio.runtime.wakes.record import DAY_MS, WAKE_JOB, WAKE_KEY
from fidelio.runtime.wakes.wake import WakeRunner
from fidelio.runtime.wakes.worker import Worker
from fidelio.sandbox.host.client import SandboxClient
from fidelio.tokens.keyring import FixedKeys
from fidelio.toolkit import input_schema

ROUNDS = 7
WAKES = 20
TURNS = 20
FEW, MANY = 10, 100_000
SERVED = 30
DUE = 200
_BATCH = 500
_WORDS = (
    *("river", "mountain", "deploy", "invoice", "customer", "parser"),
    *("timeout", "checklist", "harbour", "printer", "schema", "release"),
)


class Bench:
    """A runtime with a scripted model, beside some number of sleeping sessions."""

    def __init__(self, context: RuntimeContext, requests: list[ModelRequest]) -> None:
        self.context, self.requests = context, requests
        self.service = RuntimeService(context)
        self.runner = WakeRunner(context)
        self.session = ""

    async def start(self) -> str:
        return await self.service.start_session(NewAgentSession(project="/bench", agent="bench"))

    async def wake(self, text: str) -> None:
        content = [{"type": "user.message", "content": text}]
        await self.service.send(self.session, content, by="person:bench", channel="cli")
        await self.carry_out()

    async def carry_out(self) -> None:
        from fidelio.ledger.jobs import Assignment  # noqa: PLC0415  # only here

        lease = await self.context.ledger.claim("bench", (WAKE_JOB,), lease_ms=60_000, session=self.session)
        assert lease is not None
        await self.runner.run(Assignment(self.context.ledger, lease))


def _reply(request: ModelRequest) -> ModelReply:
    """Call a tool as often as the message says, then answer."""
    texts = [block.text for block in request.messages[-1].content if isinstance(block, TextBlock)]
    asked = next((text for text in texts if text.startswith("rounds ")), "")
    done = sum(isinstance(block, ToolUseBlock) for message in request.messages for block in message.content)
    if asked or (done % TURNS and not texts):
        return ModelReply(content=(ToolUseBlock(f"c{done}", "memory_list", {}),), stop_reason="tool_use")
    return ModelReply(content=(TextBlock("Done."),), stop_reason="end_turn")


@asynccontextmanager
async def open_bench(directory: str, sessions: int) -> AsyncIterator[Bench]:
    home = Home(Path(directory) / f"home{sessions}").ensure()
    requests: list[ModelRequest] = []

    def reply(request: ModelRequest) -> ModelReply:
        requests.append(request)
        return _reply(request)

    async def refuse() -> None:
        raise AssertionError("no wake of this benchmark needs a sandbox")

    async with await open_ledger(str(home.ledger)) as ledger:
        ports = RuntimePorts(models=Providers({"scripted": ScriptedProvider(reply)}))
        sandboxes = SandboxClient(home, refuse)
        context = RuntimeContext(ledger, now_ms, home, sandboxes, lambda: FixedKeys(b"k" * 32), ports)
        bench = Bench(context, requests)
        limits = Budget(tokens=0, wakes_per_day=0)
        await define_agent(context, "/bench", "bench", AgentDefinition(model="scripted:bench", limits=limits), by="bench")
        bench.session = await bench.start()
        await bench.wake("hello")
        await _copy(bench, sessions)
        yield bench


async def _copy(bench: Bench, count: int) -> None:
    """Sleeping sessions of the same agent, each with a few events that recall can find."""
    ledger = bench.context.ledger
    kept = (await ledger.session(bench.session)).raw
    record = RuntimeRecords().read(kept)
    create = NewSession(kind="runtime", namespace="runtime:/bench")
    for first in range(0, count, _BATCH):
        changes = []
        for number in range(first, min(first + _BATCH, count)):
            text = f"{_WORDS[number % 12]} {_WORDS[number % 7]} number{number}"
            events = (
                NewEvent(type=e.STARTED, body={"agent": "bench", "project": "/bench"}),
                NewEvent(type=e.USER_MESSAGE, body={"content": [{"type": "text", "text": text}]}),
                NewEvent(
                    type=e.AGENT_MESSAGE, body={"content": [{"type": "text", "text": f"Done with {text}."}], "wake_id": "w"}
                ),
            )
            after = msgspec.structs.replace(record, seq=3)
            session = f"s_b{number}"
            wake = NewJob(kind=WAKE_JOB, session=session, key=WAKE_KEY, due=now_ms() + DAY_MS)
            changes.append(Change(session=session, create=create, events=events, record=after, status="idle", jobs=(wake,)))
        await ledger.commit(*changes)
    await ledger.update_index()


async def cpu_per_wake(bench: Bench) -> float:
    """CPU of a wake of a young session: a long conversation costs what its length does, whatever the runtime.

    With the indexing of what was written: the thread of the ledger does it a moment later, and the CPU of this process would
    count it for whatever is measured then.
    """
    bench.session = await bench.start()
    began = time.process_time()
    for number in range(WAKES):
        await bench.wake(f"the {_WORDS[number % 12]} of number{number}")
    await bench.context.ledger.update_index()
    return (time.process_time() - began) * 1000 / WAKES


async def cpu_per_round(bench: Bench) -> float:
    """CPU of a round of one tool call, beyond the tool, which only lists names."""
    bench.session = await bench.start()
    began = time.process_time()
    await bench.wake("rounds please")
    await bench.context.ledger.update_index()
    whole = (time.process_time() - began) * 1000
    began = time.process_time()
    await bench.wake("no tools")
    await bench.context.ledger.update_index()
    return (whole - (time.process_time() - began) * 1000) / TURNS


async def start_many(bench: Bench) -> float:
    """Seconds from the commit that makes 200 sessions due until the last wake has begun, with two workers."""
    ledger = bench.context.ledger
    sessions = [await bench.start() for _ in range(DUE)]
    workers = [Worker(WakeRunner(bench.context)) for _ in range(2)]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    position = await ledger.wait(after=-1, timeout=0)
    message = NewEvent(type=e.USER_MESSAGE, body={"content": [{"type": "text", "text": "go"}]}, actor="person:bench")
    jobs = [NewJob(kind=WAKE_JOB, session=session, key=WAKE_KEY) for session in sessions]
    began = time.monotonic()
    await ledger.commit(*(Change(session=job.session, events=(message,), jobs=(job,)) for job in jobs))
    started = 0
    async with asyncio.timeout(60):
        async for event in ledger.follow(after=position, types=(e.STATUS_RUNNING,)):
            started += event.session in sessions
            if started == DUE:
                break
    seconds = time.monotonic() - began
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    return seconds


async def measure_server(bench: Bench) -> float:
    """MB that a server has for itself after it has carried out wakes beside the sessions of the bench, which all sleep."""
    home = bench.context.home.path
    command = [sys.executable, "-m", "fidelio", "up", "--port", "0", "--no-token"]
    out, quiet, environ = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL, environment(str(home))
    server = await asyncio.create_subprocess_exec(*command, stdout=out, stderr=quiet, env=environ)
    assert server.stdout is not None
    try:
        await server.stdout.readline()
        for number in range(SERVED):
            await _let_wake(bench, await bench.start(), f"the {_WORDS[number % 12]} of number{number}")
        return _read_own_memory(server.pid)
    finally:
        server.terminate()
        await server.wait()


def _read_own_memory(pid: int) -> float:
    """MB of a process that it shares with no other."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    return int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) / 1024


async def _let_wake(bench: Bench, session: str, text: str) -> None:
    """Send a message and wait until another process has carried out the wake. Its model is unknown there, which ends it."""
    content = [{"type": "user.message", "content": text}]
    await bench.service.send(session, content, by="person:bench", channel="cli")
    async with asyncio.timeout(60):
        async for event in bench.service.follow(session):
            if event.type == e.STATUS_IDLE:
                return


def count_first_request(requests: Sequence[ModelRequest]) -> int:
    """Characters of the first request of an empty agent: system text, tools and the message."""
    first = requests[0]
    tools = sum(len(tool.name) + len(tool.description) + len(msgspec.json.encode(tool.input_schema)) for tool in first.tools)
    texts = sum(len(block.text) for message in first.messages for block in message.content if isinstance(block, TextBlock))
    return len(first.system) + tools + texts


def count_tools() -> int:
    return sum(
        len(tool.name) + len(tool.description) + len(msgspec.json.encode(input_schema(tool.parameters)))
        for tool in RUNTIME_TOOLS
    )


async def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        async with open_bench(directory, FEW) as few, open_bench(directory, MANY) as many:
            served = [await measure_server(bench) for bench in (few, many)]
            found = await interleaved(
                ROUNDS,
                {
                    "few": lambda: cpu_per_wake(few),
                    "many": lambda: cpu_per_wake(many),
                    "round": lambda: cpu_per_round(few),
                },
            )
            seconds = await start_many(few)
            first = count_first_request(few.requests)
    return [
        Figure(name="wake without model and sandbox", value=median(found["few"]), unit="ms CPU", at_most=15),
        Figure(name="... with 100,000 sessions", value=ratio(found["many"], found["few"]), unit="x 10", at_most=1.3),
        Figure(name="tool round beyond the tool", value=median(found["round"]), unit="ms CPU", at_most=3),
        Figure(name="200 sessions due at once, two workers: last start", value=seconds, unit="s", at_most=3),
        Figure(name="server memory, 10 sessions", value=served[0], unit="MB"),
        Figure(name="server memory, 100,000 sleeping sessions more", value=served[1] - served[0], unit="MB", at_most=5),
        Figure(name="first request of an empty agent", value=first, unit="characters", at_most=12_000),
        Figure(name="tool list of the runtime", value=count_tools(), unit="characters", at_most=30_000),
    ]


def main() -> list[Figure]:
    return asyncio.run(measure())
