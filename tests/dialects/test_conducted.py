"""A worker that reaches another server: the session that the conductor moves stays with the conductor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fidelio.app import application
from fidelio.conductor.plan import RUN_STARTED
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, NewEvent
from fidelio.settings import Settings
from tests.dialects.conftest import Player, playing
from tests.support import proves

RUN = "s_000000000001.1"


async def conduct(settings: Settings) -> None:
    """Record for the only session what the conductor records when it begins."""
    async with await open_ledger(settings.ledger) as ledger:
        (session,) = (await ledger.sessions(kind="workflow")).items
        event = NewEvent(type=RUN_STARTED, body={"plan": {}}, actor="conductor")
        await ledger.commit(Change(session=session.id, events=(event,)))


async def began(play: Player, dialect: str) -> str:
    if dialect != "navigator":
        return await play.at("tune")
    reply = await play("nav_start", workflow_id="score")
    return str(json.loads(reply.text)["state"])


async def end(play: Player, dialect: str, token: str) -> tuple[bool, str]:
    """Try to move the session to its end."""
    if dialect == "navigator":
        reply = await play("nav_action", state=token, action="transition", activity_id="tune")
    else:
        reply = await play("next_activity", session_token=token, activity_id="__terminal__")
    return reply.is_error, reply.text


@proves("sessions.conducted")
@pytest.mark.parametrize("dialect", ["sessions", "gates", "navigator"])
async def test_an_agent_does_not_move_what_the_conductor_moves(
    settings: Settings, library: Path, monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    async with playing(settings, library, dialect=dialect) as play:
        token = await began(play, dialect)
    await conduct(settings)

    monkeypatch.setenv("FIDELIO_AGENT", RUN)
    async with playing(settings, library, dialect=dialect) as agent:
        is_error, text = await end(agent, dialect, token)

    assert is_error or dialect == "navigator"
    assert "is moved by the conductor" in text


@proves("sessions.conducted")
async def test_an_agent_does_not_answer_in_what_the_conductor_moves(
    settings: Settings, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with playing(settings, library) as play:
        token = await play.at("tune")
        handle = (await play("yield_checkpoint", session_token=token, checkpoint_id="how")).token
    await conduct(settings)

    monkeypatch.setenv("FIDELIO_AGENT", RUN)
    async with playing(settings, library) as agent:
        refused = await agent("respond_checkpoint", checkpoint_handle=handle, option_id="piano")
        child = await agent("start_session", workflow_id="score")

    assert "is moved by the conductor" in refused.text
    assert not child.is_error


@proves("sessions.conducted")
async def test_an_agent_moves_a_session_of_its_own(settings: Settings, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIDELIO_AGENT", RUN)
    async with playing(settings, library) as agent:
        token = await agent.start()
        moved = await agent("next_activity", session_token=token, activity_id="tune")

    assert not moved.is_error


def test_the_application_knows_the_event_of_the_conductor() -> None:
    assert application._CONDUCTED == RUN_STARTED
