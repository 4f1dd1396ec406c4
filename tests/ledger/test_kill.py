"""Processes killed in the middle of writing: what they were told to be safe is safe."""

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
    chance = random.Random(seed)
    async with ledger_with_sessions(address, SESSION):
        pass
    survivors = Survivors(address)
    acknowledged = 0
    for _ in range(times):
        acknowledged += await survivors.check(_told_before_its_death(address, chance))

    assert acknowledged > times


def _told_before_its_death(address: str, chance: random.Random) -> list[tuple[object, ...]]:
    with child(appender.main, address, SESSION, chance.randrange(1 << 32)) as victim:
        # Most are killed while they write, some while they still open the ledger.
        told = [victim.hears()] if chance.random() < 0.9 else []
        time.sleep(chance.random() * 0.05)  # not for anything to happen: this is the random moment
        victim.kill()
        return [*told, *victim.rest()]
