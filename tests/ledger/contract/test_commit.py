"""Commits are atomic, and values that could not be read back are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fidelio.errors import BadRecord, DocumentConflict, RequestNotFound, SequenceConflict, SessionNotFound
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.model import Change, CloseRequest, NewEvent, NewJob, NewSession, OpenRequest, PutDocument
from tests.support import proves
from tests.support.ledgers import MovingClock, start

EVERYTHING = Change(
    session="s_a",
    create=NewSession(kind="workflow", name="Ada"),
    events=(NewEvent(type="started"), NewEvent(type="asked")),
    status="waiting",
    record={"step": 1},
    requests=(OpenRequest(id="r_1", kind="checkpoint", key="go", question="Go on?"),),
    documents=(PutDocument(space="notes", path="plan.md", text="first"),),
    blobs=(b"large",),
    jobs=(NewJob(kind="wake", session="s_a", id="j_1"),),
)


async def contents(ledger: Ledger) -> tuple[object, ...]:
    return (
        [event.type for event in await ledger.events()],
        [(session.id, session.status, session.record) for session in (await ledger.sessions()).items],
        [request.id for request in (await ledger.requests()).items],
        [document.path for document in (await ledger.documents("notes")).items],
        [job.id for job in await ledger.jobs()],
    )


WHOLE = (["started", "asked"], [("s_a", "waiting", {"step": 1})], ["r_1"], ["plan.md"], ["j_1"])
NOTHING: tuple[object, ...] = ([], [], [], [], [])


@proves("ledger.atomic")
async def test_everything_in_one_change_is_kept_together(ledger: Ledger) -> None:
    await ledger.commit(EVERYTHING)

    assert await contents(ledger) == WHOLE


@proves("ledger.durable")
async def test_what_was_acknowledged_is_there_after_opening_again(address: str, clock: MovingClock) -> None:
    async with await open_ledger(address, clock=clock) as ledger:
        done = await ledger.commit(EVERYTHING)
    async with await open_ledger(address, clock=clock) as ledger:
        assert await contents(ledger) == WHOLE
        assert (await ledger.session("s_a"),) == tuple(each.session for each in done)


@proves("ledger.atomic")
@pytest.mark.parametrize(
    ("last", "error"),
    [
        (Change(session="s_a", events=(NewEvent(type="late"),), expect=1), SequenceConflict),
        (Change(session="s_nobody", events=(NewEvent(type="late"),)), SessionNotFound),
        (Change(session="s_a", requests=(CloseRequest(id="r_none"),)), RequestNotFound),
        (Change(session="s_a", documents=(PutDocument(space="notes", path="plan.md", text="x", expect=7),)), DocumentConflict),
        (Change(session="s_a", jobs=(NewJob(kind="wake", session="s_nobody"),)), SessionNotFound),
        (Change(session="s_a", jobs=(NewJob(kind="wake", session="s_a", id="j_1"),)), BadRecord),
        (Change(session="s_a", events=(NewEvent(type="late", blobs=("0" * 64,)),)), BadRecord),
    ],
)
async def test_if_the_last_part_is_refused_nothing_of_the_commit_is_kept(
    ledger: Ledger, last: Change, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await ledger.commit(EVERYTHING, last)

    assert await contents(ledger) == NOTHING
    await ledger.commit(EVERYTHING)
    assert await contents(ledger) == WHOLE


@proves("ledger.atomic")
async def test_changes_of_one_commit_see_each_other_in_order(ledger: Ledger) -> None:
    done = await ledger.commit(
        Change(session="s_a", create=NewSession(kind="agent"), events=(NewEvent(type="one"),), expect=0),
        Change(session="s_a", events=(NewEvent(type="two"),), expect=1, status="busy"),
        Change(session="s_b", create=NewSession(kind="agent", parent="s_a")),
    )

    assert [each.session.last_seq for each in done] == [1, 2, 0]
    assert (await ledger.session("s_a")).status == "busy"


@proves("ledger.atomic")
async def test_a_commit_of_nothing_is_fine(ledger: Ledger) -> None:
    assert await ledger.commit() == ()


@proves("ledger.plain-json")
@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        datetime(2026, 1, 1, tzinfo=UTC),
        b"bytes",
        {1, 2},
        2**64,
        -(2**63) - 1,
        {1: "x"},
        object(),
        "\ud800",
    ],
)
async def test_what_is_not_json_is_refused_before_it_is_written(ledger: Ledger, value: Any) -> None:  # the point
    await start(ledger, "s_a")

    for body in ({"x": value}, {"deep": [{"x": value}]}):
        with pytest.raises(BadRecord):
            await ledger.append("s_a", NewEvent(type="note", body=body))
        with pytest.raises(BadRecord, match="record"):
            await ledger.commit(Change(session="s_a", record=body))

    assert (await ledger.session("s_a")).last_seq == 1


@proves("ledger.plain-json", "ledger.limits")
async def test_a_body_that_is_too_deep_or_too_long_is_refused_with_the_bound(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    deep: dict[str, Any] = {}
    for _ in range(1000):
        deep = {"inner": deep}

    with pytest.raises(BadRecord, match="64 levels"):
        await ledger.append("s_a", NewEvent(type="note", body=deep))
    with pytest.raises(BadRecord, match="1048576"):
        await ledger.append("s_a", NewEvent(type="note", body={"x": "y" * 1_100_000}))


@proves("ledger.limits")
@pytest.mark.parametrize(
    "change",
    [
        Change(session=""),
        Change(session="s a"),
        Change(session="s_\x00"),
        Change(session="s" * 201),
        Change(session="s_a", create=NewSession(kind="nonsense")),  # type: ignore[arg-type]  # the wrong type is what is tested
        Change(session="s_a", create=NewSession(kind="agent", name="")),
        Change(session="s_a", create=NewSession(kind="agent", name="a\nb")),
        Change(session="s_a", expect=-1),
        Change(session="s_a", status="x" * 201),
        Change(session="s_a", reason="nul \x00"),
        Change(session="s_a", events=(NewEvent(type=""),)),
        Change(session="s_a", events=(NewEvent(type="a b"),)),
        Change(session="s_a", events=(NewEvent(type="note", actor="\ud800"),)),
        Change(session="s_a", events=(NewEvent(type="note", time=-1),)),
        Change(session="s_a", events=(NewEvent(type="note", blobs=("ABC",)),)),
        Change(session="s_a", requests=(OpenRequest(id="r 1", kind="k", key="k", question="?"),)),
        Change(session="s_a", documents=(PutDocument(space="n", path="../up", text=""),)),
        Change(session="s_a", documents=(PutDocument(space="n", path="a//b", text=""),)),
        Change(session="s_a", documents=(PutDocument(space="n", path="a", text="\ud800"),)),
        Change(session="s_a", jobs=(NewJob(kind="", session="s_a"),)),
        Change(session="s_a", jobs=(NewJob(kind="k", session="s_a", due=-1),)),
    ],
)
async def test_bad_names_and_numbers_are_refused(ledger: Ledger, change: Change) -> None:
    await start(ledger, "s_other")

    with pytest.raises(BadRecord):
        await ledger.commit(Change(session="s_other", events=(NewEvent(type="note"),)), change)

    assert (await ledger.session("s_other")).last_seq == 1


@proves("ledger.positions")
async def test_a_commit_over_very_many_sessions_numbers_its_events_one_by_one(ledger: Ledger) -> None:
    sessions = [f"s_{number}" for number in range(1_500)]
    await ledger.commit(*[Change(session=session, create=NewSession(kind="agent")) for session in sessions])

    done = await ledger.commit(*[Change(session=session, events=(NewEvent(type="note"),)) for session in sessions])

    assert [event.position for each in done for event in each.events] == list(range(1, 1_501))
