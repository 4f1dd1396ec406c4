"""Questions that take only a signed answer: what agents are told to do about them, in the three dialects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fidelio.settings import Settings
from tests.dialects.conftest import Player, playing
from tests.support import proves
from tests.workflows.test_person_checkpoints import CLAIM, move, write


@proves("workflows.proven-refusal")
@pytest.mark.parametrize("dialect", ["sessions", "gates", "navigator"])
async def test_what_must_be_signed_is_answered_on_the_page(settings: Settings, library: Path, dialect: str) -> None:
    write(library)
    file = library / "gate" / "workflow.yaml"
    file.write_text(file.read_text().replace("answered_by: person", "answered_by: proven"))
    async with playing(settings, library, dialect=dialect) as play:
        replies = await (_navigate(play) if dialect == "navigator" else _answer_early(play, dialect))

    assert [reply for reply in replies if "fidelio answer" in reply] == []
    assert len([reply for reply in replies if "fidelio open" in reply]) >= 1


async def _navigate(play: Player) -> list[str]:
    started = await play("nav_start", workflow_id="gate")
    respond = {"action": "respond_to_checkpoint", "checkpoint_id": "sure", "option_id": "yes_"}
    return [(await play("nav_action", state=json.loads(started.text)["state"], **respond)).text]


async def _answer_early(play: Player, dialect: str) -> list[str]:
    token, replies = (await move(play, await play.start("gate"), "work")).token, list[str]()
    if dialect == "sessions":
        yielded = await play("yield_checkpoint", session_token=token, checkpoint_id="sure")
        resumed = await play("resume_checkpoint", session_token=yielded.token)
        token, replies = yielded.token, [yielded.text, resumed.text]
    named = {"checkpoint_id": "sure"} if dialect == "gates" else {}
    answered = await play("respond_checkpoint", session_token=token, option_id="yes_", **named)
    dismissed = await play("respond_checkpoint", session_token=token, condition_not_met=True, **named)
    left = await move(play, token, "after", step_manifest=CLAIM)
    return [*replies, answered.text, dismissed.text, left.text]
