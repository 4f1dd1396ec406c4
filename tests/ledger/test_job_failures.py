"""Jobs that fail, are abandoned or are interrupted."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.ledger import Ledger
from fidelio.ledger.jobs import ERROR_CHARACTERS, FIRST_BACKOFF_MS, MAX_BACKOFF_MS, Assignment, Jobs, compute_backoff
from fidelio.ledger.model import Job
from tests.ledger.programs.running import ledger_with_sessions, running
from tests.support import proves
from tests.support.ledgers import TIMEOUT_SECONDS, MovingClock

LUCKLESS = "no such luck"

attempts = st.integers(min_value=1, max_value=10_000)
chances = st.floats(min_value=0, max_value=1, exclude_max=True)


@proves("jobs.backoff")
@given(attempts, chances)
def test_a_pause_lies_in_the_upper_half_of_a_doubling_bound(attempt: int, chance: float) -> None:
    bound = min(FIRST_BACKOFF_MS * 2.0 ** min(attempt - 1, 100), MAX_BACKOFF_MS)

    assert bound / 2 <= compute_backoff(attempt, random=lambda: chance) <= bound


@proves("jobs.backoff")
@given(attempts, chances)
def test_a_later_pause_is_never_shorter(attempt: int, chance: float) -> None:
    assert compute_backoff(attempt, random=lambda: chance) <= compute_backoff(attempt + 1, random=lambda: chance)


@proves("jobs.backoff")
@given(attempts)
def test_pauses_are_spread(attempt: int) -> None:
    low, high = compute_backoff(attempt, random=lambda: 0.0), compute_backoff(attempt, random=lambda: 0.99)

    assert high - low > FIRST_BACKOFF_MS / 3


@proves("jobs.retry")
async def test_a_job_that_fails_is_due_again_after_its_pause(address: str) -> None:
    clock = MovingClock()
    async with ledger_with_sessions(address, "s_a", clock=clock) as ledger:
        for attempt in (1, 2, 3):
            job = await _after_one_failure(ledger, clock)
            bound = FIRST_BACKOFF_MS << (attempt - 1)
            assert clock() + bound // 2 <= job.due <= clock() + bound
            assert (job.attempts, job.error, job.lease_owner) == (attempt, "ValueError: no such luck", "")
            clock.now = job.due


@proves("jobs.retry")
async def test_whatever_a_handler_says_when_it_fails_can_be_kept(address: str, caplog: pytest.LogCaptureFixture) -> None:
    # Half a pair cannot be sent between the processes that run tests, so the log of this failure stays out of the report.
    caplog.set_level(logging.CRITICAL)
    clock = MovingClock()
    async with ledger_with_sessions(address, "s_a", clock=clock) as ledger:
        job = await _after_one_failure(ledger, clock, words="NUL \0, half a pair \ud800, " + "and on " * 1000)

        assert job.error.startswith("ValueError: NUL \ufffd, half a pair ?, and on")
        assert len(job.error) == ERROR_CHARACTERS


@proves("jobs.dead-letter")
async def test_a_job_without_attempts_left_stays_as_a_dead_letter_with_its_error(address: str) -> None:
    clock = MovingClock()
    async with ledger_with_sessions(address, "s_a", clock=clock) as ledger:
        clock.now = (await _after_one_failure(ledger, clock, max_attempts=2)).due
        dead = await _after_one_failure(ledger, clock, max_attempts=2)

        assert (dead.state, dead.error, dead.attempts) == ("dead", "ValueError: no such luck", 2)
        assert await ledger.jobs() == ()
        assert await ledger.next_due(["work"]) is None


@proves("jobs.dead-letter")
async def test_a_job_that_no_worker_survived_is_not_started_once_more(address: str) -> None:
    clock = MovingClock()
    async with ledger_with_sessions(address, "s_a", "s_b", clock=clock) as ledger:
        jobs, started, last = Jobs(ledger, clock=clock, max_attempts=3), list[str](), asyncio.Event()
        await jobs.enqueue("work", "s_a")
        for _ in range(3):
            assert await ledger.claim("dies", ["work"], lease_ms=1000) is not None
            clock.now += 1000

        async def handle(assignment: Assignment) -> None:
            started.append(assignment.lease.session)
            last.set()

        jobs.register("work", handle)
        await jobs.enqueue("work", "s_b", due=clock())
        async with running(jobs), asyncio.timeout(TIMEOUT_SECONDS):
            await last.wait()

        (dead,) = await ledger.jobs(dead=True)
        assert (dead.session, started) == ("s_a", ["s_b"])
        assert dead.error == "Started 3 times, and every worker ended before it settled the job."


@proves("jobs.stop")
async def test_a_handler_whose_session_is_deleted_is_stopped_without_a_warning(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with ledger_with_sessions(address, "s_a") as ledger:
        begun, ended = asyncio.Event(), asyncio.Event()
        jobs = Jobs(ledger, lease_ms=300)

        async def handle(_: Assignment) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        jobs.register("work", handle)
        await jobs.enqueue("work", "s_a")
        async with running(jobs), asyncio.timeout(TIMEOUT_SECONDS):
            await begun.wait()
            await ledger.erase(["s_a"], actor="me", reason="x")
            await ended.wait()

    assert caplog.text == ""


@proves("jobs.stop")
async def test_stopping_lets_a_running_handler_finish(address: str) -> None:
    async with ledger_with_sessions(address, "s_a") as ledger:
        begun, go_on = asyncio.Event(), asyncio.Event()
        jobs = Jobs(ledger)

        async def handle(_: Assignment) -> None:
            begun.set()
            await go_on.wait()

        jobs.register("work", handle)
        await jobs.enqueue("work", "s_a")
        async with running(jobs), asyncio.timeout(TIMEOUT_SECONDS):
            await begun.wait()
            jobs.stop()
            go_on.set()

        assert await ledger.jobs() == ()


@proves("jobs.stop")
@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_a_handler_that_does_not_finish_in_time_gives_its_lease_back(address: str, how: str) -> None:
    async with ledger_with_sessions(address, "s_a") as ledger:
        begun = asyncio.Event()
        jobs = Jobs(ledger, grace=0.01)

        async def handle(_: Assignment) -> None:
            begun.set()
            await asyncio.Event().wait()

        jobs.register("work", handle)
        await jobs.enqueue("work", "s_a")
        loop = asyncio.create_task(jobs.run())
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await begun.wait()
            if how == "stop":
                jobs.stop()
            else:
                loop.cancel()
            await asyncio.wait({loop})

        (job,) = await ledger.jobs()
        assert (job.lease_owner, job.error) == ("", "The worker was stopped before the job ended.")
        lease = await ledger.claim("next", ["work"], lease_ms=1000)
        assert lease is not None
        assert (lease.attempt, lease.fence) == (2, 2)


async def _after_one_failure(ledger: Ledger, clock: MovingClock, *, max_attempts: int = 8, words: str = LUCKLESS) -> Job:
    """Lets the one job there is fail once more, and returns what it has become."""
    failed = asyncio.Event()
    jobs = Jobs(ledger, clock=clock, max_attempts=max_attempts)

    async def handle(_: Assignment) -> None:
        failed.set()
        raise ValueError(words)

    jobs.register("work", handle)
    if not await ledger.jobs():
        await jobs.enqueue("work", "s_a", due=clock())
    async with running(jobs), asyncio.timeout(TIMEOUT_SECONDS):
        await failed.wait()
    (job,) = await ledger.jobs() or await ledger.jobs(dead=True)
    return job
