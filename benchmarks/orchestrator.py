"""Benchmark of agent sessions with scripted agents: starting, reading, listing and deleting them.

python -m benchmarks orchestrator

The agents are scripted and live in this process, so that what is measured is the orchestrator.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import Figure
from benchmarks.mcp import FIDELIO, environment, handshake
from benchmarks.measure import interleaved, ratio, seconds_per_call
from fidelio.home import Home
from fidelio.ledger import open_ledger
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.registry import get_executors
from fidelio.orchestrator.record.model import StartAgent
from fidelio.orchestrator.record.record import AGENT_SAID
from fidelio.orchestrator.runs.host import AgentHost
from fidelio.orchestrator.service.service import AgentService
from fidelio.settings import AgentLimits

STARTS = 300
TOGETHER = 200
SAYINGS = 5
FEW, MANY = 100, 10_000
DELETED = 1_000
READ_FROM = 1_000
ROUNDS = 9
# Concurrent calls of a client.
AT_ONCE = 32


class BenchmarkBlueprints:
    """Two blueprints: an agent that answers at once, and `talker`, which says several things first."""

    def get(self, name: str, _: Path) -> Blueprint:
        steps = [{"say": f"{number}"} for number in range(SAYINGS)] if name == "talker" else []
        pause = [{"pause": 0.5}] if name == "talker" else []
        script = {"turns": [[*steps[:1], *pause, *steps[1:], {"result": "{prompt}"}]]}
        return Blueprint(name=name, description="", executor="scripted", options={"script": script})


@asynccontextmanager
async def orchestrator() -> AsyncIterator[AgentService]:
    with tempfile.TemporaryDirectory() as place:
        home = Home(Path(place) / "home").ensure()
        limits = AgentLimits(per_project=TOGETHER, total=TOGETHER)
        async with await open_ledger(home.ledger) as ledger:
            yield AgentService(ledger, BenchmarkBlueprints(), get_executors(), home=home, project=place, limits=limits)


async def in_groups(names: Sequence[str], call: Callable[[str], Awaitable[object]]) -> None:
    for first in range(0, len(names), AT_ONCE):
        await asyncio.gather(*(call(name) for name in names[first : first + AT_ONCE]))


async def start_all(service: AgentService, names: Sequence[str], blueprint: str = "echo") -> None:
    await in_groups(names, lambda name: service.start(StartAgent(name=name, prompt=name, blueprint=blueprint)))


async def starts() -> list[Figure]:
    """From the call that starts a session to the end of its run, all of them."""
    async with orchestrator() as service, AgentHost(service.context):
        names = [f"s{number}" for number in range(STARTS)]
        await start_all(service, ["warm"])
        await service.wait(["warm"], seconds=30)
        began = time.perf_counter()
        await start_all(service, names)
        sessions = await service.wait(names, mode="all", seconds=120)
        taken = time.perf_counter() - began
        unfinished = sum(session.run.state != "succeeded" for session in sessions)
        one_by_one = await seconds_per_call(
            50, lambda number: service.start(StartAgent(name=f"t{number}", prompt="x", blueprint="echo"))
        )
    return [
        Figure(name="scripted sessions started and ended", value=STARTS / taken, unit="/s", at_least=50),
        Figure(name="of these not ended well", value=unfinished, unit="", at_most=0),
        Figure(name="start acknowledged, median", value=one_by_one * 1000, unit="ms", at_most=50),
    ]


async def together() -> list[Figure]:
    async with orchestrator() as service, AgentHost(service.context):
        names = [f"s{number}" for number in range(TOGETHER)]
        began = time.perf_counter()
        await start_all(service, names, "talker")
        await service.wait(names, mode="all", seconds=120)
        taken = time.perf_counter() - began
        lost = 0
        for name in names:
            said = [event for event in await service.events(name) if event.type == AGENT_SAID]
            lost += SAYINGS - len(said)
    return [
        Figure(name=f"{TOGETHER} sessions at once: events lost", value=lost, unit="", at_most=0),
        Figure(name=f"{TOGETHER} sessions at once: all ended after", value=taken, unit="s"),
    ]


async def first_page(service: AgentService) -> float:
    return await seconds_per_call(20, lambda _: service.list(limit=50))


async def pages() -> list[Figure]:
    async with orchestrator() as few, orchestrator() as many:
        await start_all(few, [f"s{number}" for number in range(FEW)])
        await start_all(many, [f"s{number}" for number in range(MANY)])
        found = await interleaved(ROUNDS, {"few": lambda: first_page(few), "many": lambda: first_page(many)})
    return [
        Figure(
            name=f"first page of {MANY} over that of {FEW}", value=ratio(found["many"], found["few"]), unit="x", at_most=1.5
        ),
        Figure(name=f"first page of {MANY}, median", value=median(found["many"]) * 1000, unit="ms", at_most=20),
    ]


async def reads_and_deletion() -> list[Figure]:
    async with orchestrator() as service, AgentHost(service.context):
        names = [f"s{number}" for number in range(READ_FROM)]
        await start_all(service, names)
        await service.wait(names, mode="all", seconds=120)
        reads = {
            "status": lambda number: service.find(names[number]),
            "result": lambda number: service.result(names[number]),
            "list": lambda _: service.list(limit=50),
            "events": lambda number: service.events(names[number]),
        }
        taken = {name: await seconds_per_call(50, read) * 1000 for name, read in reads.items()}
        began = time.perf_counter()
        deleted = await service.delete_all()
        deletion = time.perf_counter() - began
        assert deleted.count == DELETED
    figures = [
        Figure(name=f"{name} with {READ_FROM} sessions, median", value=ms, unit="ms", at_most=10) for name, ms in taken.items()
    ]
    return [*figures, Figure(name=f"{DELETED} sessions deleted in", value=deletion, unit="s", at_most=1)]


# Over stdio: a client that asks a server which has all these sessions


class Client:
    """A minimal client with a server of its own."""

    def __init__(self, home: Path, project: Path) -> None:
        command = [*FIDELIO, "--toolset", "orchestrator"]
        self.server = subprocess.Popen(
            command, cwd=project, env=environment(str(home)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._say(handshake())

    async def call(self, tool: str, **arguments: str) -> None:
        message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        reply = self._say(json.dumps(message).encode() + b"\n")
        assert not reply["result"].get("isError"), reply

    def _say(self, line: bytes) -> dict[str, Any]:
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(line)
        self.server.stdin.flush()
        return dict(json.loads(self.server.stdout.readline()))


async def over_stdio() -> list[Figure]:
    async with orchestrator() as service:
        async with AgentHost(service.context):
            names = [f"s{number}" for number in range(READ_FROM)]
            await start_all(service, names)
            await service.wait(names, mode="all", seconds=120)
        client = Client(service.context.home.path, Path(service.context.project))
        with client.server:
            reads = {
                "get_agent_session_status": lambda number: client.call("get_agent_session_status", session_name=names[number]),
                "get_agent_session_result": lambda number: client.call("get_agent_session_result", session_name=names[number]),
                "list_agent_sessions": lambda _: client.call("list_agent_sessions", response_format="json"),
            }
            taken = {name: await seconds_per_call(50, read) * 1000 for name, read in reads.items()}
    return [Figure(name=f"{name} over stdio, median", value=ms, unit="ms", at_most=10) for name, ms in taken.items()]


async def measure() -> list[Figure]:
    return [*await starts(), *await together(), *await pages(), *await reads_and_deletion(), *await over_stdio()]


def main() -> list[Figure]:
    return asyncio.run(measure())
