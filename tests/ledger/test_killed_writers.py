"""Processes killed while they write: everything that was acknowledged is stored."""

from __future__ import annotations

import os
import random
import secrets
import time

import pytest

from tests.ledger.programs import appender
from tests.ledger.programs.processes import child
from tests.ledger.programs.running import ledger_with_sessions
from tests.ledger.programs.survivors import SESSION, Survivors
from tests.support import proves


@proves("kill.acknowledged", "kill.leases", "jobs.takeover")
async def test_a_killed_process_loses_nothing_that_was_acknowledged(address: str) -> None:
    await _kill_again_and_again(address, 50)


@pytest.mark.soak
@proves("kill.acknowledged", "kill.leases", "jobs.takeover")
async def test_a_process_killed_two_hundred_times_loses_nothing_that_was_acknowledged(address: str) -> None:
    await _kill_again_and_again(address, 200)


async def _kill_again_and_again(address: str, times: int) -> None:
    seed = int(os.environ.get("KILL_SEED") or secrets.randbits(32))
    print(f"Repeat this run with KILL_SEED={seed}.")  # noqa: T201  # pytest shows it when the test fails
    rng = random.Random(seed)
    async with ledger_with_sessions(address, SESSION):
        pass
    survivors = Survivors(address)
    acknowledged = 0
    for _ in range(times):
        acknowledged += await survivors.check(_run_until_killed(address, rng))

    assert acknowledged > times


def _run_until_killed(address: str, rng: random.Random) -> list[tuple[object, ...]]:
    with child(appender.main, address, SESSION, rng.randrange(1 << 32)) as victim:
        # Most processes are killed while they write, some while they open the ledger.
        messages = [victim.receive()] if rng.random() < 0.9 else []
        time.sleep(rng.random() * 0.05)  # a random moment for the kill, not a wait for a condition
        victim.kill()
        return [*messages, *victim.receive_rest()]
