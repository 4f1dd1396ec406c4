"""The ways of answering a pending checkpoint, and who may."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from tests.dialects.conftest import Opens, Player
from tests.dialects.gates.conftest import TUNE, payload, pending, person_answers, respond
from tests.support import proves


@proves("gates.modes")
@pytest.mark.parametrize(
    ("checkpoint", "choice", "phrase"),
    [
        ("how", {}, "Exactly one"),
        ("how", {"option_id": "forte", "condition_not_met": True}, "Exactly one"),
        ("how", {"auto_advance": False}, "Exactly one"),
        ("how", {"condition_not_met": False}, "Exactly one"),
        ("how", {"option_id": "fortissimo"}, "Invalid option"),
        ("how", {"option_id": ""}, "Invalid option"),
        ("how", {"auto_advance": True}, "blocking"),
        ("how", {"condition_not_met": True}, "no condition"),
        ("nope", {"option_id": "forte"}, "not pending"),
    ],
)
async def test_a_wrong_way_of_answering_is_refused_and_the_list_stays(
    memory: Opens, checkpoint: str, choice: dict[str, object], phrase: str
) -> None:
    async with memory() as play:
        token = await play.at("tune")
        refused = await respond(play, token, checkpoint, **choice)
        again = await play("next_activity", session_token=token, activity_id="tune")

    assert refused.is_error
    assert phrase in refused.text
    assert payload(again.token)["pcp"] == TUNE


@proves("gates.modes")
async def test_what_is_not_pending_is_refused_with_what_is(play: Player) -> None:
    fresh = await respond(play, await play.start(), "how", option_id="forte")
    elsewhere = await respond(play, await play.at("bow"), "how", option_id="forte")

    assert "not pending" in fresh.text
    assert "not pending" in elsewhere.text
    assert "next_activity" in elsewhere.text


@proves("gates.modes")
async def test_a_conditional_one_may_be_answered_or_dismissed(play: Player) -> None:
    answered = await respond(play, await play.at("tune"), "cold", option_id="no_")
    dismissed = await respond(play, await play.at("tune"), "cold", condition_not_met=True)

    assert answered.json["resolved_option"] == "no_"
    assert dismissed.json["dismissed"] is True
    assert "resolved_option" not in dismissed.json


@proves("gates.once")
async def test_the_same_answer_is_confirmed_and_another_is_refused(play: Player) -> None:
    before = await play.at("tune")
    await respond(play, before, "how", option_id="forte")
    same, other = [await respond(play, before, "how", option_id=option) for option in ("forte", "piano")]

    assert same.json["resolved_option"] == "forte"
    assert same.json["remaining_checkpoints"] == ["encore", "cold", "conductor"]
    assert other.is_error
    assert "answered already" in other.text


@proves("gates.timers")
async def test_an_answer_faster_than_a_person_is_refused(memory: Opens, settings: Settings) -> None:
    async with memory(house_settings=settings._replace(min_response_ms=60_000)) as play:
        refused = await respond(play, await play.at("tune"), "how", option_id="forte")

    assert refused.is_error
    assert "60000 ms" in refused.text


@proves("gates.timers")
async def test_the_default_is_taken_once_its_time_since_arming_has_run_out(memory: Opens, library: Path) -> None:
    file = library / "score" / "activities" / "01-tune.yaml"
    file.write_text(file.read_text().replace("autoAdvanceMs: 50", "autoAdvanceMs: 600000"))
    async with memory() as play:
        early = await respond(play, await play.at("tune"), "encore", auto_advance=True)
    file.write_text(file.read_text().replace("autoAdvanceMs: 600000", "autoAdvanceMs: 1"))
    async with memory() as play:
        token = await play.at("tune")
        # Neither looking nor entering again sets the clock back.
        for tool in ("get_checkpoint", "next_activity"):
            more = {"checkpoint_id": "encore"} if tool == "get_checkpoint" else {}
            token = (await play(tool, session_token=token, activity_id="tune", **more)).token
        taken = await respond(play, token, "encore", auto_advance=True)

    assert early.is_error
    assert "600000 ms" in early.text
    assert taken.json["resolved_option"] == "none"


@proves("gates.person")
@pytest.mark.every_transport
async def test_a_model_cannot_answer_for_the_person_but_the_person_can(play: Player, settings: Settings) -> None:
    token = await play.at("tune")
    refused = await respond(play, token, "conductor", option_id="begin")
    await person_answers(settings, "wait", "conductor")
    confirmed = await respond(play, token, "conductor", option_id="wait")
    contradicted = await respond(play, token, "conductor", option_id="begin")
    async with await open_ledger(settings.ledger) as ledger:
        (event,) = await ledger.events(types=["request.answered"])

    assert refused.is_error
    assert "fidelio answer r_" in refused.text
    assert confirmed.json["remaining_checkpoints"] == ["how", "encore", "cold"]
    assert contradicted.is_error
    assert (event.body["channel"], event.body["assurance"]) == ("cli", "local")


@proves("gates.person")
async def test_the_server_can_demand_a_person_for_everything(memory: Opens) -> None:
    async with memory(person=True) as play:
        refused = await respond(play, await play.at("tune"), "how", option_id="forte")

    assert "answered by a person" in refused.text


@proves("gates.person", "gates.arm")
async def test_pending_checkpoints_are_listed_and_answered_on_the_command_line(memory: Opens, settings: Settings) -> None:
    environ = {**os.environ, "FIDELIO_HOME": str(settings.home.path)}

    def fidelio(*arguments: str) -> str:
        command = [sys.executable, "-m", "fidelio", *arguments]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True).stdout

    async with memory() as play:
        entered = await play("next_activity", session_token=await play.start(), activity_id="tune")
        requests = {one["checkpoint_id"]: one["request_id"] for one in entered.json["pending_checkpoints"]}
        listed = await asyncio.to_thread(fidelio, "inbox", "--json")
        await asyncio.to_thread(fidelio, "answer", requests["conductor"], "begin")
        await asyncio.to_thread(fidelio, "answer", requests["how"], "piano")
        again = await play("next_activity", session_token=entered.token, activity_id="tune")
        read = await play("get_checkpoint", session_token=entered.token, activity_id="tune", checkpoint_id="how")

    assert {one["id"] for one in json.loads(listed)["items"]} == set(requests.values())
    assert pending(again) == ["encore", "cold"]
    assert (read.json["answer"]["option_id"], read.json["answer"]["channel"]) == ("piano", "cli")


@proves("gates.once", "gates.respond")
async def test_of_two_answers_at_once_one_counts_and_answers_to_others_are_not_lost(memory: Opens) -> None:
    async with memory() as one, memory() as other:
        token = await one.at("tune")
        answers = await asyncio.gather(
            respond(one, token, "how", option_id="forte"),
            respond(other, token, "how", option_id="piano"),
            respond(other, token, "encore", option_id="some"),
            respond(one, token, "cold", option_id="no_"),
        )
        again = await one("next_activity", session_token=token, activity_id="tune")

    assert [reply.is_error for reply in answers].count(True) == 1
    assert answers[0].is_error is not answers[1].is_error
    assert pending(again) == ["conductor"]


@proves("gates.modes", "gates.held")
async def test_a_question_that_its_file_has_lost_can_still_be_answered_as_it_was_asked(
    memory: Opens, settings: Settings, library: Path
) -> None:
    async with memory() as play:
        token = await play.at("tune")
        file = library / "score" / "activities" / "01-tune.yaml"
        file.write_text(file.read_text().replace("id: cold", "id: frost"))
        refused = await respond(play, token, "cold", option_id="no_")
        again = await play("next_activity", session_token=token, activity_id="tune")
        await person_answers(settings, "no_", "cold")
        after = await play("next_activity", session_token=token, activity_id="tune")

    assert "fidelio answer r_" in refused.text
    assert any("drift" in text for text in again.warnings)
    assert {one["checkpoint_id"]: one["condition_holds"] for one in again.json["pending_checkpoints"]}["cold"] is None
    assert pending(after) == ["how", "encore", "conductor", "frost"]


@proves("gates.held")
async def test_enforce_refuses_here_what_advise_warns_of(memory: Opens) -> None:
    async with memory(fidelity="enforce") as play:
        refused = await play("next_activity", session_token=await play.start(), activity_id="bow")
        entered = await play("next_activity", session_token=await play.start(), activity_id="tune")

    assert "First activity must be 'tune'" in refused.text
    assert pending(entered) == TUNE
