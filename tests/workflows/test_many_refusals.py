"""A session stays usable after any number of refused calls: more than one page of events, over a restart, in every dialect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.engine.record import CALLED, Record, decode_record
from fidelio.errors import UsageProblem
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.audit import verify_session
from fidelio.ledger.model import Change, CommitResult, NewEvent, Session
from fidelio.ledger.unit_of_work import REFUSAL_ATTEMPTS
from fidelio.settings import Settings
from fidelio.workflows.moves import Move
from fidelio.workflows.start import StartInput
from tests.dialects.conftest import Player, ToolReply, playing
from tests.support import proves

ONE_PAGE = 1000
Json = dict[str, Any]


@dataclass(frozen=True)
class Calls:
    """How one dialect starts a session, has a call refused for what it asks and for its form, and goes on."""

    dialect: str
    start: Callable[[Player], Awaitable[str]]
    key: str
    refused: tuple[str, Json]
    malformed: tuple[str, Json]
    accepted: tuple[str, Json]

    async def make(self, play: Player, token: str, call: tuple[str, Json]) -> ToolReply:
        tool, arguments = call
        return await play(tool, **{self.key: token}, **arguments)


async def _start_in_tune(play: Player) -> str:
    return await play.at("tune")


async def _start_led(play: Player) -> str:
    return str((await play("nav_start", workflow_id="score")).json["state"])


TO_NOWHERE = ("next_activity", {"activity_id": "nowhere"})
WITHOUT_TARGET: tuple[str, Json] = ("next_activity", {})
DIALECTS = [
    Calls(
        "sessions", _start_in_tune, "session_token", TO_NOWHERE, WITHOUT_TARGET, ("yield_checkpoint", {"checkpoint_id": "how"})
    ),
    Calls(
        "gates",
        _start_in_tune,
        "session_token",
        TO_NOWHERE,
        WITHOUT_TARGET,
        ("respond_checkpoint", {"checkpoint_id": "how", "option_id": "forte"}),
    ),
    Calls(
        "navigator",
        _start_led,
        "state",
        ("nav_action", {"action": "complete_step", "step_id": "nothing"}),
        ("nav_action", {"action": "jump"}),
        ("nav_action", {"action": "respond_to_checkpoint", "checkpoint_id": "encore", "option_id": "some"}),
    ),
]


@pytest.fixture(params=DIALECTS, ids=lambda calls: calls.dialect)
def calls(request: pytest.FixtureRequest) -> Calls:
    found: Calls = request.param
    return found


async def started(settings: Settings, library: Path, calls: Calls) -> str:
    async with playing(settings, library, dialect=calls.dialect) as play:
        return await calls.start(play)


async def only_session(ledger: Ledger) -> Session:
    (session,) = (await ledger.sessions()).items
    return session


async def stored(settings: Settings) -> tuple[Session, Record]:
    """The session and its record as they are in the ledger, with a chain that holds."""
    async with await open_ledger(settings.ledger) as ledger:
        session = await only_session(ledger)
        await verify_session(ledger, session.id)
        return session, decode_record(session.raw)


async def append_refusals(ledger: Ledger, count: int) -> None:
    """Events as older versions appended them: the stored record stays behind."""
    session = await only_session(ledger)
    body = {"name": "next_activity", "ms": 0, "s": "error", "act": "tune", "aid": "a", "err": "usage"}
    await ledger.append(session.id, *[NewEvent(type=CALLED, body=body, actor="a")] * count)


async def accepted_after_restart(settings: Settings, library: Path, calls: Calls, token: str) -> None:
    async with playing(settings, library, dialect=calls.dialect) as play:
        reply = await calls.make(play, token, calls.accepted)
        assert not reply.is_error, reply.text
    session, record = await stored(settings)
    assert record.seq == session.last_seq


@proves("sessions.refusals-without-limit")
async def test_a_session_goes_on_after_many_refused_calls_and_a_restart(
    settings: Settings, library: Path, calls: Calls
) -> None:
    count = ONE_PAGE + 1
    token = await started(settings, library, calls)
    before, _ = await stored(settings)
    async with playing(settings, library, dialect=calls.dialect) as play:
        for _ in range(count):
            assert (await calls.make(play, token, calls.refused)).is_error
    session, record = await stored(settings)

    assert record.seq == session.last_seq == before.last_seq + count
    assert session.status == before.status
    await accepted_after_restart(settings, library, calls, token)


@proves("sessions.refusals-without-limit")
async def test_a_session_goes_on_after_many_calls_that_were_refused_for_their_form(
    settings: Settings, library: Path, calls: Calls
) -> None:
    count = ONE_PAGE + 1
    token = await started(settings, library, calls)
    before, _ = await stored(settings)
    async with playing(settings, library, dialect=calls.dialect) as play:
        for _ in range(count):
            assert (await calls.make(play, token, calls.malformed)).is_error
        assert not (await calls.make(play, token, calls.accepted)).is_error
    session, record = await stored(settings)

    assert record.seq == session.last_seq > before.last_seq + count


@proves("sessions.record-behind")
@pytest.mark.parametrize("count", [ONE_PAGE - 1, ONE_PAGE, ONE_PAGE + 1, 5 * ONE_PAGE])
async def test_a_session_whose_record_is_behind_is_repaired_by_the_next_call(
    settings: Settings, library: Path, calls: Calls, count: int
) -> None:
    token = await started(settings, library, calls)
    async with await open_ledger(settings.ledger) as ledger:
        await append_refusals(ledger, count)
    session, record = await stored(settings)
    assert record.seq == session.last_seq - count

    await accepted_after_restart(settings, library, calls, token)


@proves("sessions.record-behind")
@pytest.mark.parametrize("kind", ["refused", "malformed"])
async def test_a_refused_call_repairs_the_record_too(settings: Settings, library: Path, calls: Calls, kind: str) -> None:
    token = await started(settings, library, calls)
    async with await open_ledger(settings.ledger) as ledger:
        await append_refusals(ledger, 2 * ONE_PAGE)
    async with playing(settings, library, dialect=calls.dialect) as play:
        assert (await calls.make(play, token, getattr(calls, kind))).is_error
    session, record = await stored(settings)

    assert record.seq == session.last_seq
    await accepted_after_restart(settings, library, calls, token)


@proves("sessions.record-behind")
async def test_a_record_that_falls_behind_under_a_server_at_work_is_caught_up(
    settings: Settings, library: Path, calls: Calls
) -> None:
    async with playing(settings, library, dialect=calls.dialect) as play:
        token = await calls.start(play)
        async with await open_ledger(settings.ledger) as ledger:
            await append_refusals(ledger, ONE_PAGE + 1)
        reply = await calls.make(play, token, calls.accepted)

    assert not reply.is_error, reply.text


@proves("sessions.refusals-without-limit")
async def test_refusals_at_the_same_time_are_all_on_record(settings: Settings, library: Path, calls: Calls) -> None:
    """More of them than one refusal is retried: whoever loses every time is appended without the record."""
    count = 10 * REFUSAL_ATTEMPTS
    token = await started(settings, library, calls)
    before, _ = await stored(settings)
    async with playing(settings, library, dialect=calls.dialect) as play:
        kinds = (calls.refused, calls.malformed)
        replies = await asyncio.gather(*(calls.make(play, token, kinds[number % 2]) for number in range(count)))
    session, _ = await stored(settings)

    assert all(reply.is_error for reply in replies)
    assert session.last_seq == before.last_seq + count
    await accepted_after_restart(settings, library, calls, token)


@proves("sessions.refusals-without-limit")
async def test_a_refusal_that_loses_every_time_is_still_on_record(
    settings: Settings, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Application(settings, [str(library)]) as house:
        service = await house.workflows()
        ledger, token = service.unit.ledger, (await service.sessions.start(StartInput("score", "agent"))).token
        session, commit = await only_session(ledger), ledger.commit

        async def commit_after_another(*changes: Change) -> tuple[CommitResult, ...]:
            if changes[0].expect is not None:
                await ledger.append(session.id, NewEvent(type="note"))
            return await commit(*changes)

        monkeypatch.setattr(ledger, "commit", commit_after_another)
        await service.unit.record_refused_call("next_activity", token, UsageProblem("No.", remedy="None."))
        monkeypatch.undo()
        events = await ledger.events(session.id, after=session.last_seq)
        await service.moves.move(token, Move("tune"))
    after, record = await stored(settings)

    assert [event.type for event in events] == ["note"] * REFUSAL_ATTEMPTS + [CALLED]
    assert record.seq == after.last_seq
