"""Benchmark of runtime sessions: a command of the shell with its two commits, the projection, and the list of tools.

python -m benchmarks runtime

CPU of this process, which is caller and host at once, and of the sandbox, measured in the sandbox's own process tree.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.figures import Figure
from benchmarks.measure import interleaved, ratio
from fidelio.app.sandboxes import host_sandboxes, open_sandboxes
from fidelio.clock import now_ms
from fidelio.home import Home
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.runtime.service import RuntimeContext, RuntimeService, SessionRequest
from fidelio.runtime.tools.definitions import SANDBOX_TOOLS
from fidelio.sandbox.commands.projection import project
from fidelio.settings import Settings
from fidelio.tokens.keyring import open_keys
from fidelio.toolkit import input_schema

ROUNDS = 9
CALLS = 40
MANY = 1_000
COMMANDS = ("cat a", "ls -la", "sed -n '10,20p' f", "grep -rn foo src", "find . -name '*.py'", "make && rm -rf x")


@asynccontextmanager
async def open_runtime(directory: str, sessions: int = 0) -> AsyncIterator[tuple[RuntimeService, str]]:
    """A runtime with one session that may run commands, beside many others in the ledger."""
    home = Home(Path(directory) / "home").ensure()
    settings = Settings(home, str(home.ledger))
    async with await open_ledger(settings.ledger) as ledger, host_sandboxes(home):
        await _fill(ledger, sessions)
        sandboxes = open_sandboxes(settings)
        service = RuntimeService(RuntimeContext(ledger, now_ms, home, sandboxes, lambda: open_keys(home.keys)))
        session = await service.open_session(SessionRequest(project=directory))
        await service.set_policy(session, "shell_exec", "always_allow", by="person:bench")
        await service.call(session, "shell_exec", {"command": "true"})
        yield service, session
        await sandboxes.stop(session)
        await sandboxes.close()


async def _fill(ledger: Ledger, sessions: int) -> None:
    events = tuple(NewEvent(type="note", body={"number": number}) for number in range(5))
    for first in range(0, sessions, 100):
        numbers = range(first, min(first + 100, sessions))
        create = NewSession(kind="runtime", namespace="bench")
        await ledger.commit(*(Change(session=f"s_bench{number}", create=create, events=events) for number in numbers))


async def cpu_per_call(service: RuntimeService, session: str, tool: str, arguments: dict[str, str]) -> float:
    """Milliseconds of CPU for a call: of this process, and of the process inside of the sandbox and its shell."""
    state = await service.context.sandboxes.state(session)
    assert state is not None
    before, began = _tree_ms(state.pid), time.process_time()
    for _ in range(CALLS):
        await service.call(session, tool, arguments)
    own = (time.process_time() - began) * 1000
    # The kernel adds the time of a process when it stops, which is a moment after its last reply.
    await asyncio.sleep(0.01)
    return (own + _tree_ms(state.pid) - before) / CALLS


def _tree_ms(pid: int) -> float:
    """CPU time of a process and all below it. In nanoseconds of the scheduler: a round takes only a few ticks of the clock."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6 + sum(_tree_ms(int(child)) for child in children)


async def measure_calls() -> list[Figure]:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as many:
        async with open_runtime(one) as (alone, first), open_runtime(many, MANY) as (beside, second):

            async def execute(service: RuntimeService, session: str) -> float:
                return await cpu_per_call(service, session, "shell_exec", {"command": "true"})

            async def read(service: RuntimeService, session: str) -> float:
                return await cpu_per_call(service, session, "read", {"path": "/etc/hostname"})

            found = await interleaved(
                ROUNDS,
                {
                    "exec": lambda: execute(alone, first),
                    "exec beside": lambda: execute(beside, second),
                    "read": lambda: read(alone, first),
                    "read beside": lambda: read(beside, second),
                },
            )
    return [
        Figure(name="shell_exec true, open shell", value=median(found["exec"]), unit="ms CPU", at_most=3.0),
        Figure(name="... best round", value=min(found["exec"]), unit="ms CPU"),
        Figure(name="read of a small file", value=median(found["read"]), unit="ms CPU"),
        Figure(
            name=f"shell_exec at {MANY:,} sessions", value=ratio(found["exec beside"], found["exec"]), unit="x 1", at_most=1.3
        ),
        Figure(name=f"read at {MANY:,} sessions", value=ratio(found["read beside"], found["read"]), unit="x 1", at_most=1.3),
    ]


def measure_projection() -> float:
    """Milliseconds of CPU for the projection of a command."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(100):
            for command in COMMANDS:
                project(command, "/workspace")
        rounds.append((time.process_time() - began) * 1000 / 100 / len(COMMANDS))
    return median(rounds)


def count_characters() -> int:
    """Characters of the tool list that a model reads: names, descriptions, schemas of the parameters."""
    schemas = (msgspec.json.encode(input_schema(tool.parameters)) for tool in SANDBOX_TOOLS)
    return sum(len(tool.name) + len(tool.description) for tool in SANDBOX_TOOLS) + sum(map(len, schemas))


def main() -> list[Figure]:
    return [
        *asyncio.run(measure_calls()),
        Figure(name="projection of a command", value=measure_projection(), unit="ms CPU", at_most=0.2),
        Figure(name="tool list of the sandbox", value=count_characters(), unit="characters", at_most=14_000),
    ]
