"""Requests whether a tool may run: they expire, and only a person answers them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.errors import PersonNeeded, RequestClosed
from fidelio.inbox import APPROVAL, Inbox, expire_request, open_request
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.model import Change, NewEvent, NewSession
from tests.support import proves

SESSION = "s_000000000001"
OPTIONS = ({"id": "allow", "label": "Allow"}, {"id": "deny", "label": "Deny"})
EXPIRES = 9_000_000_000_000


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    async with await open_ledger(tmp_path / "ledger.db") as opened:
        yield opened


async def ask(ledger: Ledger, kind: str = APPROVAL, detail: dict[str, str] | None = None) -> str:
    request = open_request(kind, "digest", "May it run?", OPTIONS, detail or {}, expires_at=EXPIRES)
    asked = NewEvent(type="approval.requested", body={"request": request.id})
    await ledger.commit(Change(session=SESSION, create=NewSession(kind="runtime"), events=(asked,), requests=(request,)))
    return request.id


@proves("inbox.approval")
@pytest.mark.parametrize("channel", ["relayed", "timer"])
async def test_only_a_person_answers_whether_a_tool_may_run(ledger: Ledger, channel: str) -> None:
    request = await ask(ledger)

    with pytest.raises(PersonNeeded, match=rf"answer {request} allow"):
        await Inbox(ledger).answer(request, "allow", by="agent", channel=channel)

    assert (await ledger.request(request)).state == "open"
    assert len(await ledger.events(SESSION)) == 1


@proves("inbox.approval")
@pytest.mark.parametrize("channel", ["cli", "web", "elicited", "api"])
async def test_a_person_answers_it_over_each_channel_of_people(ledger: Ledger, channel: str) -> None:
    request = await ask(ledger)

    answered = await Inbox(ledger).answer(request, "deny", text="Not today.", by="person:a", channel=channel)

    assert answered.request.answer == {"option": "deny", "text": "Not today."}


@proves("inbox.expiry")
async def test_an_expired_request_takes_no_answer(ledger: Ledger) -> None:
    request = await ask(ledger)

    with pytest.raises(RequestClosed, match="expired"):
        await Inbox(ledger, clock=lambda: EXPIRES).answer(request, "allow", by="person:a", channel="cli")
    await Inbox(ledger, clock=lambda: EXPIRES - 1).answer(request, "allow", by="person:a", channel="cli")


@proves("inbox.expiry")
async def test_expiry_is_recorded_as_the_timer(ledger: Ledger) -> None:
    request = await ask(ledger)
    expired = NewEvent(type="approval.ended", body={"request": request})
    await ledger.commit(Change(session=SESSION, events=(expired,), requests=(expire_request(request),)))

    found = await ledger.request(request)

    assert (found.state, found.channel, found.assurance) == ("expired", "timer", "timer")


@proves("inbox.api-unseen")
@pytest.mark.parametrize(("kind", "detail"), [(APPROVAL, {}), ("checkpoint", {"answered_by": "person"})])
async def test_a_program_that_cannot_be_looked_at_does_not_answer_for_a_person(
    ledger: Ledger, kind: str, detail: dict[str, str]
) -> None:
    request = await ask(ledger, kind, detail)

    with pytest.raises(PersonNeeded, match=f"answer {request}"):
        await Inbox(ledger).answer(request, "allow", by="person:a", channel="api", is_seen=False)

    assert (await ledger.request(request)).state == "open"


@proves("inbox.api-unseen")
@pytest.mark.parametrize(("is_seen", "assurance"), [(True, "local"), (False, "relayed")])
async def test_the_assurance_of_an_answer_over_the_api_depends_on_whether_its_program_was_seen(
    ledger: Ledger, is_seen: bool, assurance: str
) -> None:
    request = await ask(ledger, "question", {})

    answered = await Inbox(ledger).answer(request, "allow", by="person:a", channel="api", is_seen=is_seen)

    (event,) = [each for each in await ledger.events(SESSION) if each.type == "request.answered"]
    assert (answered.request.channel, answered.request.assurance) == ("api", assurance)
    assert event.body["assurance"] == assurance
