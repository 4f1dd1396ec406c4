"""The limits of the pool: how many sandboxes are live, which one is closed, and which never."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from fidelio.errors import SandboxesBusy, SandboxLost, SandboxUnavailable
from fidelio.sandbox.host.client import LocalSandboxes
from fidelio.sandbox.host.pool import LaunchedProcess, PoolLimits, SandboxPool
from fidelio.sandbox.model import LevelReport, SandboxSpec
from tests.sandbox.host.fakes import LEVEL, FakeLauncher, TestClock
from tests.support import proves


def spec(number: int, network: str = "none") -> SandboxSpec:
    return SandboxSpec(f"s_{number}", f"/nowhere/{number}", (), network=network)  # type: ignore[arg-type]  # a literal


class PoolHarness:
    """A pool of fake processes with a clock, and calls that move the clock so that every use has its own time."""

    def __init__(self, live: int = 32) -> None:
        self.launcher, self.clock = FakeLauncher(), TestClock()
        self.pool = SandboxPool(self._launch, limits=PoolLimits(live=live), clock=self.clock)
        self.sandboxes = LocalSandboxes(self.pool, self._level)

    async def _launch(self, wanted: SandboxSpec, _: AsyncExitStack) -> LaunchedProcess:
        return await self.launcher(wanted, LEVEL)

    async def _level(self) -> LevelReport:
        return LEVEL

    async def use(self, number: int) -> None:
        self.clock.forward(ms=1)
        await self.sandboxes.call(spec(number), "stat", {})

    async def fill(self, count: int) -> None:
        for number in range(count):
            await self.use(number)

    def live(self) -> set[str]:
        return {live.spec.session for live in self.pool.live}


@proves("sandbox.pool-limit")
async def test_the_33rd_sandbox_closes_the_least_recently_used_idle_one() -> None:
    harness = PoolHarness()
    await harness.fill(32)
    await harness.use(0)

    await harness.use(32)

    assert len(harness.live()) == len(harness.launcher.live) == 32
    assert "s_1" not in harness.live()
    state = await harness.sandboxes.start(spec(1))
    assert state.is_new
    assert state.closed_because is not None
    assert state.closed_because.reason == "pool_full"
    assert "32 sandboxes were live" in state.closed_because.message


@proves("sandbox.pool-limit")
async def test_one_without_a_shell_is_closed_before_one_with_a_shell() -> None:
    harness = PoolHarness(live=3)
    await harness.fill(3)
    harness.launcher.of("s_0").shell = {"alive": True, "busy": False}
    harness.launcher.of("s_1").shell = {"alive": True, "busy": False}

    await harness.use(3)
    assert harness.live() == {"s_0", "s_1", "s_3"}

    harness.launcher.of("s_3").shell = {"alive": True, "busy": False}
    await harness.use(4)
    assert harness.live() == {"s_1", "s_3", "s_4"}


@proves("sandbox.pool-busy")
async def test_a_busy_sandbox_is_never_closed_and_all_busy_refuses_with_the_limit() -> None:
    harness = PoolHarness(live=3)
    await harness.fill(3)
    harness.launcher.of("s_0").shell = {"alive": True, "busy": True}
    harness.launcher.of("s_1").hold = True
    waiting = asyncio.create_task(harness.sandboxes.call(spec(1), "run_shell", {}))
    await asyncio.sleep(0)

    await harness.use(3)
    assert harness.live() == {"s_0", "s_1", "s_3"}

    harness.launcher.of("s_3").shell = {"alive": True, "busy": True}
    with pytest.raises(SandboxesBusy, match=r"3 sandboxes are live, which is the limit, and all of them are at work\."):
        await harness.use(4)
    assert harness.live() == {"s_0", "s_1", "s_3"}

    harness.launcher.of("s_1").release()
    assert (await waiting).ok
    await harness.use(4)
    assert "s_1" not in harness.live()


@proves("sandbox.pool-busy")
@pytest.mark.parametrize("gives_up", ["timeout", "cancelled"])
async def test_a_sandbox_is_at_work_until_it_replies_also_if_the_caller_has_given_up(gives_up: str) -> None:
    harness = PoolHarness(live=1)
    await harness.use(0)
    harness.launcher.of("s_0").hold = True
    waiting = asyncio.create_task(harness.sandboxes.call(spec(0), "run_shell", {}, timeout=0 if gives_up == "timeout" else 60))
    await asyncio.sleep(0)
    if gives_up == "cancelled":
        waiting.cancel()
    with pytest.raises(SandboxLost if gives_up == "timeout" else asyncio.CancelledError):
        await waiting

    with pytest.raises(SandboxesBusy):
        await harness.use(1)

    harness.launcher.of("s_0").release()
    await harness.use(1)
    assert harness.live() == {"s_1"}


@proves("sandbox.pool-busy")
async def test_a_sandbox_that_does_not_describe_its_shell_is_not_closed_for_another() -> None:
    harness = PoolHarness(live=1)
    await harness.use(0)
    harness.launcher.of("s_0").raw_reply = b"[" * 100_000
    harness.launcher.of("s_0").shell = {"alive": "perhaps"}  # type: ignore[dict-item]  # hostile

    with pytest.raises(SandboxesBusy):
        await harness.use(1)


@proves("sandbox.pool-limit")
async def test_sandboxes_that_are_starting_count() -> None:
    harness = PoolHarness(live=2)
    harness.launcher.gate = asyncio.Event()
    starting = [asyncio.create_task(harness.sandboxes.start(spec(number))) for number in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    with pytest.raises(SandboxesBusy):
        await harness.sandboxes.start(spec(2))

    harness.launcher.gate.set()
    assert [state.is_new for state in await asyncio.gather(*starting)] == [True, True]


@proves("sandbox.one-per-session")
async def test_concurrent_starts_of_a_session_give_one_sandbox() -> None:
    harness = PoolHarness()
    harness.launcher.gate = asyncio.Event()
    starting = [asyncio.create_task(harness.sandboxes.start(spec(1))) for _ in range(5)]
    await asyncio.sleep(0)
    harness.launcher.gate.set()
    states = await asyncio.gather(*starting)

    assert len(harness.launcher.started) == 1
    assert len({state.incarnation for state in states}) == 1
    assert [state.is_new for state in states] == [True, False, False, False, False]


@proves("sandbox.idle-shell")
async def test_a_shell_that_is_idle_for_30_minutes_is_closed_and_the_next_start_says_why() -> None:
    harness = PoolHarness()
    await harness.use(0)
    harness.launcher.of("s_0").shell = {"alive": True, "busy": False}

    harness.clock.forward(minutes=29.9)
    await harness.pool.close_idle()
    assert harness.live() == {"s_0"}

    harness.clock.forward(minutes=0.1)
    await harness.pool.close_idle()
    assert harness.live() == set()
    assert harness.launcher.of("s_0").is_closed.is_set()
    ending = (await harness.sandboxes.start(spec(0))).closed_because
    assert ending is not None
    assert (ending.reason, ending.message) == ("idle_timeout", "Its shell was idle for 30 minutes.")


@proves("sandbox.idle-shell")
async def test_a_command_that_runs_for_hours_keeps_its_shell() -> None:
    harness = PoolHarness()
    await harness.use(0)
    harness.launcher.of("s_0").shell = {"alive": True, "busy": True}
    for _ in range(4):
        harness.clock.forward(minutes=31)
        await harness.pool.close_idle()

    # The time without work counts from the end of the command.
    harness.launcher.of("s_0").shell = {"alive": True, "busy": False}
    harness.clock.forward(minutes=29)
    await harness.pool.close_idle()
    assert harness.live() == {"s_0"}


@proves("sandbox.pool-spec")
async def test_another_configuration_replaces_the_sandbox_unless_it_is_at_work() -> None:
    harness = PoolHarness()
    await harness.use(0)
    harness.launcher.of("s_0").shell = {"alive": True, "busy": True}
    with pytest.raises(SandboxesBusy, match="another configuration"):
        await harness.sandboxes.start(spec(0, "limited"))

    harness.launcher.of("s_0").shell = {"alive": True, "busy": False}
    state = await harness.sandboxes.start(spec(0, "limited"))

    assert state.is_new
    assert state.closed_because is not None
    assert state.closed_because.reason == "spec_changed"
    assert [process.is_closed.is_set() for process in harness.launcher.started] == [True, False]


@proves("sandbox.end-recorded")
async def test_a_sandbox_that_dies_is_replaced_and_the_next_start_says_so() -> None:
    harness = PoolHarness()
    first = await harness.sandboxes.start(spec(0))
    harness.launcher.of("s_0").hold = True
    waiting = asyncio.create_task(harness.sandboxes.call(spec(0), "run_shell", {}))
    await asyncio.sleep(0)

    harness.launcher.of("s_0").die()

    with pytest.raises(SandboxLost):
        await waiting
    second = await harness.sandboxes.start(spec(0))
    assert second.incarnation != first.incarnation
    assert second.closed_because is not None
    assert (second.closed_because.reason, second.closed_because.incarnation) == ("process_ended", first.incarnation)


@proves("sandbox.end-recorded")
async def test_a_start_that_fails_leaves_nothing_and_the_next_one_works() -> None:
    pool = PoolHarness(live=1)

    def fail(_: object) -> None:
        raise SandboxUnavailable("No.")

    pool.launcher.on_start = fail
    for _ in range(3):
        with pytest.raises(SandboxUnavailable):
            await pool.use(0)
    pool.launcher.on_start = lambda _: None
    await pool.use(0)
    assert pool.live() == {"s_0"}


@proves("sandbox.end-recorded")
async def test_a_closed_pool_starts_nothing_more() -> None:
    harness = PoolHarness()
    await harness.fill(3)
    harness.launcher.gate = asyncio.Event()
    late = asyncio.create_task(harness.sandboxes.start(spec(9)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    await harness.pool.close()
    harness.launcher.gate.set()
    await late

    assert harness.launcher.live == []
    with pytest.raises(SandboxUnavailable, match="is ending"):
        await harness.use(10)
