"""Reading all events of a session in pages."""

from __future__ import annotations

from functools import partial

import pytest

from fidelio.errors import SessionNotFound
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.ledger.paging import PAGE, all_events, all_pages, event_pages
from tests.support import proves
from tests.support.ledgers import start


@proves("ledger.all-events")
@pytest.mark.parametrize("count", [1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 1])
async def test_every_event_is_read_once_and_in_order(ledger: Ledger, count: int) -> None:
    await start(ledger, "s_a")
    await ledger.append("s_a", *[NewEvent(type="note")] * (count - 1))

    assert [event.seq for event in await all_events(ledger, "s_a")] == list(range(1, count + 1))


@proves("ledger.all-events")
async def test_only_events_after_a_number_and_of_the_wanted_types_are_read(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await ledger.append("s_a", *[NewEvent(type="note"), NewEvent(type="noise")] * (PAGE + 1))

    found = await all_events(ledger, "s_a", after=2, types=["noise"])

    assert [event.seq for event in found] == list(range(3, 2 * PAGE + 4, 2))


@proves("ledger.all-events")
async def test_events_that_are_appended_between_two_pages_are_read(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await ledger.append("s_a", *[NewEvent(type="note")] * (PAGE - 1))
    sizes = []
    async for page in event_pages(ledger, "s_a"):
        sizes.append(len(page))
        if len(sizes) == 1:
            await ledger.append("s_a", NewEvent(type="note"))

    assert sizes == [PAGE, 1]


@proves("ledger.all-events")
async def test_a_session_that_does_not_exist_is_an_error(ledger: Ledger) -> None:
    with pytest.raises(SessionNotFound):
        await all_events(ledger, "s_missing")


@proves("ledger.all-pages")
async def test_a_list_of_more_than_one_page_is_read_to_its_end(ledger: Ledger) -> None:
    names = [f"s_{number:05}" for number in range(PAGE + 1)]
    await ledger.commit(*(Change(session=name, create=NewSession(kind="agent")) for name in names))
    await start(ledger, "s_other")

    found = [session.id async for session in all_pages(partial(ledger.sessions, kind="agent"))]

    assert sorted(found) == names
