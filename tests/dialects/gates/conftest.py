"""The player of this suite speaks `gates`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.tokens.seal import read_unverified
from tests.dialects.conftest import Player, ToolReply

TUNE = ["how", "encore", "cold", "conductor"]
RELAYED: dict[str, dict[str, Any]] = {
    "how": {"option_id": "forte"},
    "encore": {"option_id": "some"},
    "cold": {"condition_not_met": True},
}


@pytest.fixture
def dialect() -> str:
    return "gates"


async def respond(play: Player, token: str, checkpoint: str, **choice: Any) -> ToolReply:
    return await play("respond_checkpoint", session_token=token, checkpoint_id=checkpoint, **choice)


def pending(reply: ToolReply) -> list[str]:
    """What a reply of next_activity says is pending."""
    return [one["checkpoint_id"] for one in reply.json["pending_checkpoints"]]


def payload(token: str) -> dict[str, Any]:
    found = read_unverified(token)
    assert found is not None
    return found


async def person_answers(settings: Settings, option: str, checkpoint: str) -> None:
    """Somebody answers on the command line."""
    async with await open_ledger(settings.ledger) as ledger:
        found = (await ledger.requests(state="open")).items
        (request,) = [one for one in found if one.detail["checkpoint"] == checkpoint]
        await Inbox(ledger).answer(request.id, option, by="person:test", channel="cli")


async def answer_all(play: Player, settings: Settings, token: str, **others: dict[str, Any]) -> str:
    """Clears the pending list of `tune`, the person's question included."""
    for checkpoint, choice in {**RELAYED, **others}.items():
        token = (await respond(play, token, checkpoint, **choice)).token
    await person_answers(settings, "begin", "conductor")
    return token


async def moved_to(play: Player, token: str, activity: str, **more: Any) -> str:
    return (await play("next_activity", session_token=token, activity_id=activity, **more)).token


def one_block(reply: ToolReply) -> Any:
    """The JSON of a reply, which is compact and nothing but JSON."""
    found = json.loads(reply.text)
    assert json.dumps(found, separators=(",", ":"), ensure_ascii=False) == reply.text
    return found
