"""Hosts and agents that are killed at any moment, again and again. `KILL_SEED=N` repeats a run that has failed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from fidelio.errors import RequestClosed
from fidelio.ids import session_of_run
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.audit import verify_session
from fidelio.orchestrator.record.model import AgentSession, StartAgent
from fidelio.orchestrator.record.record import AGENT_SAID, AgentRecord, decode_record, fold
from fidelio.orchestrator.runs.host_process import work_until_idle
from fidelio.orchestrator.service.service import AgentService
from fidelio.processes.table import iterate_processes
from tests.orchestrator.hosting_process import LOG, kill, real_service, spawn_host
from tests.support import proves

KINDS = ("singer", "steady-singer", "player", "steady-player", "indoors", "asking")


class KillLoop:
    """One home, in which everything is killed. `killed` are the runs whose agents were, `answered` what people chose."""

    def __init__(self, service: AgentService, chance: random.Random) -> None:
        self.service, self.chance = service, chance
        self.sessions: set[str] = set()
        self.killed: set[str] = set()
        self.answered: dict[str, str] = {}

    @property
    def project(self) -> Path:
        return Path(self.service.context.project)

    async def once(self, number: int) -> None:
        """A host takes over, gets more to do, and dies at some moment, and with it perhaps some agents."""
        host = await asyncio.to_thread(spawn_host, self.service.context.home.path, self.project)
        for kind in self.chance.sample(KINDS, 2):
            started = await self.service.start(StartAgent(name=f"{kind}-{number}", prompt="Sing.", blueprint=kind))
            self.sessions.add(started.id)
        await asyncio.sleep(self.chance.random() * 0.7)  # not for anything to happen: this is the random moment
        if self.chance.random() < 0.5:
            self.kill_an_agent()
        kill(host)
        if self.chance.random() < 0.8:
            await self.answer_everything()
        if self.chance.random() < 0.3:
            self.kill_an_agent()

    async def answer_everything(self) -> None:
        for found in await self.all():
            await self.answer(found)

    async def answer(self, found: AgentSession) -> None:
        if found.question is not None:
            option = self.chance.choice(("loud", "soft"))
            # Meanwhile the agent may have been found dead, and nobody wants to know any more.
            with suppress(RequestClosed):
                await self.service.answer(found.id, option=option, request=found.question, by="me", channel="cli")
                self.answered[found.run.id] = option

    async def bring_to_an_end(self) -> None:
        """Nothing is killed any more, and every question is answered."""
        async with asyncio.TaskGroup() as group:
            group.create_task(work_until_idle(self.service.context, idle_seconds=0.5))
            while running := [one.id for one in await self.all() if one.status == "running"]:
                for found in await self.service.wait(running, mode="all", seconds=5.0):
                    await self.answer(found)

    async def all(self) -> list[AgentSession]:
        return [await self.service.find(session) for session in sorted(self.sessions)]

    def kill_an_agent(self) -> None:
        mine = [entry for entry in iterate_processes() if entry.run and session_of_run(entry.run) in self.sessions]
        if mine:
            victim = self.chance.choice(mine)
            self.killed.add(victim.run or "")
            with_it = [entry for entry in mine if entry.run == victim.run and self.chance.random() < 0.7]
            for entry in (victim, *with_it):
                try:
                    os.kill(entry.identity.pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def lines(self, name: str) -> Counter[str]:
        file = self.project / name
        return Counter(file.read_text("utf-8").split() if file.exists() else ())


async def check(loop: KillLoop, ledger: Ledger) -> None:
    began, ended = loop.lines("began"), loop.lines("ended")
    assert set(began.values()) <= {1}, "a turn ran twice"
    for session in loop.sessions:
        found = await loop.service.find(session)
        assert found.status == "finished", f"{found.name} runs for ever"
        for run in await loop.service.runs(session):
            if run.state == "succeeded":
                text = (await loop.service.result(session, run=run.id)).text
                assert text in (f"sung by {run.id}", "sung", loop.answered.get(run.id))
            if run.id in loop.answered and run.id not in loop.killed:
                assert run.state == "succeeded", f"the answer to {run.id} was lost: {run}"
            if run.id in ended and run.id not in loop.killed:
                assert run.state == "succeeded", f"the result of {run.id} was lost: {run}"
        await check_record(loop, ledger, session)
    left = [entry for entry in iterate_processes() if entry.run and session_of_run(entry.run) in loop.sessions]
    assert left == []
    complaints = (loop.service.context.home.path / LOG).read_text("utf-8")
    assert "Traceback" not in complaints, complaints


async def check_record(loop: KillLoop, ledger: Ledger, session: str) -> None:
    events = await ledger.events(session, limit=10_000)
    assert fold(AgentRecord(), events) == decode_record((await ledger.session(session)).raw)
    said = Counter((body["run"], body["said"]["text"]) for event in events if event.type == AGENT_SAID and (body := event.body))
    assert set(said.values()) <= {1}, "something was recorded twice"
    await verify_session(ledger, session)


async def killed_again_and_again(place: Path, times: int) -> KillLoop:
    seed = int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(1 << 32))
    sys.stdout.write(f"KILL_SEED={seed}\n")
    (place / "project").mkdir()
    (place / "home").mkdir()
    async with await open_ledger(place / "home" / "ledger.db") as ledger:
        loop = KillLoop(real_service(ledger, place / "home", place / "project"), random.Random(seed))
        for number in range(times):
            await loop.once(number)
        async with asyncio.timeout(150):
            await loop.bring_to_an_end()
        await check(loop, ledger)
    return loop


@pytest.mark.timeout(400)
@proves("orchestrator.kill", "orchestrator.once", "orchestrator.adopt")
async def test_nothing_is_lost_doubled_or_left_behind_when_everything_is_killed(tmp_path: Path) -> None:
    loop = await killed_again_and_again(tmp_path, 30)

    assert len(loop.sessions) == 60


@pytest.mark.soak
@pytest.mark.timeout(1200)
@proves("orchestrator.kill")
async def test_nothing_is_lost_when_everything_is_killed_a_hundred_times(tmp_path: Path) -> None:
    loop = await killed_again_and_again(tmp_path, 100)

    assert len(loop.sessions) == 200
