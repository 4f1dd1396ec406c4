"""What entering an activity arms, what that holds, and what opens it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from tests.dialects.conftest import Opens, Player
from tests.dialects.gates.conftest import RELAYED, TUNE, answer_all, moved_to, payload, pending, person_answers, respond
from tests.support import proves

HELD = {
    "get_workflow": {},
    "get_skill": {"step_id": "hear"},
    "get_resource": {"resource_index": "01"},
    "next_activity": {"activity_id": "play"},
}
OPEN = {
    "get_skills": {},
    "get_trace": {},
    "get_checkpoint": {"activity_id": "tune", "checkpoint_id": "how"},
    "next_activity": {"activity_id": "tune"},
}


@proves("gates.arm", "gates.payload")
async def test_entering_arms_every_required_checkpoint_in_order(play: Player) -> None:
    entered = await play("next_activity", session_token=await play.start(), activity_id="tune")
    sealed = payload(entered.token)

    assert pending(entered) == TUNE
    assert [one["condition_holds"] for one in entered.json["pending_checkpoints"]] == [True, True, None, False]
    assert sealed["pcp"] == TUNE
    assert abs(sealed["pcpt"] - sealed["ts"]) <= 1


@proves("gates.arm")
async def test_what_is_not_required_is_not_armed(memory: Opens, library: Path) -> None:
    file = library / "score" / "activities" / "01-tune.yaml"
    file.write_text(file.read_text().replace("blocking: false", "blocking: false\n    required: false"))
    async with memory() as play:
        entered = await play("next_activity", session_token=await play.start(), activity_id="tune")

    assert pending(entered) == ["how", "cold", "conductor"]


@proves("gates.arm")
@pytest.mark.parametrize(("mood", "holds"), [("cold", True), ("warm", False)])
async def test_a_condition_is_weighed_with_what_is_known(memory: Opens, mood: str, holds: bool) -> None:
    async with memory() as play:
        token = await play.start()
        entered = await play("next_activity", session_token=token, activity_id="tune", variables={"mood": mood})
        (cold,) = [one for one in entered.json["pending_checkpoints"] if one["checkpoint_id"] == "cold"]
        dismissed = await respond(play, entered.token, "cold", condition_not_met=True)

    assert cold["condition_holds"] is holds
    assert dismissed.is_error is holds


@proves("gates.arm")
@pytest.mark.every_transport
async def test_every_armed_checkpoint_is_a_request_in_the_inbox(play: Player, settings: Settings) -> None:
    entered = await play("next_activity", session_token=await play.start(), activity_id="tune")
    async with await open_ledger(settings.ledger) as ledger:
        found = {one.detail["checkpoint"]: one for one in (await ledger.requests(state="open")).items}

    assert {one["checkpoint_id"]: one["request_id"] for one in entered.json["pending_checkpoints"]} == {
        name: found[name].id for name in TUNE
    }
    assert found["how"].question == "How shall we play?"
    assert found["conductor"].detail["answered_by"] == "person"


@proves("gates.held")
async def test_every_token_is_held_where_the_contract_says_so(play: Player) -> None:
    before = await play.start()
    armed = await moved_to(play, before, "tune")

    for tool, arguments in HELD.items():
        for token in (armed, before):
            reply = await play(tool, session_token=token, **arguments)
            assert reply.is_error, tool
            for phrase in ("unresolved checkpoint", "respond_checkpoint", "checkpoint_id", "option_id", *TUNE):
                assert phrase in reply.text, tool


@proves("gates.held", "gates.reentry")
async def test_everything_else_stays_open_and_opens_nothing(play: Player) -> None:
    token = await play.at("tune")
    for tool, arguments in OPEN.items():
        reply = await play(tool, session_token=token, **arguments)
        assert not reply.is_error, reply.text
        assert payload(reply.token)["pcp"] == TUNE
    inherited = await play("start_session", workflow_id="score", session_token=token)

    assert inherited.json["inherited"] is True
    assert (await play("get_workflow", session_token=inherited.token)).is_error


@proves("gates.held", "gates.complete")
async def test_the_end_is_held_like_any_other_activity(play: Player) -> None:
    ended = await play("next_activity", session_token=await play.at("tune"), activity_id="__terminal__")

    assert ended.is_error
    assert "unresolved checkpoint" in ended.text


@proves("gates.respond", "gates.held")
async def test_answers_clear_the_list_in_any_order_until_the_gate_opens(play: Player, settings: Settings) -> None:
    token, left = await play.at("tune"), list(TUNE)
    for checkpoint in ("cold", "encore", "how"):
        answered = await respond(play, token, checkpoint, **RELAYED[checkpoint])
        left.remove(checkpoint)
        assert answered.json["remaining_checkpoints"] == left
        assert payload(answered.token)["pcp"] == left
        assert (await play("get_workflow", session_token=answered.token)).is_error
        token = answered.token
    await person_answers(settings, "begin", "conductor")

    opened = await play("get_workflow", session_token=token)
    assert not opened.is_error
    assert "pcp" not in payload(opened.token)
    assert not (await play("next_activity", session_token=opened.token, activity_id="play")).is_error


@proves("gates.respond")
async def test_an_answer_reports_its_effect_and_the_ways_it_opens(play: Player) -> None:
    answered = await respond(play, await play.at("tune"), "how", option_id="piano")

    assert answered.json | {"session_token": ""} == {
        "checkpoint_id": "how",
        "resolved": True,
        "session_token": "",
        "remaining_checkpoints": ["encore", "cold", "conductor"],
        "resolved_option": "piano",
        "effect": {"setVariable": {"loud": False}},
    }
    assert {(way["to"], way["holds"]) for way in answered.meta["transitions"]} >= {("bow", True), ("play", False)}


@proves("gates.reentry")
async def test_entering_the_current_activity_asks_nothing_again(play: Player, settings: Settings) -> None:
    token = (await respond(play, await play.at("tune"), "how", option_id="forte")).token
    again = await play("next_activity", session_token=token, activity_id="tune")
    token = again.token
    for checkpoint in ("encore", "cold"):
        token = (await respond(play, token, checkpoint, **RELAYED[checkpoint])).token
    await person_answers(settings, "begin", "conductor")
    once_more = await play("next_activity", session_token=token, activity_id="tune")
    async with await open_ledger(settings.ledger) as ledger:
        asked = (await ledger.requests(state=None)).items

    assert pending(again) == ["encore", "cold", "conductor"]
    assert pending(once_more) == []
    assert len(asked) == len(TUNE)


@proves("gates.reentry")
async def test_a_new_visit_asks_anew(memory: Opens, settings: Settings) -> None:
    async with memory() as play:
        token = await answer_all(play, settings, await play.at("tune"))
        token = await moved_to(play, token, "play")
        back = await play("next_activity", session_token=token, activity_id="tune")

    assert pending(back) == TUNE


@proves("gates.reentry", "gates.held")
async def test_an_answer_that_leads_back_to_the_activity_does_not_shake_off_the_other_questions(
    memory: Opens, settings: Settings, library: Path
) -> None:
    file = library / "score" / "activities" / "01-tune.yaml"
    file.write_text(file.read_text().replace("transitionTo: bow", "transitionTo: tune"))
    async with memory() as play:
        token = (await respond(play, await play.at("tune"), "how", option_id="stop")).token
        same = await play("next_activity", session_token=token, activity_id="tune")
        token = await answer_all(play, settings, same.token, how={"option_id": "stop"})
        anew = await play("next_activity", session_token=token, activity_id="tune")

    assert pending(same) == ["encore", "cold", "conductor"]
    assert pending(anew) == TUNE


@proves("gates.no-move")
async def test_reading_a_checkpoint_of_any_activity_moves_nothing(play: Player, settings: Settings) -> None:
    token = await moved_to(play, await play.start(), "play")
    read = await play("get_checkpoint", session_token=token, activity_id="tune", checkpoint_id="how")

    assert read.json["message"] == "How shall we play?"
    assert (read.json["required"], read.json["blocking"], read.json["condition_holds"]) == (True, True, True)
    assert "pending" not in read.json
    assert payload(read.token)["act"] == "play"
    assert not (await play("next_activity", session_token=token, activity_id="bow")).is_error


@proves("gates.no-move")
async def test_a_checkpoint_is_read_with_its_answer_once_it_has_one(play: Player) -> None:
    token = await play.at("tune")
    waiting = await play("get_checkpoint", session_token=token, activity_id="tune", checkpoint_id="how")
    await respond(play, token, "how", option_id="forte")
    answered = await play("get_checkpoint", session_token=token, activity_id="tune", checkpoint_id="how")
    persons = await play("get_checkpoint", session_token=token, activity_id="tune", checkpoint_id="conductor")

    assert (waiting.json["pending"], answered.json["pending"]) == (True, False)
    assert answered.json["answer"]["option_id"] == "forte"
    assert persons.json["answered_by"] == "person"


@proves("gates.no-move")
@pytest.mark.parametrize(("activity", "checkpoint"), [("tune", "nope"), ("nope", "how"), ("../tune", "how")])
async def test_a_checkpoint_that_is_not_there_is_an_error_that_names_what_is(
    memory: Opens, activity: str, checkpoint: str
) -> None:
    async with memory() as play:
        read = await play("get_checkpoint", session_token=await play.at("tune"), activity_id=activity, checkpoint_id=checkpoint)

    assert read.is_error
    assert "tune" in read.text


@proves("gates.payload")
async def test_a_token_stays_short_however_many_checkpoints_wait(memory: Opens, library: Path) -> None:
    names = [f"a-rather-long-name-{number:03}" for number in range(60)]
    options = [{"id": "yes", "label": "Yes"}]
    many = [{"id": name, "name": "Q", "message": "Q?", "options": options} for name in names]
    activity = {"id": "bow", "version": "1.0.0", "name": "Bow", "checkpoints": many}
    (library / "score" / "activities" / "03-bow.yaml").write_text(json.dumps(activity))
    async with memory() as play:
        entered = await play("next_activity", session_token=await play.start(), activity_id="bow")
        held = await play("next_activity", session_token=entered.token, activity_id="tune")
        answered = await respond(play, entered.token, names[7], option_id="yes")

    assert len(entered.token) <= 700
    assert payload(entered.token)["pcp"] != names
    assert "60 unresolved checkpoints" in held.text
    assert len(answered.json["remaining_checkpoints"]) == 59
