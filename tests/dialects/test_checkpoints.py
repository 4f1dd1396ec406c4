"""Checkpoints of the `sessions` dialect: the gate, the answers and the ways of giving them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from tests.dialects.conftest import Opens, Player
from tests.support import proves

GATED = {
    "get_workflow": {},
    "get_activity": {},
    "get_skills": {},
    "get_skill": {},
    "get_resource": {"resource_id": "01"},
    "get_trace": {},
    "next_activity": {"activity_id": "play"},
    "yield_checkpoint": {"checkpoint_id": "encore"},
    "resume_checkpoint": {},
}


async def yielded(play: Player, checkpoint: str = "how") -> tuple[str, str]:
    """A token from before the yield, and the handle."""
    before = await play.at("tune")
    handle = (await play("yield_checkpoint", session_token=before, checkpoint_id=checkpoint)).json["checkpoint_handle"]
    return before, handle


@proves("sessions.gate")
async def test_every_token_is_held_at_every_gated_tool(play: Player) -> None:
    before, handle = await yielded(play)

    for tool, arguments in GATED.items():
        for token in (before, handle):
            reply = await play(tool, session_token=token, **arguments)
            assert reply.is_error, tool
            assert "Active checkpoint 'how'" in reply.text
            assert "respond_checkpoint" in reply.text


@proves("sessions.gate", "sessions.inherit")
async def test_status_and_inheriting_stay_open_and_do_not_open_the_gate(play: Player) -> None:
    before, _ = await yielded(play)

    inherited = await play("start_session", session_token=before, agent_id="worker-1")
    status = (await play("get_workflow_status", session_token=inherited.token)).json

    assert inherited.json["inherited"] is True
    assert (status["status"], status["open_checkpoint"]) == ("blocked", "how")
    assert status["last_checkpoint"] | {"timestamp": 0} == {
        "activity_id": "tune",
        "checkpoint_id": "how",
        "state": "open",
        "option_id": None,
        "timestamp": 0,
    }
    assert (await play("get_activity", session_token=inherited.token)).is_error


@proves("sessions.modes")
async def test_a_checkpoint_is_presented_with_its_options_and_effects(play: Player) -> None:
    before, handle = await yielded(play)
    by_handle = await play("present_checkpoint", checkpoint_handle=handle)
    by_token = await play("present_checkpoint", session_token=before)
    neither = await play("present_checkpoint")

    for presented in (by_handle, by_token):
        assert "How shall we play?" in presented.text
        assert "checkpoint_handle: s_" in presented.text
        assert "transitionTo: bow" in presented.text
    assert "Either checkpoint_handle or session_token must be provided" in neither.text


@proves("sessions.modes")
async def test_an_answer_reports_its_effect_and_opens_the_gate(play: Player) -> None:
    before, handle = await yielded(play)
    answered = await play("respond_checkpoint", checkpoint_handle=handle, option_id="piano")
    resumed = await play("resume_checkpoint", session_token=before)

    assert answered.json | {"checkpoint_handle": ""} == {
        "checkpoint_id": "how",
        "resolved": True,
        "checkpoint_handle": "",
        "resolved_option": "piano",
        "effect": {"setVariable": {"loud": False}},
    }
    assert (resumed.json["option_id"], resumed.json["variables"]) == ("piano", {"loud": False})


@proves("sessions.modes")
@pytest.mark.parametrize(
    ("checkpoint", "choice", "phrase"),
    [
        ("how", {}, "Exactly one"),
        ("how", {"option_id": "forte", "auto_advance": True}, "Exactly one"),
        ("how", {"auto_advance": False}, "Exactly one"),
        ("how", {"condition_not_met": False}, "Exactly one"),
        ("how", {"option_id": "fortissimo"}, "Invalid option"),
        ("how", {"option_id": ""}, "Invalid option"),
        ("how", {"auto_advance": True}, "missing defaultOption or autoAdvanceMs"),
        ("how", {"auto_advance": True}, "blocking"),
        ("how", {"condition_not_met": True}, "no condition field"),
    ],
)
async def test_a_wrong_way_of_answering_is_refused_and_the_gate_stays_closed(
    opens: Opens, checkpoint: str, choice: dict[str, object], phrase: str
) -> None:
    async with opens() as play:
        _, handle = await yielded(play, checkpoint)
        refused = await play("respond_checkpoint", checkpoint_handle=handle, **choice)
        status = (await play("get_workflow_status", session_token=handle)).json

    assert refused.is_error
    assert phrase in refused.text
    assert status["status"] == "blocked"


@proves("sessions.modes")
async def test_false_beside_an_option_counts_as_absent(play: Player) -> None:
    _, handle = await yielded(play)

    answered = await play("respond_checkpoint", checkpoint_handle=handle, option_id="forte", auto_advance=False)

    assert answered.json["resolved_option"] == "forte"


@proves("sessions.modes")
async def test_a_conditional_checkpoint_is_dismissed_unless_its_condition_is_known_to_hold(opens: Opens) -> None:
    async with opens() as play:
        _, handle = await yielded(play, "cold")
        dismissed = await play("respond_checkpoint", checkpoint_handle=handle, condition_not_met=True)
        token = await play.at("tune")
        yielding = await play("yield_checkpoint", session_token=token, checkpoint_id="cold", variables={"mood": "cold"})
        refused = await play("respond_checkpoint", checkpoint_handle=yielding.token, condition_not_met=True)

    assert (dismissed.json["resolved"], dismissed.json["dismissed"]) == (True, True)
    assert refused.is_error
    assert "holds" in refused.text


@proves("sessions.answer-once")
async def test_the_same_answer_again_is_confirmed_and_another_is_refused(play: Player) -> None:
    before, handle = await yielded(play)
    await play("respond_checkpoint", checkpoint_handle=handle, option_id="forte")

    same = await play("respond_checkpoint", checkpoint_handle=handle, option_id="forte")
    other = await play("respond_checkpoint", checkpoint_handle=handle, option_id="piano")
    status = (await play("get_workflow_status", session_token=before)).json

    assert same.json["resolved_option"] == "forte"
    assert other.is_error
    assert "answered already" in other.text
    assert status["variables"]["loud"] is True


@proves("sessions.answer-once")
async def test_an_old_handle_never_touches_a_later_question(play: Player) -> None:
    _, first = await yielded(play)
    done = await play("respond_checkpoint", checkpoint_handle=first, option_id="forte")
    second = (await play("yield_checkpoint", session_token=done.token, checkpoint_id="encore")).token

    other = await play("respond_checkpoint", checkpoint_handle=first, option_id="some")
    again = await play("present_checkpoint", checkpoint_handle=first)
    status = (await play("get_workflow_status", session_token=second)).json

    assert other.is_error
    assert "How shall we play?" in again.text
    assert "option_id: forte" in again.text
    assert status["open_checkpoint"] == "encore"


@proves("sessions.answer-once")
async def test_yielding_an_answered_checkpoint_gives_the_answer_and_leaves_the_gate_open(play: Player) -> None:
    before, handle = await yielded(play)
    await play("respond_checkpoint", checkpoint_handle=handle, option_id="forte")

    again = await play("yield_checkpoint", session_token=before, checkpoint_id="how")
    presented = await play("present_checkpoint", checkpoint_handle=handle)

    by_new_handle = await play("present_checkpoint", checkpoint_handle=again.json["checkpoint_handle"])
    repeated = await play("respond_checkpoint", checkpoint_handle=again.json["checkpoint_handle"], option_id="forte")

    assert by_new_handle.text.partition("checkpoint_handle")[0] == presented.text.partition("checkpoint_handle")[0]
    assert repeated.json["resolved_option"] == "forte"
    assert (again.json["status"], again.json["already_resolved"]) == ("yielded", True)
    assert again.json["resolved_option"] == "forte"
    assert not (await play("get_activity", session_token=again.token)).is_error
    assert "option_id: forte" in presented.text


@proves("sessions.answer-once")
async def test_a_handle_that_is_handed_on_stands_for_the_question_it_was_asked_about(play: Player) -> None:
    _, first = await yielded(play)
    done = await play("respond_checkpoint", checkpoint_handle=first, option_id="forte")
    await play("yield_checkpoint", session_token=done.token, checkpoint_id="encore")
    for handle in (
        done.json["checkpoint_handle"],
        (await play("respond_checkpoint", checkpoint_handle=first, option_id="forte")).json["checkpoint_handle"],
        (await play("present_checkpoint", checkpoint_handle=first)).token,
    ):
        refused = await play("respond_checkpoint", checkpoint_handle=handle, option_id="some")
        assert refused.is_error
        assert "How shall we play?" in (await play("present_checkpoint", checkpoint_handle=handle)).text


@proves("sessions.answer-once")
async def test_a_default_that_was_taken_can_be_taken_again(opens: Opens, library: Path) -> None:
    file = library / "score" / "activities" / "01-tune.yaml"
    file.write_text(file.read_text().replace("autoAdvanceMs: 50", "autoAdvanceMs: 1"))
    async with opens() as play:
        _, handle = await yielded(play, "encore")
        await play("get_workflow_status", session_token=handle)
        first, second = [await play("respond_checkpoint", checkpoint_handle=handle, auto_advance=True) for _ in range(2)]

    assert first.json["resolved_option"] == second.json["resolved_option"] == "none"


@proves("sessions.answer-once", "sessions.person")
@pytest.mark.every_transport
async def test_after_a_person_has_answered_another_answer_of_the_model_is_refused(opens: Opens, settings: Settings) -> None:
    async with opens() as play:
        _, handle = await yielded(play, "conductor")
        async with await open_ledger(settings.ledger) as ledger:
            (request,) = (await ledger.requests()).items
            await Inbox(ledger).answer(request.id, "wait", by="person:a", channel="cli")
        same, other, none = [
            await play("respond_checkpoint", checkpoint_handle=handle, **choice)
            for choice in ({"option_id": "wait"}, {"option_id": "begin"}, {})
        ]

    assert same.json["resolved_option"] == "wait"
    assert other.is_error
    assert "Exactly one" in none.text


@proves("sessions.answer-once")
async def test_a_new_visit_asks_again(opens: Opens) -> None:
    async with opens() as play:
        _, handle = await yielded(play)
        token = (await play("respond_checkpoint", checkpoint_handle=handle, option_id="forte")).token
        for activity in ("play", "tune"):
            token = (await play("next_activity", session_token=token, activity_id=activity)).token
        again = await play("yield_checkpoint", session_token=token, checkpoint_id="how")

    assert "already_resolved" not in again.json


@proves("sessions.gate")
async def test_resuming_without_an_answer_is_an_error_and_repeating_it_is_not(play: Player) -> None:
    never = await play("resume_checkpoint", session_token=await play.at("tune"))
    before, handle = await yielded(play)
    await play("respond_checkpoint", checkpoint_handle=handle, option_id="forte")
    first, second = [await play("resume_checkpoint", session_token=before) for _ in range(2)]

    assert never.is_error
    assert first.json["option_id"] == second.json["option_id"] == "forte"


@proves("sessions.timers")
@pytest.mark.every_transport
async def test_an_answer_faster_than_a_person_is_refused(opens: Opens, settings: Settings) -> None:
    slow = settings._replace(min_response_ms=60_000)
    async with opens(house_settings=slow) as play:
        _, handle = await yielded(play)
        await play("get_workflow_status", session_token=handle)
        refused = await play("respond_checkpoint", checkpoint_handle=handle, option_id="forte")

    assert refused.is_error
    assert "too fast" in refused.text
    assert "60000 ms" in refused.text


@proves("sessions.person")
async def test_a_model_cannot_answer_for_the_person_who_is_demanded(play: Player) -> None:
    _, handle = await yielded(play, "conductor")
    refused = await play("respond_checkpoint", checkpoint_handle=handle, option_id="begin")
    status = (await play("get_workflow_status", session_token=handle)).json

    assert refused.is_error
    assert "fidelio answer r_" in refused.text
    assert status["status"] == "blocked"


@proves("sessions.person")
async def test_nobody_is_sent_to_a_tool_that_refuses_where_a_person_is_demanded(play: Player) -> None:
    token = await play.at("tune")
    asked = await play("yield_checkpoint", session_token=token, checkpoint_id="conductor")
    held = [
        await play("resume_checkpoint", session_token=asked.token),
        await play("next_activity", session_token=asked.token, activity_id="play"),
    ]

    for words in (asked.text, *(reply.text for reply in held)):
        assert "Only a person may answer it." in words
        assert "answers with: `fidelio answer r_" in words
        assert "Resolve it with respond_checkpoint" not in words
        assert "resolves it with respond_checkpoint" not in words


@proves("sessions.person")
@pytest.mark.every_transport
async def test_the_server_can_demand_a_person_everywhere(opens: Opens) -> None:
    async with opens(person=True) as play:
        _, handle = await yielded(play)
        refused = await play("respond_checkpoint", checkpoint_handle=handle, option_id="forte")

    assert refused.is_error
    assert "answered by a person" in refused.text
