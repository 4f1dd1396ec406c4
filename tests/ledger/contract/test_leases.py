"""Claims, leases and fencing of jobs."""

from __future__ import annotations

import asyncio

import pytest

from fidelio.errors import StaleLease
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.model import Change, Completion, DeadLetter, Lease, NewEvent, NewJob, Retry, Settlement
from fidelio.ledger.paging import all_jobs
from tests.support import proves
from tests.support.ledgers import MovingClock, start

LEASE = 1_000


async def queue(ledger: Ledger, *jobs: NewJob) -> None:
    await ledger.commit(*(Change(session=job.session, jobs=(job,)) for job in jobs))


async def claim(ledger: Ledger, *kinds: str, owner: str = "me") -> Lease | None:
    return await ledger.claim(owner, kinds or ("wake",), lease_ms=LEASE)


async def must_claim(ledger: Ledger, *kinds: str, owner: str = "me") -> Lease:
    lease = await claim(ledger, *kinds, owner=owner)
    assert lease is not None
    return lease


@proves("ledger.claims")
async def test_a_claim_gives_the_job_with_its_payload(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    await queue(ledger, NewJob(kind="wake", session="s_a", payload={"n": 1}, id="j_1"))

    lease = await must_claim(ledger)
    assert lease == Lease(
        job="j_1", kind="wake", session="s_a", payload={"n": 1}, attempt=1, fence=1, owner="me", expires=clock.now + LEASE
    )
    (job,) = await ledger.jobs()
    assert (job.id, job.attempts, job.lease_owner, job.lease_expires) == ("j_1", 1, "me", clock.now + LEASE)


@proves("ledger.claims")
async def test_nothing_is_claimed_before_it_is_due(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    await queue(ledger, NewJob(kind="wake", session="s_a", due=clock.now + 50))

    assert await claim(ledger) is None
    assert await ledger.next_due(["wake"]) == clock.now + 50
    assert await ledger.next_due(["other"]) is None
    assert await ledger.next_due([]) is None
    clock.now += 50
    assert await claim(ledger) is not None


@proves("ledger.claims")
async def test_the_session_that_has_been_due_longest_comes_first(ledger: Ledger) -> None:
    for number in range(4):
        await start(ledger, f"s_{number}")
    await queue(ledger, *(NewJob(kind="wake", session=f"s_{n}", due=due) for n, due in enumerate((40, 10, 30, 20))))

    assert [(await must_claim(ledger)).session for _ in range(4)] == ["s_1", "s_3", "s_2", "s_0"]
    assert await claim(ledger) is None


@proves("ledger.claims")
async def test_a_session_is_held_by_one_at_a_time(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    await queue(
        ledger, NewJob(kind="wake", session="s_a", id="j_1", due=1), NewJob(kind="wake", session="s_a", id="j_2", due=2)
    )
    first = await must_claim(ledger)

    assert await claim(ledger, owner="other") is None
    assert await ledger.next_due(["wake"]) == first.expires
    await ledger.settle(first, Completion())
    assert (await must_claim(ledger, owner="other")).job == "j_2"


@proves("ledger.claims")
async def test_an_unknown_kind_in_front_hides_nothing_behind_it(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await queue(ledger, NewJob(kind="foreign", session="s_a", due=1), NewJob(kind="wake", session="s_a", id="j_2", due=2))

    lease = await must_claim(ledger, "wake", "sleep")
    assert lease.job == "j_2"
    # The session is held, whatever the kind.
    assert await claim(ledger, "foreign") is None
    await ledger.settle(lease, Completion())
    assert (await must_claim(ledger, "foreign")).kind == "foreign"


@proves("ledger.claims")
async def test_many_claims_at_once_never_give_the_same_session_twice(address: str, clock: MovingClock) -> None:
    async with await open_ledger(address, clock=clock) as one, await open_ledger(address, clock=clock) as two:
        for number in range(10):
            await start(one, f"s_{number}")
            await queue(one, NewJob(kind="wake", session=f"s_{number}"), NewJob(kind="wake", session=f"s_{number}"))

        leases = await asyncio.gather(*(claim(ledger) for _ in range(10) for ledger in (one, two)))

        held = [lease.session for lease in leases if lease]
        assert sorted(held) == [f"s_{number}" for number in range(10)]


@proves("ledger.fencing")
async def test_a_lease_that_ran_out_can_be_taken_over_and_then_the_old_one_is_stale(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    await queue(ledger, NewJob(kind="wake", session="s_a"))
    old = await must_claim(ledger, owner="old")
    clock.now += LEASE
    new = await must_claim(ledger, owner="new")

    assert (new.job, new.fence, new.attempt) == (old.job, old.fence + 1, 2)
    with pytest.raises(StaleLease):
        await ledger.commit(Change(session="s_a", lease=old, events=(NewEvent(type="late"),)))
    with pytest.raises(StaleLease):
        await ledger.heartbeat(old, lease_ms=LEASE)
    for how in (Completion(), Retry(due=0, error="x"), DeadLetter(error="x")):
        with pytest.raises(StaleLease):
            await ledger.settle(old, how)
    await ledger.commit(Change(session="s_a", lease=new, events=(NewEvent(type="done"),), settle=Completion()))
    assert [event.type for event in await ledger.events("s_a", after=1)] == ["done"]


@proves("ledger.fencing")
async def test_a_slow_worker_keeps_its_lease_until_somebody_takes_it(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    await queue(ledger, NewJob(kind="wake", session="s_a"))
    lease = await must_claim(ledger)
    clock.now += 10 * LEASE

    prolonged = await ledger.heartbeat(lease, lease_ms=LEASE)
    assert prolonged.expires == clock.now + LEASE
    assert await claim(ledger, owner="other") is None
    await ledger.commit(Change(session="s_a", lease=lease, events=(NewEvent(type="done"),)))


@proves("ledger.fencing")
async def test_a_settled_lease_is_spent(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await queue(ledger, NewJob(kind="wake", session="s_a"))
    lease = await must_claim(ledger)
    await ledger.settle(lease, Completion())

    with pytest.raises(StaleLease):
        await ledger.settle(lease, Completion())
    with pytest.raises(StaleLease):
        await ledger.commit(Change(session="s_a", lease=lease, events=(NewEvent(type="late"),)))


@proves("ledger.fencing")
async def test_the_fencing_number_survives_an_empty_queue(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    fences = []
    for _ in range(3):
        await queue(ledger, NewJob(kind="wake", session="s_a"))
        lease = await must_claim(ledger)
        fences.append(lease.fence)
        await ledger.settle(lease, Completion())

    assert fences == [1, 2, 3]


@proves("ledger.settlement")
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    ("how", "queued", "dead"),
    [
        (Completion(), [], []),
        (Retry(due=1_900_000_000_000, error="no net"), [(1_900_000_000_000, "no net")], []),
        (DeadLetter(error="broken"), [], [(0, "broken")]),
    ],
)
async def test_a_job_ends_as_it_was_settled(
    ledger: Ledger, together: bool, how: Settlement, queued: list[tuple[int, str]], dead: list[tuple[int, str]]
) -> None:
    await start(ledger, "s_a")
    await queue(ledger, NewJob(kind="wake", session="s_a"))
    lease = await must_claim(ledger)
    if together:
        await ledger.commit(Change(session="s_a", lease=lease, settle=how, events=(NewEvent(type="done"),)))
    else:
        await ledger.settle(lease, how)

    assert [(job.due, job.error) for job in await ledger.jobs(session="s_a")] == queued
    assert [(job.due, job.error) for job in await ledger.jobs(dead=True)] == dead
    assert await ledger.next_due(["wake"]) == (queued[0][0] if queued else None)
    assert await claim(ledger) is None


@proves("ledger.settlement")
async def test_a_retried_job_counts_its_attempts(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    await queue(ledger, NewJob(kind="wake", session="s_a"))
    for attempt in (1, 2, 3):
        lease = await must_claim(ledger)
        assert lease.attempt == attempt
        clock.now += 5
        await ledger.settle(lease, Retry(due=clock.now, error="again"))


@proves("ledger.job-keys")
async def test_a_job_with_a_key_waits_once_and_the_earlier_time_wins(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    await start(ledger, "s_b")
    for due in (clock.now + 50, clock.now + 10, clock.now + 30):
        await queue(ledger, NewJob(kind="wake", session="s_a", key="k", due=due))
    await queue(
        ledger,
        NewJob(kind="wake", session="s_a", key="other"),
        NewJob(kind="sleep", session="s_a", key="k"),
        NewJob(kind="wake", session="s_b", key="k"),
    )

    assert len(await ledger.jobs()) == 4
    assert [job.due for job in await ledger.jobs() if job.kind == "wake"] == [0, 0, clock.now + 10]


@proves("ledger.job-keys")
async def test_work_that_turns_up_while_the_job_runs_is_not_lost(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    job = NewJob(kind="wake", session="s_a", key="k")
    await queue(ledger, job)
    running = await must_claim(ledger)
    await queue(ledger, job, job)
    assert len(await ledger.jobs()) == 2
    await ledger.settle(running, Retry(due=0, error="again"))
    await queue(ledger, job)

    assert len(await ledger.jobs()) == 2
    for _ in range(2):
        await ledger.settle(await must_claim(ledger), Completion())
    assert await claim(ledger) is None


@proves("ledger.claims")
async def test_a_claim_can_be_limited_to_a_session(ledger: Ledger, clock: MovingClock) -> None:
    for number in range(3):
        await start(ledger, f"s_{number}")
    await queue(ledger, *(NewJob(kind="wake", session=f"s_{number}", due=number) for number in range(2)))
    await queue(ledger, NewJob(kind="wake", session="s_2", due=clock.now + 50))

    async def claim_in(session: str) -> Lease | None:
        return await ledger.claim("me", ["other", "wake"], lease_ms=LEASE, session=session)

    lease = await claim_in("s_1")
    assert lease is not None
    assert lease.session == "s_1"
    # It is held, not due yet, or has no job, while another session has a job that is due.
    assert [await claim_in(session) for session in ("s_1", "s_2", "s_none")] == [None, None, None]
    await ledger.settle(lease, Completion())
    assert await claim_in("s_1") is None
    assert (await must_claim(ledger)).session == "s_0"


@proves("ledger.claims")
async def test_a_lease_has_the_error_of_the_attempt_before(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await queue(ledger, NewJob(kind="wake", session="s_a"))
    first = await must_claim(ledger)
    await ledger.settle(first, Retry(due=0, error="no net"))

    assert [first.error, (await must_claim(ledger)).error] == ["", "no net"]


@proves("ledger.all-pages")
async def test_the_jobs_of_a_kind_are_listed_in_pages(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fidelio.ledger.paging.PAGE", 2)
    await start(ledger, "s_a")
    dues = (5, 3, 3, 3, 9)
    await queue(ledger, *(NewJob(kind="wake", session="s_a", id=f"j_{number}", due=due) for number, due in enumerate(dues)))
    await queue(ledger, NewJob(kind="other", session="s_a", due=4))

    assert [job.id for job in await all_jobs(ledger, "wake")] == ["j_1", "j_2", "j_3", "j_0", "j_4"]
    assert [job.kind for job in await ledger.jobs(kind="other", session="s_a", limit=1)] == ["other"]
