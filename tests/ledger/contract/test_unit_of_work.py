"""Load, decide, commit: one unit of work on one session, whoever else writes at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec
import pytest

from fidelio.errors import LedgerBusy, SequenceConflict, SessionNotFound, StaleLease, UsageProblem
from fidelio.ledger import Ledger, unit_of_work
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.model import Change, Completion, NewEvent, NewJob, NewSession, Session
from fidelio.ledger.paging import PAGE
from fidelio.ledger.unit_of_work import (
    REFUSAL_ATTEMPTS,
    LinkedChange,
    LoadedSession,
    RecordEvent,
    SessionDecision,
    UnitOfWork,
)
from tests.support import proves
from tests.support.ledgers import MovingClock

NOTE = NewEvent(type="note", actor="tester")


class Count(msgspec.Struct, frozen=True):
    """How many notes a session has, and how far it was counted."""

    notes: int = 0
    seq: int = 0


class Counts:
    """Sessions that count their notes."""

    structure = frozenset[str]()
    folded = frozenset({"note"})

    def check(self, session: Session) -> None:
        if session.kind != "runtime":
            raise SessionNotFound(f"Session {session.id} counts nothing.", remedy="Use another.")

    def read(self, raw: str) -> Count:
        return msgspec.json.decode(raw, type=Count)

    def fold(self, record: Count, events: Iterable[RecordEvent]) -> Count:
        for event in events:
            record = Count(record.notes + (event.type == "note"), event.seq)
        return record

    def seq(self, record: Count) -> int:
        return record.seq

    def status(self, record: Count) -> tuple[str, str | None]:
        return ("full", "counted") if record.notes >= 3 else ("active", None)


def add(*events: NewEvent, **more: object) -> SessionDecision[None]:
    return msgspec.structs.replace(SessionDecision(None, events=events or (NOTE,)), **more)


@pytest.fixture
async def unit(ledger: Ledger) -> UnitOfWork[Count]:
    made = UnitOfWork(ledger, MovingClock(), Counts())
    await made.create("s_a", Count(), add(NewEvent(type="begun"), create=NewSession(kind="runtime")))
    return made


@proves("ledger.unit-of-work")
async def test_events_record_status_and_reason_are_committed_together(unit: UnitOfWork[Count]) -> None:
    after = await unit.update("s_a", lambda _: add(NOTE, NOTE, NOTE))
    stored = await unit.ledger.session("s_a")

    assert after.record == Count(3, 4) == (await unit.load("s_a")).record
    assert (stored.status, stored.reason, stored.record) == ("full", "counted", {"notes": 3, "seq": 4})
    assert [event.time for event in await unit.ledger.events("s_a")] == [unit.clock()] * 4


@proves("ledger.unit-of-work")
async def test_nothing_is_committed_where_nothing_is_decided(unit: UnitOfWork[Count]) -> None:
    before = await unit.load("s_a")

    assert await unit.update(before, lambda _: None) is before
    assert (await unit.ledger.session("s_a")).last_seq == 1


@proves("ledger.unit-of-work")
async def test_a_decision_on_an_old_session_is_made_again_on_the_new_one(unit: UnitOfWork[Count]) -> None:
    old = await unit.load("s_a")
    await unit.update("s_a", lambda _: add())
    seen = list[int]()

    def decide(now: LoadedSession[Count]) -> SessionDecision[None]:
        seen.append(now.record.notes)
        return add()

    after = await unit.update(old, decide)

    assert (seen, after.record.notes) == ([0, 1], 2)


@proves("ledger.unit-of-work")
async def test_of_many_at_once_none_is_lost(unit: UnitOfWork[Count]) -> None:
    await asyncio.gather(*(unit.update("s_a", lambda _: add()) for _ in range(20)))

    assert (await unit.load("s_a")).record == Count(20, 21)


@proves("ledger.unit-of-work")
async def test_events_that_others_appended_are_folded_in_over_all_pages(unit: UnitOfWork[Count]) -> None:
    await unit.ledger.append("s_a", *[NOTE] * (PAGE + 1))

    assert (await unit.load("s_a")).record.notes == PAGE + 1
    assert (await unit.update("s_a", lambda _: add())).record == Count(PAGE + 2, PAGE + 3)


@proves("ledger.unit-of-work")
async def test_who_always_loses_is_told_to_come_again(unit: UnitOfWork[Count], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_of_work, "MAX_ATTEMPTS", 0)

    with pytest.raises(LedgerBusy):
        await unit.update("s_a", lambda _: add())


@proves("ledger.unit-of-work")
async def test_a_session_of_another_kind_is_not_loaded(unit: UnitOfWork[Count]) -> None:
    await unit.ledger.commit(Change(session="s_b", create=NewSession(kind="agent"), events=(NOTE,)))

    with pytest.raises(SessionNotFound):
        await unit.load("s_b")


@proves("ledger.unit-of-work-linked")
async def test_linked_sessions_change_with_it_or_not_at_all(unit: UnitOfWork[Count]) -> None:
    child = LinkedChange("s_b", (NOTE, NOTE, NOTE), Count(), NewSession(kind="runtime", parent="s_a"))
    stale = LinkedChange("s_b", (NOTE,), Count())

    await unit.update("s_a", lambda _: add(linked=(child, Change(session="s_a", jobs=()))))
    with pytest.raises(SequenceConflict):
        await unit.commit(await unit.load("s_a"), add(linked=(stale,)))
    linked = await unit.ledger.session("s_b")

    assert (linked.parent, linked.status, linked.record) == ("s_a", "full", {"notes": 3, "seq": 3})
    assert (await unit.load("s_a")).record.notes == 1


@proves("ledger.unit-of-work-job")
async def test_a_job_is_settled_with_the_commit_that_it_led_to(unit: UnitOfWork[Count]) -> None:
    await unit.update("s_a", lambda _: add(jobs=(NewJob(kind="wake", session="s_a"),)))
    lease = await unit.ledger.claim("me", ["wake"], lease_ms=1000)
    assert lease is not None
    work = Assignment(unit.ledger, lease)

    await unit.update("s_a", lambda _: add(settle=Completion()), assignment=work)
    with pytest.raises(StaleLease):
        await unit.update("s_a", lambda _: add(), assignment=work)

    assert work.is_settled
    assert await unit.ledger.jobs(session="s_a") == ()
    assert (await unit.load("s_a")).record.notes == 2


@proves("ledger.unit-of-work-refusals")
async def test_what_was_refused_on_a_cached_session_is_decided_again_before_it_is_recorded(unit: UnitOfWork[Count]) -> None:
    cached = await unit.load("s_a")
    await unit.update("s_a", lambda _: add())
    refused = list[int]()

    async def load() -> LoadedSession[Count]:
        return await unit.load("s_a")

    async def decide(now: LoadedSession[Count]) -> SessionDecision[None]:
        raise UsageProblem(f"{now.record.notes} are enough.", remedy="Stop.")

    async def refuse(now: LoadedSession[Count], error: Exception) -> None:
        assert str(now.record.notes) in str(error)
        refused.append(now.record.notes)

    with pytest.raises(UsageProblem, match="1 are enough"):
        await unit.run(load, decide, unit.commit, cached=cached, refuse=refuse)

    assert refused == [1]


@proves("ledger.unit-of-work-refusals")
async def test_a_refusal_is_recorded_with_the_record_even_on_an_old_session(unit: UnitOfWork[Count]) -> None:
    old = await unit.load("s_a")
    await unit.update("s_a", lambda _: add())

    await unit.record_refusal(old, NewEvent(type="refused"))
    stored = await unit.ledger.session("s_a")

    assert stored.record == {"notes": 1, "seq": 3}
    assert stored.last_seq == 3


@proves("ledger.unit-of-work-refusals")
async def test_a_refusal_that_loses_every_time_is_appended(unit: UnitOfWork[Count], monkeypatch: pytest.MonkeyPatch) -> None:
    async def lose(*_: object, **__: object) -> None:
        raise SequenceConflict("s_a", 1, 2)

    at = await unit.load("s_a")
    monkeypatch.setattr(UnitOfWork, "commit", lose)
    await unit.record_refusal(at, NewEvent(type="refused"))

    assert REFUSAL_ATTEMPTS > 1
    assert [event.type for event in await unit.ledger.events("s_a")] == ["begun", "refused"]
