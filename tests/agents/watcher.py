"""A host in a process of its own, for tests that kill it: `python -m tests.agents.watcher FILE`, a pickled harness and turn.

It prints a line for each thing a test may wait for.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

from fidelio.orchestrator.executors.contract import AgentQuestion, Reply, Turn
from fidelio.processes.spooled import find_marked
from fidelio.processes.table import ProcessIdentity
from tests.agents.bench import Harness
from tests.agents.model import SECONDS
from tests.orchestrator.executors.recording import RecordingReporter

REPOSITORY = Path(__file__).parents[2]


class Printing(RecordingReporter):
    async def report_tool_call(self, call: str, tool: str, arguments: Any = None) -> None:
        await super().report_tool_call(call, tool, arguments)
        sys.stdout.write("called\n")
        sys.stdout.flush()

    async def ask(self, question: AgentQuestion) -> Reply:
        sys.stdout.write("asked\n")
        sys.stdout.flush()
        return await super().ask(question)


async def left_behind(harness: Harness, turn: Turn, *, until: str) -> ProcessIdentity:
    """An agent whose watcher was killed when it had printed `until`."""
    file = turn.spool.with_name(f"{turn.run}.pickle")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(pickle.dumps((harness, turn)))
    command = (sys.executable, "-m", "tests.agents.watcher", str(file))
    watcher = await asyncio.create_subprocess_exec(*command, cwd=REPOSITORY, stdout=PIPE)
    assert watcher.stdout is not None
    async with asyncio.timeout(SECONDS):
        while (line := await watcher.stdout.readline()) != f"{until}\n".encode():
            assert line, "the watcher has ended"
        watcher.kill()
        await watcher.wait()
    return find_marked(turn.run)[0]


async def main(harness: Harness, turn: Turn) -> None:
    await harness.executor().carry_out(turn, Printing())


if __name__ == "__main__":
    asyncio.run(main(*pickle.loads(Path(sys.argv[1]).read_bytes())))
