"""Kill the caller, the host, the sandbox and the shell at random moments: nothing acknowledged is lost, nothing runs twice.

The caller is a process of its own (`python -m tests.runtime.kill_driver`). It sends one command after the other, each of which
appends its number to a file, and prints the number only after the call has returned. The test kills one of the processes, lets
the caller go on, and at the end compares what was acknowledged, what the ledger has and what the file has.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from fidelio.app.records import record_type
from fidelio.home import Home
from fidelio.ledger import open_ledger
from fidelio.ledger.audit import verify_session
from fidelio.ledger.model import Event
from fidelio.ledger.paging import event_pages
from fidelio.runtime import events as e
from tests.support import proves
from tests.support.parts import require_part

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = {"caller": 3, "host": 2, "sandbox": 2, "shell": 2}
WAIT_SECONDS = 60.0


class Driver:
    """The caller, and what it has printed: the numbers that were acknowledged."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.acknowledged: list[int] = []
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.acknowledged.append(int(line))

    async def wait_for(self, count: int) -> None:
        """Wait until so many more commands were acknowledged."""
        wanted = len(self.acknowledged) + count
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.acknowledged) < wanted and not self._reader.done():
                await asyncio.wait({self._reader}, timeout=0.02)

    async def end(self) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()
        await self._reader


@asynccontextmanager
async def drive(home: Path, first: int) -> AsyncIterator[Driver]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.runtime.kill_driver", str(home), str(first)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    driver = Driver(process)
    try:
        yield driver
    finally:
        await driver.end()


def find_processes(home: Path, kind: str) -> list[int]:
    """The processes of the home: its worker, the first process of its sandboxes, or their shells."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if entry.name.isdigit() and _is_kind(line, kind) and _belongs(int(entry.name), home):
                found.append(int(entry.name))
    return found


def _is_kind(line: str, kind: str) -> bool:
    return {
        "host": "fidelio work" in line,
        "sandbox": "fidelio.sandbox.inside.server" in line and "bwrap" not in line.split(" ", 1)[0],
        "shell": line.startswith(("/bin/bash --norc", "bash --norc")),
        "any": "fidelio work" in line
        or "fidelio.sandbox.inside" in line
        or line.startswith(("/bin/bash --norc", "bash --norc")),
    }[kind]


def _belongs(pid: int, home: Path) -> bool:
    """Whether a process is the worker of the home, or runs below it."""
    while pid > 1:
        environ = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
        if os.fsencode(str(home)) in environ:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


async def kill_one(driver: Driver, home: Path, target: str) -> None:
    if target == "caller":
        await driver.end()
        return
    for pid in find_processes(home, target)[:1]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def load_events(home: Path) -> list[Event]:
    async with await open_ledger(Home(home).ledger) as ledger:
        ledger.record_type = record_type
        session = next(found for found in (await ledger.sessions(kind="runtime")).items if found.name == "default")
        assert (await verify_session(ledger, session.id)).problems == ()
        return [event async for page in event_pages(ledger, session.id) for event in page]


async def run_rounds(home: Path, rounds: dict[str, int], seed: int) -> list[int]:
    chance, acknowledged = random.Random(seed), list[int]()
    targets = [target for target, count in rounds.items() for _ in range(count)]
    chance.shuffle(targets)
    for number, target in enumerate(targets):
        # A number that was sent and not acknowledged is not sent again: the next caller begins far beyond it.
        async with drive(home, number * 100_000) as driver:
            await driver.wait_for(chance.randint(1, 4))
            await asyncio.sleep(chance.random() * 0.05)  # a moment at random, not a wait for a condition
            await kill_one(driver, home, target)
            if target != "caller":
                await driver.wait_for(1)
        acknowledged += driver.acknowledged
    return acknowledged


async def wait_until_nothing_is_left(home: Path) -> None:
    for pid in find_processes(home, "host"):
        os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        while find_processes(home, "any"):
            await asyncio.to_thread(time.sleep, 0.05)  # processes of others give no event


async def check_kills(home: Path, rounds: dict[str, int], seed: int) -> None:
    try:
        acknowledged = await run_rounds(home, rounds, seed)
        events = await load_events(home)
    finally:
        await wait_until_nothing_is_left(home)
    started = [event.body["command_id"] for event in events if event.type == e.COMMAND_STARTED]
    ended = Counter(event.body["command_id"] for event in events if event.type == e.COMMAND_ENDED)
    record = {event.body["command_id"]: event.body.get("command", "") for event in events if event.type == e.COMMAND_STARTED}
    completed = {
        _number(record[event.body["command_id"]])
        for event in events
        if event.type == e.COMMAND_ENDED and event.body["state"] == "completed"
    }
    (written,) = (home / "sandboxes").glob("*/workspace/effects")
    effects = Counter(int(line) for line in written.read_text().split())

    assert len(acknowledged) >= sum(rounds.values())
    assert set(acknowledged) <= completed, "an acknowledged command is not in the history"
    assert max(effects.values()) == 1, f"ran twice: {[number for number, count in effects.items() if count > 1]}"
    assert max(ended.values()) == 1
    assert len(started) == len(set(started))


def require_bubblewrap() -> None:
    if shutil.which("bwrap") is None:
        require_part("bubblewrap", "Install it with: sudo apt-get install bubblewrap")


def _number(command: str) -> int:
    return int(command.split()[1])


@proves("runtime.kills")
@pytest.mark.timeout(300)
async def test_kills_at_random_moments_lose_nothing_repeat_nothing_and_leave_nothing(tmp_path: Path) -> None:
    require_bubblewrap()
    await check_kills(tmp_path / "home", ROUNDS, seed=15)


@pytest.mark.soak
@proves("runtime.kills")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10))
async def test_many_kills_lose_nothing_repeat_nothing_and_leave_nothing(tmp_path: Path, seed: int) -> None:
    require_bubblewrap()
    await check_kills(tmp_path / "home", {target: count * 5 for target, count in ROUNDS.items()}, seed=seed)
