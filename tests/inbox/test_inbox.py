"""What waits for a person, and how it is answered."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.errors import RequestClosed, RequestNotFound, UsageProblem
from fidelio.inbox import Inbox, open_request, require_person
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.audit import verify_session
from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.processes.table import AGENT_MARKER
from tests.support import proves

OPTIONS = ({"id": "yes", "label": "Yes", "effect": {"setVariable": {"go": True}}}, {"id": "no", "label": "No"})


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    async with await open_ledger(tmp_path / "ledger.db") as opened:
        yield opened


async def ask(ledger: Ledger, key: str = "a/ask#1", *, session: str = "s_000000000001") -> str:
    request = open_request("checkpoint", key, "Shall we?", OPTIONS, {})
    create = NewSession(kind="workflow")
    asked = NewEvent(type="checkpoint.yielded", body={"request": request.id})
    await ledger.commit(Change(session=session, create=create, events=(asked,), requests=(request,)))
    return request.id


@proves("inbox.lists")
async def test_what_was_asked_first_is_listed_first(ledger: Ledger) -> None:
    first = await ask(ledger, session="s_000000000001")
    second = await ask(ledger, session="s_000000000002")

    waiting = await Inbox(ledger).list_requests()

    assert [request.id for request in waiting.items] == [first, second]


@proves("inbox.person")
async def test_who_is_slower_is_told_the_answer_and_whose_it_is(ledger: Ledger) -> None:
    request, inbox = await ask(ledger), Inbox(ledger)
    await inbox.answer(request, "yes", by="person:a", channel="cli")

    with pytest.raises(RequestClosed, match="is answered already, with yes by person:a"):
        await inbox.answer(request, "no", by="person:b", channel="cli")


@proves("inbox.person")
async def test_a_text_alone_is_no_answer_where_there_are_options(ledger: Ledger) -> None:
    request = await ask(ledger)

    with pytest.raises(UsageProblem, match="needs an option, and a text alone is none"):
        await Inbox(ledger).answer(request, "", text="hi", by="person:a", channel="cli")


@proves("inbox.person", "workflows.record")
async def test_an_answer_is_an_event_with_its_author_channel_effect_and_delay(ledger: Ledger) -> None:
    request = await ask(ledger)
    opened_at = (await ledger.request(request)).opened_at

    answered = await Inbox(ledger, clock=lambda: opened_at + 4321).answer(request, "yes", by="person:a", channel="cli")
    (event,) = await ledger.events("s_000000000001", types=["request.answered"])

    assert (answered.request.state, answered.repeated) == ("answered", False)
    assert event.actor == "person:a"
    assert event.body["effect"] == {"setVariable": {"go": True}}
    assert (event.body["channel"], event.body["assurance"], event.body["after_ms"]) == ("cli", "local", 4321)
    assert (await verify_session(ledger, "s_000000000001")).events == 2


@proves("workflows.one-answer")
async def test_the_same_answer_again_is_fine_and_a_different_one_is_refused(ledger: Ledger) -> None:
    inbox, request = Inbox(ledger), await ask(ledger)
    await inbox.answer(request, "yes", by="person:a", channel="cli")

    assert (await inbox.answer(request, "yes", by="person:b", channel="cli")).repeated
    with pytest.raises(RequestClosed):
        await inbox.answer(request, "no", by="person:b", channel="cli")
    assert len(await ledger.events("s_000000000001", types=["request.answered"])) == 1


@proves("workflows.one-answer")
async def test_of_two_answers_at_once_exactly_one_is_taken(ledger: Ledger) -> None:
    inbox, request = Inbox(ledger), await ask(ledger)
    tries = [inbox.answer(request, option, by="person:a", channel="cli") for option in ("yes", "no", "yes", "no")]

    results = await asyncio.gather(*tries, return_exceptions=True)

    taken = (await ledger.request(request)).answer["option"]
    assert [isinstance(result, RequestClosed) for result in results] == [
        option != taken for option in ("yes", "no", "yes", "no")
    ]
    assert len(await ledger.events("s_000000000001", types=["request.answered"])) == 1


@proves("inbox.lists")
async def test_an_unknown_option_or_request_is_refused_with_what_there_is(ledger: Ledger) -> None:
    request = await ask(ledger)

    with pytest.raises(UsageProblem, match=r"The options are: yes, no\."):
        await Inbox(ledger).answer(request, "maybe", by="person:a", channel="cli")
    with pytest.raises(RequestNotFound):
        await Inbox(ledger).answer("r_nothing", "yes", by="person:a", channel="cli")


CLEARED = """
import os, subprocess, sys
environ = {name: value for name, value in os.environ.items() if name != "FIDELIO_AGENT"}
ask = [sys.executable, "-c", "from fidelio.inbox import require_person; require_person()"]
sys.exit(subprocess.run(ask, env=environ).returncode)
"""


@proves("inbox.person")
def test_clearing_its_own_environment_does_not_help_a_process_below_an_agent() -> None:
    environ = {**os.environ, AGENT_MARKER: "s_000000000001"}

    below = subprocess.run(
        [sys.executable, "-c", CLEARED], env=environ, capture_output=True, text=True, timeout=60, check=False
    )

    assert below.returncode == 1
    assert "only a person may do this" in below.stderr


@proves("inbox.person")
def test_a_process_below_an_agent_cannot_play_the_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AGENT_MARKER, "s_000000000001")

    with pytest.raises(UsageProblem, match="only a person may do this"):
        require_person()


@proves("inbox.person", "cli.surroundings")
def test_a_user_whom_the_system_does_not_know_answers_under_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(number)

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)

    assert require_person() == f"person:uid-{os.getuid()}"
