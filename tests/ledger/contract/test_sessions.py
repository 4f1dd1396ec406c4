"""Sessions: names, rows and lists."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.errors import BadRecord, SessionExists, SessionNotFound
from fidelio.ledger import Ledger
from fidelio.ledger.chain import hash_session_id
from fidelio.ledger.model import Change, NewEvent, NewSession
from tests.support import proves
from tests.support.ledgers import MovingClock, start


async def ids(ledger: Ledger, **filters: str) -> list[str]:
    return [session.id for session in (await ledger.sessions(**filters)).items]  # type: ignore[arg-type]  # kinds as plain text


@proves("ledger.sessions")
async def test_a_new_session_is_active_and_empty(ledger: Ledger, clock: MovingClock) -> None:
    (done,) = await ledger.commit(Change(session="s_a", create=NewSession(kind="agent", namespace="/p", name="Ada")))

    session = await ledger.session("s_a")
    assert session == done.session
    assert (session.kind, session.namespace, session.name, session.parent) == ("agent", "/p", "Ada", None)
    assert (session.status, session.reason, session.record) == ("active", "", {})
    assert not session.has_record
    assert (session.last_seq, session.head) == (0, hash_session_id("s_a"))
    assert session.created_at == session.updated_at == clock.now


@proves("ledger.sessions")
async def test_a_session_is_found_by_its_name_in_its_namespace(ledger: Ledger) -> None:
    await start(ledger, "s_a", name="Ada", namespace="/one")
    await start(ledger, "s_b", name="Ada", namespace="/two")

    assert (await ledger.session_by_name("Ada", namespace="/two")).id == "s_b"
    with pytest.raises(SessionNotFound, match="'Ada'"):
        await ledger.session_by_name("Ada")


@proves("ledger.sessions")
async def test_an_id_and_a_name_are_taken_once(ledger: Ledger) -> None:
    await start(ledger, "s_a", name="Ada")

    with pytest.raises(SessionExists, match="s_a"):
        await start(ledger, "s_a")
    with pytest.raises(SessionExists, match="'Ada' belongs to session s_a"):
        await start(ledger, "s_b", name="Ada")
    with pytest.raises(SessionNotFound):
        await ledger.session("s_b")


@proves("ledger.sessions")
async def test_a_session_without_a_name_shares_that_with_others(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await start(ledger, "s_b")

    assert await ids(ledger) == ["s_b", "s_a"]


@proves("ledger.sessions")
async def test_a_parent_must_exist(ledger: Ledger) -> None:
    with pytest.raises(SessionNotFound, match="s_nobody"):
        await start(ledger, "s_a", parent="s_nobody")

    assert await ids(ledger) == []


@proves("ledger.sessions")
async def test_an_unknown_session_is_named_in_the_error(ledger: Ledger) -> None:
    with pytest.raises(SessionNotFound, match="s_nobody"):
        await ledger.session("s_nobody")
    with pytest.raises(SessionNotFound, match="s_nobody"):
        await ledger.append("s_nobody", NewEvent(type="note"))
    with pytest.raises(SessionNotFound, match="s_nobody"):
        await ledger.events("s_nobody")


@proves("ledger.atomic")
async def test_status_reason_and_record_change_with_the_event_that_led_there(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    clock.now += 5
    change = Change(
        session="s_a", events=(NewEvent(type="paused"),), status="waiting", reason="a person", record={"at": [1, None, "ü"]}
    )
    (done,) = await ledger.commit(change)

    session = await ledger.session("s_a")
    assert session == done.session
    assert (session.status, session.reason, session.record) == ("waiting", "a person", {"at": [1, None, "ü"]})
    assert session.has_record
    assert (session.last_seq, session.head, session.updated_at) == (2, done.events[0].hash, clock.now)
    assert session.created_at == clock.now - 5


@proves("ledger.atomic")
async def test_what_a_change_does_not_name_stays(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await ledger.commit(Change(session="s_a", status="waiting", reason="a person", record={"n": 1}))

    await ledger.append("s_a", NewEvent(type="note"))
    kept = await ledger.session("s_a")
    await ledger.commit(Change(session="s_a", status="active"))
    resumed = await ledger.session("s_a")

    assert (kept.status, kept.reason, kept.record) == ("waiting", "a person", {"n": 1})
    # A reason explains one status; it does not outlive it.
    assert (resumed.status, resumed.reason, resumed.record) == ("active", "", {"n": 1})


@proves("ledger.session-pages")
async def test_pages_walk_through_all_sessions_newest_first(ledger: Ledger) -> None:
    for number in range(7):
        await start(ledger, f"s_{number}")

    first = await ledger.sessions(limit=3)
    await start(ledger, "s_late")
    second = await ledger.sessions(limit=3, cursor=first.next)
    third = await ledger.sessions(limit=3, cursor=second.next)

    assert [s.id for page in (first, second, third) for s in page.items] == [f"s_{n}" for n in reversed(range(7))]
    assert third.next is None


@proves("ledger.session-pages")
async def test_a_full_last_page_has_no_successor(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await start(ledger, "s_b")

    assert (await ledger.sessions(limit=2)).next is None


@proves("ledger.session-pages")
async def test_sessions_are_filtered_by_every_combination(ledger: Ledger) -> None:
    await start(ledger, "s_a", kind="agent", namespace="/p")
    await start(ledger, "s_b", kind="agent", namespace="/q", parent="s_a", name="aria")
    await start(ledger, "s_c", kind="runtime", namespace="/p", parent="s_a", name="aria")
    await ledger.commit(Change(session="s_c", status="done"))

    assert await ids(ledger, kind="agent") == ["s_b", "s_a"]
    assert await ids(ledger, status="active") == ["s_b", "s_a"]
    assert await ids(ledger, namespace="/p") == ["s_c", "s_a"]
    assert await ids(ledger, parent="s_a") == ["s_c", "s_b"]
    assert await ids(ledger, name="aria") == ["s_c", "s_b"]
    assert await ids(ledger, name="aria", kind="agent") == ["s_b"]
    assert await ids(ledger, kind="agent", namespace="/p") == ["s_a"]
    assert await ids(ledger, status="done", namespace="/p", kind="runtime", parent="s_a") == ["s_c"]
    assert await ids(ledger, status="done", kind="agent") == []
    assert await ids(ledger, without="/p") == ["s_b"]
    assert await ids(ledger, without="p") == ["s_c", "s_b", "s_a"]
    assert await ids(ledger, without="/", kind="agent") == []


@proves("ledger.cursors")
async def test_a_cursor_of_another_list_is_refused(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await start(ledger, "s_b")
    page = await ledger.sessions(limit=1)

    with pytest.raises(BadRecord, match="not a cursor of the list of requests"):
        await ledger.requests(cursor=page.next)
    with pytest.raises(BadRecord, match="not a cursor"):
        await ledger.sessions(cursor="1; DROP TABLE sessions")
    with pytest.raises(BadRecord, match=r"The page size is 0\. Use 1 or more"):
        await ledger.sessions(limit=0)


@proves("ledger.sessions")
async def test_sessions_are_listed_in_both_orders_page_by_page(ledger: Ledger) -> None:
    made = [f"s_{letter}" for letter in "abcde"]
    for session in made:
        await start(ledger, session, namespace="/p")
    await start(ledger, "s_other", namespace="/other")

    listed: list[str] = []
    cursor: str | None = None
    while True:
        page = await ledger.sessions(namespace="/p", cursor=cursor, limit=2, oldest_first=True)
        listed += [session.id for session in page.items]
        if (cursor := page.next) is None:
            break

    assert listed == made
    assert await ids(ledger, namespace="/p") == made[::-1]


@proves("ledger.sessions")
async def test_sessions_are_found_by_the_beginning_of_their_id_whatever_their_status(ledger: Ledger) -> None:
    for name in ("s_ab1", "s_aa", "s_ab0", "s_ac", "s_b"):
        await start(ledger, name)
    await ledger.erase(["s_ab1"], actor="me", reason="deleted")

    async def find(beginning: str, limit: int = 50) -> list[str]:
        return [session.id for session in await ledger.sessions_by_id(beginning, limit=limit)]

    assert await find("s_ab") == ["s_ab0", "s_ab1"]
    assert await find("s_a", limit=2) == ["s_aa", "s_ab0"]
    assert await find("s_ab0") == ["s_ab0"]
    assert await find("s_abc") == []


@proves("ledger.sessions")
async def test_sessions_are_found_by_the_ending_of_their_name_page_by_page(ledger: Ledger) -> None:
    for number, name in enumerate(("c@1", "a@1", "b@1", "a@11", "%@2", "1")):
        await start(ledger, f"s_{number}", name=name, namespace="/one")
    await start(ledger, "s_other", name="d@1", namespace="/two")
    await start(ledger, "s_none", namespace="/one")
    await ledger.erase(["s_2"], actor="me", reason="deleted")

    async def find(ending: str, **page: Any) -> list[str | None]:
        return [session.name for session in await ledger.sessions_by_name("/one", ending, **page)]

    assert await find("@1") == ["a@1", "c@1"]
    assert await find("@1", limit=1) == ["a@1"]
    assert await find("@1", after="a@1") == ["c@1"]
    assert await find("%@2") == ["%@2"]
    assert await find("_@1") == []
