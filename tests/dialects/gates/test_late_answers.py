"""An answer that comes late: it belongs to the asking that its token was made for, and never decides what is asked now."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from tests.dialects.conftest import Opens, Player
from tests.dialects.gates.conftest import moved_to, payload, respond
from tests.support import proves

# Both activities ask under the same names, and lead to each other.
ROUND = """
id: round
version: 1.0.0
title: A round
initialActivity: read
activities:
  - id: read
    version: 1.0.0
    name: Read
    checkpoints: &both
      - {id: confirm, name: Confirm, message: Shall we?, options: [{id: y, label: Yes}, {id: n, label: No}]}
      - {id: loudly, name: Loudly, message: Loudly?, options: [{id: y, label: Yes}, {id: n, label: No}]}
    transitions: [{to: burn}]
  - id: burn
    version: 1.0.0
    name: Burn
    checkpoints: *both
    transitions: [{to: read}]
"""
BOTH = ["confirm", "loudly"]


@pytest.fixture
def library(library: Path) -> Path:
    (library / "round.yaml").write_text(ROUND)
    return library


async def entered(play: Player) -> str:
    return await moved_to(play, await play.start("round"), "read")


async def onwards(play: Player, token: str, *activities: str) -> str:
    """Says yes to everything and goes on, through these activities."""
    for activity in activities:
        for checkpoint in BOTH:
            token = (await respond(play, token, checkpoint, option_id="y")).token
        token = await moved_to(play, token, activity)
    return token


@proves("gates.late-answer")
@pytest.mark.parametrize("way", [["burn"], ["burn", "read"]], ids=["in another activity", "in a later visit"])
@pytest.mark.parametrize("checkpoint", BOTH)
async def test_a_repeated_answer_is_confirmed_and_what_is_asked_now_stays_open(
    play: Player, settings: Settings, way: list[str], checkpoint: str
) -> None:
    old = await entered(play)
    await onwards(play, old, *way)
    same = await respond(play, old, checkpoint, option_id="y")
    other = await respond(play, old, checkpoint, option_id="n")
    async with await open_ledger(settings.ledger) as ledger:
        answers = await ledger.events(types=["request.answered"])

    assert (same.json["resolved_option"], same.json["remaining_checkpoints"]) == ("y", BOTH)
    assert "answered already" in other.text
    assert len(answers) == len(way) * 2
    assert payload(same.token)["pcp"] == BOTH


@proves("gates.late-answer")
async def test_a_token_of_an_earlier_visit_cannot_answer_what_was_not_asked_there(memory: Opens, library: Path) -> None:
    file = library / "round.yaml"
    file.write_text(
        ROUND.replace("checkpoints: *both", "checkpoints: [{id: more, name: M, message: More?, options: [{id: y, label: Y}]}]")
    )
    async with memory() as play:
        old = await entered(play)
        now = await onwards(play, old, "burn")
        late = await respond(play, old, "more", option_id="y")
        read = await play("get_checkpoint", session_token=old, activity_id="burn", checkpoint_id="more")
        answered = await respond(play, read.token, "more", option_id="y")

    assert late.is_error
    assert "after this token was made" in late.text
    assert payload(now)["pcp"] == ["more"]
    assert answered.json["remaining_checkpoints"] == []


@proves("gates.late-answer", "gates.tokens")
async def test_a_token_superseded_by_reads_and_other_answers_still_answers(memory: Opens) -> None:
    async with memory() as play:
        old = await onwards(play, await entered(play), "burn", "read")
        await play("get_checkpoint", session_token=old, activity_id="read", checkpoint_id="confirm")
        await moved_to(play, old, "read")
        replies = [await respond(play, old, checkpoint, option_id="n") for checkpoint in reversed(BOTH)]

    assert [reply.json["resolved_option"] for reply in replies] == ["n", "n"]
    assert replies[-1].json["remaining_checkpoints"] == []


@proves("gates.late-answer")
async def test_an_answer_repeated_after_the_end_is_confirmed(memory: Opens) -> None:
    async with memory() as play:
        old = await entered(play)
        await onwards(play, old, "__terminal__")
        same = await respond(play, old, "loudly", option_id="y")
        unknown = await respond(play, old, "nope", option_id="y")

    assert same.json["resolved_option"] == "y"
    assert "not pending" in unknown.text
