"""Order and numbers of events, and conflicts of concurrent appends."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fidelio.errors import SequenceConflict
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.model import Change, NewEvent
from tests.support import proves
from tests.support.chains import verify_chain
from tests.support.ledgers import MovingClock, say, start

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@proves("ledger.events")
async def test_an_event_comes_back_as_it_was_given(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    new = NewEvent(type="tool.called", body={"tool": "grep", "n": 1.5}, actor="worker", id="e_mine", time=123)
    done = await ledger.append("s_a", new)

    (event,) = await ledger.events("s_a", after=1)
    assert done.events == (event,)
    assert (event.session, event.seq, event.id, event.type, event.actor, event.time) == (
        "s_a",
        2,
        "e_mine",
        "tool.called",
        "worker",
        123,
    )
    assert event.body == {"tool": "grep", "n": 1.5}
    assert not event.redacted


@proves("ledger.events")
async def test_id_and_time_are_given_by_the_ledger_where_the_caller_has_none(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    one, two = (await ledger.append("s_a", NewEvent(type="note"), NewEvent(type="note"))).events

    assert one.time == two.time == clock.now
    assert one.id != two.id
    assert (one.seq, two.seq) == (2, 3)


@proves("ledger.events")
async def test_events_are_read_after_a_number_by_type_and_up_to_a_limit(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    for number in range(6):
        await say(ledger, "s_a", {"n": number}, "even" if number % 2 == 0 else "odd")

    assert [e.seq for e in await ledger.events("s_a", after=2, limit=3)] == [3, 4, 5]
    assert [e.body["n"] for e in await ledger.events("s_a", types=["odd"])] == [1, 3, 5]
    assert [e.type for e in await ledger.events("s_a", types=["odd", "session.started"], limit=2)] == ["session.started", "odd"]
    assert await ledger.events("s_a", after=7) == ()
    assert await ledger.events("s_a", types=["none"]) == ()


@proves("ledger.events", "ledger.positions")
async def test_all_sessions_are_read_in_the_order_of_their_positions(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await start(ledger, "s_b")
    for number in range(4):
        await say(ledger, "s_a" if number % 2 else "s_b", {"n": number})

    everything = await ledger.events()
    positions = [event.position for event in everything]
    assert positions == sorted(set(positions))
    assert [e.body["n"] for e in everything if e.type == "note"] == [0, 1, 2, 3]
    assert await ledger.events(after=positions[3]) == everything[4:]
    assert await ledger.events(after=positions[-1]) == ()


@proves("ledger.expected-seq")
async def test_an_append_on_an_older_state_is_refused_with_the_real_one(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await ledger.append("s_a", NewEvent(type="first"), expect=1)

    with pytest.raises(SequenceConflict) as refusal:
        await ledger.append("s_a", NewEvent(type="second"), expect=1)

    assert (refusal.value.session, refusal.value.expected, refusal.value.actual) == ("s_a", 1, 2)
    assert [event.type for event in await ledger.events("s_a")] == ["session.started", "first"]


@proves("ledger.expected-seq")
async def test_of_many_writers_with_the_same_expectation_one_wins(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    tries = [ledger.append("s_a", NewEvent(type="mine", body={"n": n}), expect=1) for n in range(20)]

    results = await asyncio.gather(*tries, return_exceptions=True)

    refused = [result for result in results if isinstance(result, SequenceConflict)]
    assert len(refused) == 19
    assert {error.actual for error in refused} == {2}
    assert (await ledger.session("s_a")).last_seq == 2


@proves("ledger.neighbours")
async def test_a_conflict_costs_no_neighbour_its_commit(ledger: Ledger) -> None:
    for number in range(10):
        await start(ledger, f"s_{number}")
    # The refused ones write an event first and are refused by their second change: there is something to roll back.
    good = [ledger.append(f"s_{n}", NewEvent(type="good"), expect=1) for n in range(5)]
    bad = [
        ledger.commit(
            Change(session=f"s_{n}", events=(NewEvent(type="bad"),)),
            Change(session="s_0", events=(NewEvent(type="bad"),), expect=99),
        )
        for n in range(5, 10)
    ]

    results = await asyncio.gather(*(task for pair in zip(good, bad, strict=True) for task in pair), return_exceptions=True)

    assert [type(result).__name__ for result in results] == ["CommitResult", "SequenceConflict"] * 5
    assert [e.type for e in await ledger.events() if e.type in ("good", "bad")] == ["good"] * 5
    for number in range(10):
        verify_chain(f"s_{number}", await ledger.events(f"s_{number}"))


@proves("ledger.expected-seq", "ledger.positions")
async def test_writers_without_expectation_never_lose_or_double_an_event(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await asyncio.gather(*(say(ledger, "s_a", {"n": n}) for n in range(50)))

    events = await ledger.events("s_a", after=1)
    assert [event.seq for event in events] == list(range(2, 52))
    assert {event.body["n"] for event in events} == set(range(50))
    verify_chain("s_a", await ledger.events("s_a"))


@proves("ledger.expected-seq")
async def test_two_openings_that_take_turns_always_see_each_others_last_event(address: str, clock: MovingClock) -> None:
    async with await open_ledger(address, clock=clock) as one, await open_ledger(address, clock=clock) as two:
        await start(one, "s_a")
        for turn in range(6):
            ledger, other = (one, two) if turn % 2 else (two, one)
            done = await ledger.append("s_a", NewEvent(type="turn"), expect=turn + 1)
            await other.commit(Change(session="s_a", status=f"turn-{turn}", record={"turn": turn}))
            again = await ledger.commit(Change(session="s_a", reason="same"))
            assert done.session.last_seq == turn + 2
            assert (again[0].session.status, again[0].session.record) == (f"turn-{turn}", {"turn": turn})
        verify_chain("s_a", await one.events("s_a"))


@proves("ledger.plain-json")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.dictionaries(st.text(), JSON, max_size=4))
async def test_any_json_comes_back_unchanged(ledger: Ledger, body: dict[str, object]) -> None:
    session = "s_json"
    if not (await ledger.sessions()).items:
        await start(ledger, session)
    event = await say(ledger, session, body)

    (read,) = await ledger.events(session, after=event.seq - 1)
    assert read == event
    assert read.body == body
