"""The job runner on both databases, with a clock that only the test advances."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fidelio.errors import LedgerUnavailable, StaleLease, UsageProblem
from fidelio.ledger.jobs import Assignment, Jobs
from fidelio.ledger.model import Change, Completion, Job, Lease, NewEvent, NewJob
from tests.ledger.programs.running import ledger_with_sessions, running
from tests.support import proves
from tests.support.ledgers import TIMEOUT_SECONDS, MovingClock


@proves("jobs.port")
async def test_a_handler_gets_the_payload_that_was_enqueued_and_its_job_is_gone_afterwards(address: str) -> None:
    async with ledger_with_sessions(address, "s_a") as ledger:
        seen: asyncio.Queue[Lease] = asyncio.Queue()
        jobs = Jobs(ledger)

        async def handle(assignment: Assignment) -> None:
            seen.put_nowait(assignment.lease)

        jobs.register("greet", handle)
        async with running(jobs):
            await jobs.enqueue("greet", "s_a", payload={"whom": "world"})
            async with asyncio.timeout(TIMEOUT_SECONDS):
                lease = await seen.get()

        assert (lease.session, lease.kind, lease.payload, lease.attempt) == ("s_a", "greet", {"whom": "world"}, 1)
        assert await ledger.jobs() == ()
        assert await ledger.jobs(dead=True) == ()


@proves("jobs.port")
async def test_a_kind_has_one_handler(address: str) -> None:
    async with ledger_with_sessions(address) as ledger:
        jobs = Jobs(ledger)
        jobs.register("greet", _nothing)

        with pytest.raises(UsageProblem, match="'greet' have a handler already"):
            jobs.register("greet", _nothing)


@proves("jobs.port")
async def test_a_kind_without_a_handler_here_is_left_to_others(address: str) -> None:
    async with ledger_with_sessions(address, "s_a", "s_b") as ledger:
        done = asyncio.Event()
        jobs = Jobs(ledger)
        jobs.register("ours", lambda _: _set(done))
        await jobs.enqueue("theirs", "s_a")
        async with running(jobs):
            await jobs.enqueue("ours", "s_b")
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await done.wait()

        assert [(job.kind, job.attempts) for job in await ledger.jobs()] == [("theirs", 0)]


@proves("jobs.due")
async def test_a_job_waits_until_it_is_due(address: str) -> None:
    clock = MovingClock()
    async with ledger_with_sessions(address, "s_now", "s_later", clock=clock) as ledger:
        order: asyncio.Queue[str] = asyncio.Queue()
        begun = clock()
        jobs = Jobs(ledger, clock=clock, lease_ms=600_000)

        async def handle(assignment: Assignment) -> None:
            order.put_nowait(f"{assignment.lease.session} at {clock() - begun}")

        jobs.register("ring", handle)
        await jobs.enqueue("ring", "s_later", due=clock() + 60_000)
        await jobs.enqueue("ring", "s_now", due=clock())
        async with running(jobs), asyncio.timeout(TIMEOUT_SECONDS):
            assert await order.get() == "s_now at 0"
            clock.now += 60_000
            jobs.register("another", _nothing)
            assert await order.get() == "s_later at 60000"


@proves("jobs.one-commit")
async def test_a_handler_can_write_and_end_its_job_in_one_transaction(address: str) -> None:
    async with ledger_with_sessions(address, "s_a") as ledger:
        left: asyncio.Queue[int] = asyncio.Queue()
        jobs = Jobs(ledger)

        async def handle(assignment: Assignment) -> None:
            await assignment.commit(Change(session="s_a", events=(NewEvent(type="step.done"),)), settle=Completion())
            left.put_nowait(len(await ledger.jobs()))

        jobs.register("step", handle)
        async with running(jobs):
            await jobs.enqueue("step", "s_a")
            async with asyncio.timeout(TIMEOUT_SECONDS):
                assert await left.get() == 0

        assert [event.type for event in await ledger.events("s_a")] == ["step.done"]
        assert await ledger.jobs(dead=True) == ()


@proves("jobs.fencing")
async def test_a_worker_that_was_overtaken_cannot_commit(address: str) -> None:
    clock = MovingClock()
    async with ledger_with_sessions(address, "s_a", clock=clock) as ledger:
        refusals: asyncio.Queue[StaleLease] = asyncio.Queue()
        jobs = Jobs(ledger, clock=clock, lease_ms=60_000, concurrency=1)

        async def handle(assignment: Assignment) -> None:
            clock.now += 60_000
            assert await ledger.claim("faster", ["step"], lease_ms=60_000) is not None
            with pytest.raises(StaleLease) as refusal:
                await assignment.commit(Change(session="s_a", events=(NewEvent(type="step.done"),)), settle=Completion())
            refusals.put_nowait(refusal.value)

        jobs.register("step", handle)
        async with running(jobs):
            await jobs.enqueue("step", "s_a")
            async with asyncio.timeout(TIMEOUT_SECONDS):
                assert (await refusals.get()).fence == 1

        assert await ledger.events("s_a") == ()
        assert [job.lease_owner for job in await ledger.jobs()] == ["faster"]


@proves("jobs.heartbeat")
async def test_a_lease_lasts_as_long_as_its_handler(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = MovingClock()
    async with ledger_with_sessions(address, "s_a", clock=clock) as ledger:
        beats: asyncio.Queue[int | None] = asyncio.Queue()
        kept = asyncio.Event()
        begun = clock()
        prolong = ledger.heartbeat

        async def heartbeat(lease: Lease, *, lease_ms: int) -> Lease:
            clock.now += lease_ms - 1
            prolonged = await prolong(lease, lease_ms=lease_ms)
            beats.put_nowait(await ledger.next_due(["long"]))
            return prolonged

        async def handle(_: Assignment) -> None:
            for beat in range(1, 6):
                assert await beats.get() == begun + beat * 599 + 600
            kept.set()

        monkeypatch.setattr(ledger, "heartbeat", heartbeat)
        jobs = Jobs(ledger, clock=clock, lease_ms=600)
        jobs.register("long", handle)
        async with running(jobs):
            await jobs.enqueue("long", "s_a")
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await kept.wait()

        assert await ledger.jobs() == ()


@proves("jobs.lost-lease")
async def test_a_handler_is_cancelled_when_its_lease_is_lost(address: str) -> None:
    clock = MovingClock()
    async with ledger_with_sessions(address, "s_a", clock=clock) as ledger:
        cancelled = asyncio.Event()
        jobs = Jobs(ledger, clock=clock, lease_ms=600, concurrency=1)

        async def handle(_: Assignment) -> None:
            clock.now += 600
            assert await ledger.claim("faster", ["long"], lease_ms=1000) is not None
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        jobs.register("long", handle)
        async with running(jobs):
            await jobs.enqueue("long", "s_a")
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await cancelled.wait()

        assert [job.lease_owner for job in await ledger.jobs()] == ["faster"]


@proves("jobs.bounded")
async def test_no_more_handlers_run_at_once_than_allowed(address: str) -> None:
    sessions = [f"s_{number}" for number in range(5)]
    async with ledger_with_sessions(address, *sessions) as ledger:
        counts: asyncio.Queue[int] = asyncio.Queue()
        too_many = asyncio.Event()
        now = 0
        jobs = Jobs(ledger, concurrency=2)

        async def handle(_: Assignment) -> None:
            nonlocal now
            now += 1
            if now > 2:
                too_many.set()
            # Nothing is expected to happen in this time; it is the time in which a third one would begin.
            await asyncio.wait({asyncio.ensure_future(too_many.wait())}, timeout=0.1)
            counts.put_nowait(now)
            now -= 1

        jobs.register("work", handle)
        for session in sessions:
            await jobs.enqueue("work", session)
        async with running(jobs), asyncio.timeout(TIMEOUT_SECONDS):
            seen = [await counts.get() for _ in sessions]
            too_many.set()

        assert max(seen) == 2


@proves("jobs.outlives-faults")
async def test_the_loop_goes_on_when_the_database_was_out_of_reach(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ledger_with_sessions(address, "s_a") as ledger:
        failed, done = asyncio.Event(), asyncio.Event()
        ask = ledger.next_due

        async def next_due(kinds: tuple[str, ...]) -> int | None:
            if not failed.is_set():
                failed.set()
                raise LedgerUnavailable("Out of reach.")
            return await ask(kinds)

        monkeypatch.setattr(ledger, "next_due", next_due)
        jobs = Jobs(ledger)
        jobs.register("work", lambda _: _set(done))
        async with running(jobs), asyncio.timeout(TIMEOUT_SECONDS):
            await failed.wait()
            await jobs.enqueue("work", "s_a")
            await done.wait()


@proves("jobs.quiet")
async def test_a_loop_without_due_work_waits_for_news_or_the_next_due_time(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = MovingClock()
    async with ledger_with_sessions(address, "s_a", clock=clock) as ledger:
        waits: asyncio.Queue[float] = asyncio.Queue()
        wait = ledger.wait

        async def recorded(*, after: int, timeout: float) -> int:
            if timeout:
                waits.put_nowait(timeout)
            return await wait(after=after, timeout=timeout)

        monkeypatch.setattr(ledger, "wait", recorded)
        jobs = Jobs(ledger, clock=clock)
        jobs.register("work", _nothing)
        async with running(jobs), asyncio.timeout(TIMEOUT_SECONDS):
            assert await waits.get() == 1.0
            await jobs.enqueue("work", "s_a", due=clock() + 250)
            assert await waits.get() == 0.25


@proves("jobs.together")
async def test_commits_that_follow_at_once_are_looked_at_together(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only `wake` ends a pause that is as long as this.
    monkeypatch.setattr("fidelio.ledger.jobs._QUIET_SECONDS", 3_600.0)
    async with ledger_with_sessions(address, "s_a") as ledger:
        looks, next_due, done = asyncio.Queue[None](), ledger.next_due, asyncio.Event()

        async def counted(kinds: Sequence[str]) -> int | None:
            looks.put_nowait(None)
            return await next_due(kinds)

        monkeypatch.setattr(ledger, "next_due", counted)
        jobs = Jobs(ledger)
        jobs.register("work", lambda _: _set(done))
        async with running(jobs), asyncio.timeout(TIMEOUT_SECONDS):
            await looks.get()
            for number in range(20):
                await ledger.commit(Change(session="s_a", events=(NewEvent(type="noted", body={"n": number}, actor="me"),)))
            await ledger.commit(Change(session="s_a", jobs=(NewJob(kind="work", session="s_a"),)))
            looked = looks.qsize()
            jobs.wake()
            await done.wait()

        assert looked == 0


@proves("jobs.admission")
async def test_only_what_is_admitted_is_claimed_and_the_rest_is_asked_for_again(address: str) -> None:
    sessions = [f"s_{number}" for number in range(4)]
    async with ledger_with_sessions(address, *sessions) as ledger:
        order: list[str] = []
        last = asyncio.Event()

        def admit(due: Sequence[Job], claimed: Sequence[Job]) -> Sequence[Job]:
            """One at a time, the last one first."""
            return () if claimed else due[-1:]

        async def handle(assignment: Assignment) -> None:
            order.append(assignment.lease.session)
            if assignment.lease.session == "s_0":
                last.set()

        jobs = Jobs(ledger, admit=admit)
        jobs.register("work", handle)
        for number, session in enumerate(sessions):
            await jobs.enqueue("work", session, due=number)
        async with running(jobs), asyncio.timeout(TIMEOUT_SECONDS):
            await last.wait()

        assert order == sessions[::-1]


@proves("jobs.admission")
async def test_a_refused_job_is_considered_again_at_once_after_wake(address: str) -> None:
    async with ledger_with_sessions(address, "s_a") as ledger:
        asked, done = asyncio.Event(), asyncio.Event()
        is_open = False

        def admit(due: Sequence[Job], _: Sequence[Job]) -> Sequence[Job]:
            asked.set()
            return due if is_open else ()

        jobs = Jobs(ledger, admit=admit)
        jobs.register("work", lambda _: _set(done))
        await jobs.enqueue("work", "s_a")
        async with running(jobs), asyncio.timeout(TIMEOUT_SECONDS):
            await asked.wait()
            is_open = True
            jobs.wake()
            await done.wait()


async def _nothing(_: Assignment) -> None:
    return


async def _set(event: asyncio.Event) -> None:
    event.set()
