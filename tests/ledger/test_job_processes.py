"""Jobs run by several processes, some of which are killed or stall."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from itertools import pairwise
from multiprocessing.connection import wait

from fidelio.ledger.audit import verify_session
from fidelio.ledger.jobs import Jobs
from tests.ledger.programs import worker
from tests.ledger.programs.processes import PATIENCE, Child, child
from tests.ledger.programs.running import ledger_with_sessions
from tests.support import proves

Interval = tuple[int, int, str, str, int]


@proves("jobs.once")
async def test_many_processes_never_run_a_job_or_a_session_twice_at_once(address: str) -> None:
    sessions = [f"s_{number}" for number in range(20)]
    async with ledger_with_sessions(address, *sessions) as ledger:
        for session in sessions * 4:
            await Jobs(ledger).enqueue("work", session)
        with ExitStack() as stack:
            workers = [stack.enter_context(child(worker.brief, address, 30_000)) for _ in range(4)]
            intervals = _receive_intervals(workers, len(sessions) * 4)
            for each in workers:
                each.pipe.send("stop")
                assert each.wait() == 0

        assert len({job for _, _, job, _, _ in intervals}) == len(intervals), "a job ran twice"
        for session, ordered in _by_session(intervals).items():
            assert all(before[1] <= after[0] for before, after in pairwise(ordered)), "two at once"
            assert [fence for *_, fence in ordered] == [1, 2, 3, 4]
            assert (await verify_session(ledger, session)).events == 4
        assert await ledger.jobs() == ()


@proves("jobs.takeover", "kill.leases")
async def test_the_job_of_a_killed_worker_is_taken_over_after_its_lease(address: str) -> None:
    async with ledger_with_sessions(address, "s_a") as ledger:
        await Jobs(ledger).enqueue("work", "s_a")
        with child(worker.endless, address, 400) as first:
            assert first.receive() == 1
            first.kill()
            (held,) = await ledger.jobs()
            with child(worker.brief, address, 5_000) as second:
                *_, job, session, fence = second.receive()
                second.pipe.send("stop")
                assert second.wait() == 0

        assert (job, session, fence) == (held.id, "s_a", 2)
        assert held.lease_owner
        assert await ledger.jobs() == ()


@proves("jobs.fencing")
async def test_a_process_that_stalled_past_its_lease_cannot_write(address: str) -> None:
    async with ledger_with_sessions(address, "s_a") as ledger:
        await Jobs(ledger).enqueue("work", "s_a")
        with child(worker.stalling, address, 300) as slow:
            assert slow.receive() == 1
            with child(worker.brief, address, 5_000) as fast:
                assert fast.receive()[-1] == 2
            slow.pipe.send("go on")
            assert slow.receive() == "refused"

        assert [event.body["fence"] for event in await ledger.events("s_a")] == [2]


def _receive_intervals(workers: list[Child], count: int) -> list[Interval]:
    messages: list[Interval] = []
    while len(messages) < count:
        ready = wait([each.pipe for each in workers], PATIENCE)
        assert ready, f"{len(messages)} of {count} jobs done, and then nothing more"
        messages += [each.receive() for each in workers if each.pipe in ready]
    return messages


def _by_session(intervals: list[Interval]) -> dict[str, list[Interval]]:
    found: defaultdict[str, list[Interval]] = defaultdict(list)
    for interval in sorted(intervals):
        found[interval[3]].append(interval)
    return found
