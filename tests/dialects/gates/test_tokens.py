"""Tokens of the `gates` dialect: what opens a session here, what never does, and the trace of all of it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from fidelio.home import Home
from fidelio.ledger import open_ledger
from fidelio.ledger.audit import verify_session
from fidelio.settings import Settings
from tests.dialects.conftest import Opens, Player
from tests.dialects.gates.conftest import TUNE, answer_all, moved_to, payload, pending, respond
from tests.dialects.test_tokens import forged
from tests.support import proves


async def handle_of(play: Player, token: str) -> str:
    return str((await play("get_trace", session_token=token)).json["traceId"])


@proves("gates.start", "gates.tokens")
async def test_a_worker_continues_the_session_with_its_place_and_its_questions(play: Player) -> None:
    token = await play.at("tune")
    worker = await play("start_session", workflow_id="score", session_token=token, agent_id="worker-1")
    resumed = await play("start_session", workflow_id="score", session_token=worker.token)
    answered = await respond(play, resumed.token, "how", option_id="forte")

    assert worker.json["inherited"] is True
    assert worker.warnings == []
    assert [payload(reply.token)["aid"] for reply in (worker, resumed)] == ["worker-1", "worker-1"]
    assert payload(worker.token)["pcp"] == TUNE
    assert payload(worker.token)["sid"] == payload(token)["sid"]
    assert answered.json["remaining_checkpoints"] == TUNE[1:]


@proves("gates.start")
async def test_the_workflow_has_to_be_that_of_the_token(play: Player) -> None:
    refused = await play("start_session", workflow_id="solo", session_token=await play.at("tune"))

    assert refused.is_error
    assert "Workflow mismatch" in refused.text
    assert "'score'" in refused.text


@proves("gates.tokens", "gates.start")
@pytest.mark.every_transport
async def test_a_token_that_is_not_genuine_is_an_error_everywhere_and_starts_nothing(play: Player, settings: Settings) -> None:
    genuine = await play.at("tune")
    claims = base64.urlsafe_b64encode(json.dumps({"wf": "score", "act": "tune", "sid": "x"}).encode()).decode()
    for bad in (forged(genuine), genuine[:-9], "ab", f"{claims}.{'0' * 64}", "x" * 5000):
        for tool, more in {
            "start_session": {"workflow_id": "score"},
            "get_workflow": {},
            "next_activity": {"activity_id": "play"},
            "get_checkpoint": {"activity_id": "tune", "checkpoint_id": "how"},
            "respond_checkpoint": {"checkpoint_id": "how", "option_id": "forte"},
            "get_skills": {},
            "get_skill": {"step_id": "hear"},
            "get_resource": {"resource_index": "01"},
            "get_trace": {},
        }.items():
            refused = await play(tool, session_token=bad, **more)
            assert refused.is_error, tool
            assert "start_session" in refused.text
    async with await open_ledger(settings.ledger) as ledger:
        sessions = (await ledger.sessions()).items

    assert [session.id for session in sessions] == [payload(genuine)["sid"]]


@proves("gates.tokens")
async def test_a_token_of_another_home_is_not_adopted(memory: Opens, settings: Settings, tmp_path: Path) -> None:
    elsewhere = settings._replace(home=Home(tmp_path / "else"), ledger=str(tmp_path / "else" / "ledger.db"))
    async with memory(house_settings=elsewhere) as other:
        token = await other.at("tune")
    async with memory() as play:
        refused = await play("start_session", workflow_id="score", session_token=token)

    assert refused.is_error


@proves("gates.tokens")
async def test_older_tokens_and_the_short_handle_open_the_current_record(play: Player) -> None:
    before = await play.start()
    armed = await moved_to(play, before, "tune")
    handle = await handle_of(play, armed)

    for token in (before, armed, handle):
        assert "unresolved checkpoint" in (await play("get_workflow", session_token=token)).text
    assert (await respond(play, handle, "how", option_id="forte")).json["resolved_option"] == "forte"
    assert (await respond(play, before, "encore", option_id="some")).json["remaining_checkpoints"] == TUNE[2:]
    continued = await play("start_session", workflow_id="score", session_token=handle)
    assert payload(continued.token)["act"] == "tune"


@proves("gates.tokens")
async def test_only_a_move_from_another_activity_is_stale(play: Player, settings: Settings) -> None:
    start = await play.start()
    tune = await moved_to(play, start, "tune")
    await answer_all(play, settings, tune)

    stale = await play("next_activity", session_token=start, activity_id="play")
    superseded = await play("next_activity", session_token=tune, activity_id="play")

    assert "stale" in stale.text
    assert not superseded.is_error


@proves("gates.tokens")
async def test_what_was_armed_and_answered_survives_a_restart(memory: Opens) -> None:
    async with memory() as play:
        token = (await respond(play, await play.at("tune"), "how", option_id="forte")).token
    async with memory() as play:
        again = await play("next_activity", session_token=token, activity_id="tune")

    assert pending(again) == TUNE[1:]


@proves("gates.trace")
async def test_every_call_is_one_event_also_when_it_is_refused(play: Player, settings: Settings) -> None:
    token = await play.at("tune")
    await play("get_checkpoint", session_token=token, activity_id="tune", checkpoint_id="how")
    await play("get_workflow", session_token=token)
    await respond(play, token, "nope", option_id="forte")
    await respond(play, token, "how", option_id=7)
    await respond(play, token, "how", option_id="forte")
    await play("get_skills", session_token=token)
    trace = (await play("get_trace", session_token=token)).json
    async with await open_ledger(settings.ledger) as ledger:
        verdict = await verify_session(ledger, trace["traceId"])

    assert (trace["source"], trace["tracing_enabled"]) == ("memory", True)
    assert [(event["name"], event["s"]) for event in trace["events"]] == [
        ("start_session", "ok"),
        ("next_activity", "ok"),
        ("get_checkpoint", "ok"),
        ("get_workflow", "error"),
        ("respond_checkpoint", "error"),
        ("respond_checkpoint", "error"),
        ("respond_checkpoint", "ok"),
        ("get_skills", "ok"),
    ]
    assert trace["events"][4]["err"] == "checkpoint.not-pending"
    assert "session_token" not in str(trace["events"])
    assert verdict.events > len(trace["events"])


@proves("gates.trace")
async def test_trace_tokens_resolve(play: Player, settings: Settings) -> None:
    first = await play("next_activity", session_token=await play.start(), activity_id="tune")
    token = await answer_all(play, settings, first.token)
    second = await play("next_activity", session_token=token, activity_id="play")
    tokens = [first.meta["trace_token"], second.meta["trace_token"]]
    trace = (await play("get_trace", session_token=token, trace_tokens=tokens)).json

    names = [event["name"] for event in trace["events"]]
    assert trace["source"] == "tokens"
    assert names == ["start_session", "next_activity", *["respond_checkpoint"] * 3, "next_activity"]


@proves("gates.tools", "gates.trace")
@pytest.mark.parametrize("arguments", [{"checkpoint_id": ""}, {}, {"checkpoint_id": ["how"]}])
async def test_bad_arguments_are_an_error_result_that_names_them(memory: Opens, arguments: dict[str, object]) -> None:
    async with memory() as play:
        refused = await play("respond_checkpoint", session_token=await play.at("tune"), option_id="forte", **arguments)
        unknown = await play("yield_checkpoint", session_token="x")

    assert refused.is_error
    assert "checkpoint_id" in refused.text
    assert unknown.is_error
    assert "respond_checkpoint" in unknown.text
