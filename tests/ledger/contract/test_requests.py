"""Requests are opened once per key and closed once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fidelio.errors import BadRecord, RequestClosed, RequestExists, RequestNotFound
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, CloseRequest, NewEvent, OpenRequest, Request
from tests.support import proves
from tests.support.ledgers import MovingClock, start


def asking(id_: str, key: str | None = None, **more: Any) -> OpenRequest:  # what a request may hold
    return OpenRequest(id=id_, kind="checkpoint", key=key or id_, question=f"{id_}?", **more)


async def ask(ledger: Ledger, session: str, *requests: OpenRequest) -> None:
    await ledger.commit(Change(session=session, requests=requests))


@proves("ledger.requests")
async def test_an_open_request_comes_back_as_it_was_asked(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    options = ({"id": "yes", "label": "Ja"}, {"id": "no"})
    await ask(ledger, "s_a", asking("r_1", "step/1", options=options, subject="abc", detail={"n": 1}, expires_at=clock.now + 5))

    assert await ledger.request("r_1") == Request(
        id="r_1",
        session="s_a",
        kind="checkpoint",
        key="step/1",
        question="r_1?",
        options=options,
        subject="abc",
        detail={"n": 1},
        state="open",
        answer={},
        answered_by="",
        channel="",
        assurance="",
        opened_at=clock.now,
        closed_at=None,
        expires_at=clock.now + 5,
    )


@proves("ledger.requests")
async def test_an_answer_records_who_gave_it_how_and_when(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    await ask(ledger, "s_a", asking("r_1"))
    clock.now += 7
    answer = CloseRequest(id="r_1", answer={"option": "yes"}, by="ada", channel="cli", assurance="local")
    await ledger.commit(Change(session="s_a", events=(NewEvent(type="answered"),), requests=(answer,)))

    request = await ledger.request("r_1")
    assert (request.state, request.answer) == ("answered", {"option": "yes"})
    assert (request.answered_by, request.channel, request.assurance) == ("ada", "cli", "local")
    assert request.closed_at == clock.now == request.opened_at + 7


@proves("ledger.requests")
@pytest.mark.parametrize("state", ["answered", "dismissed", "expired"])
async def test_a_closed_request_cannot_be_closed_again(ledger: Ledger, state: Any) -> None:
    await start(ledger, "s_a")
    await ask(ledger, "s_a", asking("r_1"))
    await ledger.commit(Change(session="s_a", requests=(CloseRequest(id="r_1", state=state),)))

    with pytest.raises(RequestClosed, match=f"r_1 is {state}") as refusal:
        await ledger.commit(Change(session="s_a", events=(NewEvent(type="late"),), requests=(CloseRequest(id="r_1"),)))

    assert (refusal.value.request, refusal.value.state) == ("r_1", state)
    assert (await ledger.session("s_a")).last_seq == 1


@proves("ledger.requests")
async def test_of_many_answers_at_once_one_is_taken(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await ask(ledger, "s_a", asking("r_1"))
    answers = [CloseRequest(id="r_1", answer={"n": n}) for n in range(10)]

    results = await asyncio.gather(
        *(ledger.commit(Change(session="s_a", requests=(answer,))) for answer in answers), return_exceptions=True
    )

    taken = [n for n, result in enumerate(results) if not isinstance(result, BaseException)]
    assert [type(result) for result in results].count(RequestClosed) == 9
    assert (await ledger.request("r_1")).answer == {"n": taken[0]}


@proves("ledger.requests")
async def test_the_same_thing_is_asked_once_per_session_even_after_the_answer(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await start(ledger, "s_b")
    await ask(ledger, "s_a", asking("r_1", "key"))
    await ask(ledger, "s_b", asking("r_2", "key"))
    with pytest.raises(RequestExists) as open_one:
        await ask(ledger, "s_a", asking("r_3", "key"))
    await ledger.commit(Change(session="s_a", requests=(CloseRequest(id="r_1"),)))
    with pytest.raises(RequestExists) as closed_one:
        await ask(ledger, "s_a", asking("r_3", "key"))

    assert (open_one.value.request, open_one.value.state) == ("r_1", "open")
    assert (closed_one.value.request, closed_one.value.state) == ("r_1", "answered")


@proves("ledger.requests")
async def test_a_request_id_is_taken_once(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await ask(ledger, "s_a", asking("r_1", "one"))

    with pytest.raises(BadRecord, match="r_1"):
        await ask(ledger, "s_a", asking("r_1", "two"))


@proves("ledger.requests")
async def test_a_session_cannot_answer_what_another_asked(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await start(ledger, "s_b")
    await ask(ledger, "s_a", asking("r_1"))

    with pytest.raises(RequestNotFound, match="r_1"):
        await ledger.commit(Change(session="s_b", requests=(CloseRequest(id="r_1"),)))
    with pytest.raises(RequestNotFound, match="r_none"):
        await ledger.request("r_none")
    assert (await ledger.request("r_1")).state == "open"


@proves("ledger.requests")
async def test_requests_are_listed_in_the_order_of_asking(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await start(ledger, "s_b")
    for number in range(6):
        await ask(ledger, "s_a" if number % 2 else "s_b", asking(f"r_{number}"))
    await ledger.commit(Change(session="s_a", requests=(CloseRequest(id="r_3"),)))

    first = await ledger.requests(limit=3)
    second = await ledger.requests(limit=3, cursor=first.next)

    assert [r.id for r in first.items + second.items] == ["r_0", "r_1", "r_2", "r_4", "r_5"]
    assert second.next is None
    assert [r.id for r in (await ledger.requests(session="s_a")).items] == ["r_1", "r_5"]
    assert [r.id for r in (await ledger.requests(state="answered")).items] == ["r_3"]
    assert [r.id for r in (await ledger.requests(session="s_a", state=None)).items] == ["r_1", "r_3", "r_5"]
    assert [r.id for r in (await ledger.requests(session="s_a", key="r_3", state=None)).items] == ["r_3"]


@proves("ledger.requests")
async def test_requests_are_counted_as_they_are_listed(ledger: Ledger) -> None:
    for session in ("s_a", "s_b"):
        await start(ledger, session)
        await ask(ledger, session, *(asking(f"r_{session}{number}") for number in range(3)))
    await ledger.commit(Change(session="s_b", requests=(CloseRequest(id="r_s_b0", by="ada"),)))

    async def count(**filters: Any) -> tuple[int, int]:
        return await ledger.count_requests(**filters), len((await ledger.requests(**filters)).items)

    assert await count() == (5, 5)
    assert await count(session="s_b") == (2, 2)
    assert await count(state="answered") == (1, 1)
    assert await count(state=None) == (6, 6)
    assert await count(session="s_a", state="expired") == (0, 0)
