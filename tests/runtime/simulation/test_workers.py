"""Several real workers over one ledger: each event is processed exactly once, by whichever worker is first."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from fidelio.app.records import record_type
from fidelio.home import Home
from fidelio.inbox import Inbox
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.audit import verify_session
from fidelio.ledger.paging import all_events
from fidelio.retry import cancel_tasks
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import parse_agent
from fidelio.runtime.agents.versions import define_agent
from fidelio.runtime.record import RuntimeRecords
from fidelio.runtime.service import NewAgentSession, RuntimeService
from tests.runtime.simulation.echo import EFFECTS, make_context, run_worker
from tests.support import proves

ROOT = Path(__file__).resolve().parents[3]
PROJECT = "/project"
PERSON = "person:test"


class Load(msgspec.Struct, frozen=True):
    """How much is sent: sessions that answer at once, those that also come back later, and messages for each."""

    immediate: int
    delayed: int
    messages: int
    # Longest time until everything is done, on a busy machine.
    seconds: float


SMALL = Load(8, 3, 3, 60)
LARGE = Load(60, 20, 6, 600)


class Sender:
    """Begins sessions, sends them messages, and compares what came out."""

    def __init__(self, ledger: Ledger, home: Home, load: Load) -> None:
        self._ledger, self._home, self._load = ledger, home, load
        self._service = RuntimeService(make_context(ledger, home))
        self.tokens: dict[str, list[str]] = {}

    async def begin(self) -> None:
        definition = parse_agent({"model": "scripted:echo"}, "The agent")
        await define_agent(self._service.context, PROJECT, "helper", definition, by=PERSON)
        for number in range(self._load.immediate + self._load.delayed):
            session = await self._service.start_session(NewAgentSession(project=PROJECT, agent="helper"))
            kind = "now" if number < self._load.immediate else "later"
            self.tokens[session] = [f"token-{kind}-{number}-{message}" for message in range(self._load.messages)]

    async def send(self) -> None:
        """Send everything, to all sessions at once, one message after the other in each."""
        await asyncio.gather(*(self._send(session, tokens) for session, tokens in self.tokens.items()))

    async def _send(self, session: str, tokens: list[str]) -> None:
        for token in tokens:
            event = {"type": "user.message", "content": f"Write {token}."}
            await self._service.send(session, [event], by=PERSON, channel="cli")

    async def wait_until_done(self) -> None:
        async with asyncio.timeout(self._load.seconds):
            position = 0
            while not await self._is_done():
                position = await self._ledger.wait(after=position, timeout=1)

    async def _is_done(self) -> bool:
        if await self._ledger.jobs(kind="runtime.wake"):
            return False
        records = [RuntimeRecords().read((await self._ledger.session(session)).raw) for session in self.tokens]
        return all(record.status == "idle" and not record.wakes.pending for record in records)

    async def deny_all(self) -> None:
        """Nobody allows a repetition: what a killed process had begun stays as it is."""
        inbox = Inbox(self._ledger)
        async for request in inbox.follow():
            if request.state == "open":
                await inbox.answer(request.id, "deny", by=PERSON, channel="cli")

    async def check(self, *, is_killed: bool = False) -> None:
        written = Counter((self._home.path / EFFECTS).read_text().split())
        sent = Counter(token for tokens in self.tokens.values() for token in tokens)
        assert written == sent or (is_killed and written <= sent)
        for session, tokens in self.tokens.items():
            events = await all_events(self._ledger, session)
            wakes = [event.body for event in events if event.type == e.SPAN_STARTED and event.body["span_kind"] == "wake"]
            inputs = Counter(block.get("text") for wake in wakes for block in wake.get("input", ()))
            assert [inputs[f"Write {token}."] for token in tokens] == [1] * len(tokens)
            assert sum(wake.get("messages", 0) for wake in wakes) == len(tokens)
            if "later" in tokens[0]:
                assert sum(bool(wake.get("consumed")) for wake in wakes) >= 1
            assert (await verify_session(self._ledger, session)).problems == ()


@asynccontextmanager
async def open_sender(directory: Path, load: Load) -> AsyncIterator[tuple[Sender, Home]]:
    home = Home(directory / "home")
    home.ensure()
    async with await open_ledger(str(home.ledger)) as ledger:
        ledger.record_type = record_type
        sender = Sender(ledger, home, load)
        await sender.begin()
        yield sender, home


@asynccontextmanager
async def start_process(home: Home) -> AsyncIterator[asyncio.subprocess.Process]:
    command = (sys.executable, "-m", "tests.runtime.simulation.echo", str(home.path))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=asyncio.subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def soak_tasks(directory: Path, load: Load, workers: int) -> None:
    async with open_sender(directory, load) as (sender, home):
        tasks = [asyncio.create_task(run_worker(home)) for _ in range(workers)]
        try:
            await sender.send()
            await sender.wait_until_done()
        finally:
            await cancel_tasks(*tasks)
        await sender.check()


async def soak_processes(directory: Path, load: Load, *, kill: bool) -> None:
    async with open_sender(directory, load) as (sender, home), start_process(home) as first, start_process(home) as second:
        sending = asyncio.create_task(sender.send())
        if kill:
            # After the first effects, in the middle of something: another one takes over when its leases have expired.
            async with asyncio.timeout(60):
                while not (home.path / EFFECTS).exists():
                    await asyncio.wait({sending}, timeout=0.02)
            os.kill(first.pid, signal.SIGKILL)
        await sending
        denying = asyncio.create_task(sender.deny_all()) if kill else None
        await sender.wait_until_done()
        assert second.returncode is None
        if denying is not None:
            await cancel_tasks(denying)
        await sender.check(is_killed=kill)


@proves("runtime.workers-soak")
async def test_several_workers_process_each_event_once(tmp_path: Path) -> None:
    await soak_tasks(tmp_path, SMALL, 2)


@proves("runtime.workers-soak")
async def test_two_processes_process_each_event_once(tmp_path: Path) -> None:
    await soak_processes(tmp_path, SMALL, kill=False)


@pytest.mark.soak
@proves("runtime.workers-soak")
@pytest.mark.timeout(900)
async def test_many_sessions_and_four_workers_process_each_event_once(tmp_path: Path) -> None:
    await soak_tasks(tmp_path, LARGE, 4)


@pytest.mark.soak
@proves("runtime.workers-soak")
@pytest.mark.timeout(900)
async def test_many_sessions_and_two_processes_process_each_event_once(tmp_path: Path) -> None:
    await soak_processes(tmp_path, LARGE, kill=False)


@pytest.mark.soak
@proves("runtime.workers-soak")
@pytest.mark.timeout(900)
async def test_a_killed_process_loses_no_event_and_repeats_no_effect(tmp_path: Path) -> None:
    await soak_processes(tmp_path, LARGE, kill=True)
