"""An agent whose process outlives its host, without any process: the next host is given a part of its own to play."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from fidelio.orchestrator.executors.contract import Reporter, Turn, TurnResult
from fidelio.processes.table import ProcessIdentity
from tests.orchestrator.fakes import FakeExecutor, TurnFunction, echo

# Nobody has this number, so nobody is ever ended by it.
MISSING_PROCESS = ProcessIdentity(pid=2**30, started="never")


@dataclass
class AdoptingExecutor(FakeExecutor):
    """`again` is played by the host that adopts; `adopted` is everything it was asked to go on with."""

    again: TurnFunction = echo
    adopted: list[Turn] = field(default_factory=list)

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: Reporter) -> TurnResult | None:
        assert process == MISSING_PROCESS
        self.adopted.append(turn)
        return await self.again(turn, reporter)


@dataclass
class EndlessTurn:
    """A part that has a process, says so, and works until its host goes."""

    entered: asyncio.Event = field(default_factory=asyncio.Event)

    async def part(self, turn: Turn, reporter: Reporter) -> TurnResult:
        await reporter.report_process(MISSING_PROCESS)
        await reporter.report_conversation(turn.conversation or turn.fresh)
        self.entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def begun(self) -> None:
        async with asyncio.timeout(20):
            await self.entered.wait()
