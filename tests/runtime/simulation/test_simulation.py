"""Simulated workers, people, models, kills and clocks: nothing is lost, nothing happens twice, nothing stays open.

A failing seed is repeated by its name: make test ARGS="tests/runtime/simulation -k seed-17-".
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from fidelio.runtime import events as e
from fidelio.runtime.wakes import rounds
from tests.runtime.simulation.invariants import check_invariants
from tests.runtime.simulation.simulation import Simulation
from tests.support import proves

SEEDS = 50
SOAK_SEEDS = 1_000
# Without these a simulation would show nothing.
REACHED = {
    e.USER_MESSAGE,
    e.USER_INTERRUPT,
    e.USER_CONFIRMATION,
    e.USER_TOOL_RESULT,
    e.APPROVAL_REQUESTED,
    e.APPROVAL_USED,
    e.CUSTOM_TOOL_USE,
    e.SESSION_ERROR,
    e.STATUS_RESCHEDULED,
    e.WAKE_QUEUED,
    e.WAKES_CANCELLED,
    e.CONTEXT_COMPACTED,
    e.CHILD_CREATED,
}
_SHOWN = 60


async def simulate(seed: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    # Ids decide the order of equal things, so they are a function of the seed too.
    monkeypatch.setattr("fidelio.ids.secrets", SimpleNamespace(token_bytes=Random(f"ids {seed}").randbytes))
    # Nobody waits for a real process here.
    monkeypatch.setattr(rounds, "INTERRUPT_SECONDS", 0.001)
    simulation = Simulation(seed, directory)
    await simulation.run(check_invariants)
    if simulation.world.problems:
        shown = [*simulation.world.problems, "", f"The last {_SHOWN} steps:", *simulation.trace[-_SHOWN:]]
        again = f'Repeat it with: make soak ARGS="tests/runtime/simulation -k seed-{seed}-"'
        pytest.fail("\n".join([f"Seed {seed} fails.", *shown, again]), pytrace=False)
    return simulation


def name_seed(seed: int) -> str:
    return f"seed-{seed}-"


@proves("runtime.simulation")
@pytest.mark.parametrize("seed", range(SEEDS), ids=name_seed)
async def test_nothing_is_lost_doubled_or_stuck(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await simulate(seed, tmp_path, monkeypatch)


@pytest.mark.soak
@proves("runtime.simulation")
@pytest.mark.parametrize("seed", range(SEEDS, SOAK_SEEDS), ids=name_seed)
async def test_with_any_seed_nothing_is_lost_doubled_or_stuck(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await simulate(seed, tmp_path, monkeypatch)


@proves("runtime.simulation")
async def test_a_seed_always_gives_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = [(await simulate(7, tmp_path / name, monkeypatch)).trace for name in ("first", "second")]

    assert first == second


@proves("runtime.simulation")
async def test_the_simulations_reach_what_they_are_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [await simulate(seed, tmp_path / str(seed), monkeypatch) for seed in range(5)]
    types = set[str]().union(*(run.types for run in runs))

    assert sum(run.kills for run in runs) > 10
    assert all(run.world.requests for run in runs)
    assert sum(run.returns for run in runs) > 0
    assert types >= REACHED
