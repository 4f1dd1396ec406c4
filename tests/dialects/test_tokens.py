"""Tokens of the `sessions` dialect: what opens a session, what does not, and what happens to those that do not verify."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest

from fidelio.home import Home
from fidelio.settings import Settings
from fidelio.tokens.seal import read_unverified
from tests.dialects.conftest import Opens, Player
from tests.support import proves


def forged(token: str) -> str:
    """The same claims with a signature that is wrong in one character."""
    return token[:-1] + ("A" if token[-1] != "A" else "B")


@proves("sessions.tokens")
async def test_older_tokens_and_the_short_handle_open_the_current_record(play: Player) -> None:
    first = await play.start()
    await play("next_activity", session_token=first, activity_id="tune")
    trace = (await play("get_trace", session_token=first)).json

    by_old = (await play("get_workflow_status", session_token=first)).json
    by_handle = (await play("get_workflow_status", session_token=trace["traceId"])).json

    assert by_old["current_activity"] == by_handle["current_activity"] == "tune"


@proves("sessions.tokens")
async def test_a_short_handle_opens_nothing_where_the_caller_is_not_known(memory: Opens) -> None:
    async with memory(handles=False) as play:
        token = await play.start()
        session = (await play("get_trace", session_token=token)).json["traceId"]
        refused = await play("get_workflow_status", session_token=session)

    assert refused.is_error
    assert "This server does not accept short handles." in refused.text


@proves("sessions.tokens", "sessions.two-agents")
async def test_only_a_move_from_another_activity_is_stale(play: Player) -> None:
    start = await play.start()
    tune = (await play("next_activity", session_token=start, activity_id="tune")).token
    await play("get_activity", session_token=tune)

    stale = await play("next_activity", session_token=start, activity_id="bow")
    superseded = await play("next_activity", session_token=tune, activity_id="bow")

    assert stale.is_error
    assert "stale" in stale.text
    assert not superseded.is_error


@proves("sessions.two-agents")
@pytest.mark.every_transport
async def test_of_two_agents_that_move_at_once_one_moves(opens: Opens) -> None:
    async with opens() as play:
        token = await play.at("tune")
        moves = [play("next_activity", session_token=token, activity_id=to) for to in ("play", "bow", "play", "bow")]
        results = await asyncio.gather(*moves)
        status = (await play("get_workflow_status", session_token=token)).json

    moved = [reply for reply in results if not reply.is_error]
    assert len(moved) == 1
    assert status["current_activity"] == moved[0].json["activity_id"]


@proves("sessions.tokens", "tokens.length")
async def test_no_token_exceeds_its_bound_whatever_the_definition_says(opens: Opens, library: Path) -> None:
    long = "a" * 200
    text = f"id: {long}\nversion: 1.0.0\ntitle: Long\ninitialActivity: {long}\n"
    text += f"activities:\n  - {{id: {long}, version: 1.0.0, name: Long}}\n"
    (library / f"{long}.yaml").write_text(text)
    async with opens() as play:
        fresh = await play.start("score", agent_id="orchestrator")
        parent = await play.start(long, agent_id="b" * 48)
        child = await play.start(long, parent_session_token=parent, agent_id="b" * 48)
        moved = await play("next_activity", session_token=child, activity_id=long, transition_condition="c" * 5000)

    assert len(fresh) < 320
    assert len(parent) <= 700
    assert len(moved.token) <= 700
    assert len(moved.meta["trace_token"]) <= 300


@proves("sessions.tokens", "sessions.gate")
async def test_a_token_names_a_checkpoint_as_active_only_while_it_waits(play: Player) -> None:
    yielding = await play("yield_checkpoint", session_token=await play.at("tune"), checkpoint_id="how")
    answered = await play("respond_checkpoint", checkpoint_handle=yielding.token, option_id="forte")
    resumed = await play("resume_checkpoint", session_token=answered.token)

    assert (read_unverified(yielding.token) or {})["bcp"] == "how"
    assert "bcp" not in (read_unverified(answered.token) or {})
    assert resumed.json["option_id"] == "forte"


@proves("sessions.inherit")
async def test_another_agent_inherits_with_a_warning_that_names_both(play: Player) -> None:
    token = await play.at("tune", agent_id="orchestrator")
    worker = await play("start_session", session_token=token, agent_id="worker-1", workflow_id="solo")

    phrase = "does not match the inherited session token's agent_id"
    assert worker.json["inherited"] is True
    assert worker.json["workflow"]["id"] == "score"
    assert phrase in worker.json["warning"]
    assert phrase in worker.warnings[0]
    assert "workflow_id 'solo' is ignored" in worker.warnings[1]


@proves("sessions.adopt")
@pytest.mark.every_transport
async def test_a_forged_token_is_adopted_as_a_session_of_its_own(play: Player) -> None:
    genuine = await play.at("tune")
    adopted = await play("start_session", session_token=forged(genuine))
    status = (await play("get_workflow_status", session_token=adopted.token)).json
    real = (await play("get_trace", session_token=genuine)).json["traceId"]
    mine = (await play("get_trace", session_token=adopted.token)).json["traceId"]

    assert (adopted.json["adopted"], adopted.json["inherited"]) == (True, True)
    assert "does not verify" in adopted.json["warning"]
    assert (status["unverified"], status["claims_to_continue"]) == (True, real)
    assert status["current_activity"] == "tune"
    assert mine != real


@proves("sessions.adopt")
async def test_a_token_of_another_home_keeps_its_id_when_nobody_has_it(
    opens: Opens, settings: Settings, tmp_path: Path
) -> None:
    elsewhere = settings._replace(home=Home(tmp_path / "else"), ledger=str(tmp_path / "else" / "ledger.db"))
    async with opens(house_settings=elsewhere) as other:
        token = await other.at("tune")
        there = (await other("get_trace", session_token=token)).json["traceId"]
    async with opens() as play:
        adopted = await play("start_session", session_token=token)
        here = (await play("get_trace", session_token=adopted.token)).json["traceId"]

    assert adopted.json["adopted"] is True
    assert here == there


@proves("sessions.adopt")
async def test_a_saved_token_of_another_implementation_is_adopted(opens: Opens) -> None:
    claims = {"wf": "score", "act": "tune", "skill": "", "cond": "", "v": "", "seq": 4, "ts": 1, "aid": "worker"}
    payload = json.dumps({**claims, "sid": "5d0c7a39-8f5e-4d0c-9a54-0f6f7e1f2a11", "bcp": "how"}).encode()
    token = base64.urlsafe_b64encode(payload).decode().rstrip("=") + "." + "0" * 64
    async with opens() as play:
        adopted = await play("start_session", session_token=token)
        status = (await play("get_workflow_status", session_token=adopted.token)).json

    assert adopted.json["adopted"] is True
    assert (status["current_activity"], status["status"], status["unverified"]) == ("tune", "active", True)


@proves("sessions.adopt")
async def test_a_forged_copy_of_an_enforced_session_is_refused(opens: Opens) -> None:
    async with opens() as play:
        refused = await play("start_session", session_token=forged(await play.start(fidelity="enforce")))

    assert refused.is_error


@proves("sessions.adopt")
@pytest.mark.parametrize("token", ["garbage", "f1.aaaaaa.bm90IGpzb24.x", "f1.", "x" * 5000])
async def test_an_unreadable_token_is_recovered_as_a_fresh_session(opens: Opens, token: str) -> None:
    async with opens() as play:
        recovered = await play("start_session", session_token=token, workflow_id="score")

    assert recovered.json["recovered"] is True
    assert "inherited" not in recovered.json
    assert "NOT inherited" in recovered.json["warning"]


@proves("sessions.adopt")
async def test_where_it_is_enforced_nothing_is_adopted(opens: Opens) -> None:
    async with opens(fidelity="enforce") as play:
        refused = await play("start_session", session_token=forged(await play.start()))

    assert refused.is_error
    assert "not genuine" in refused.text


@proves("sessions.children")
async def test_a_child_names_its_parent_and_a_bad_parent_token_is_an_error(play: Player) -> None:
    parent = await play.at("tune")
    child = await play.start("solo", parent_session_token=parent)
    bad = await play("start_session", workflow_id="solo", parent_session_token=forged(parent))
    status = (await play("get_workflow_status", session_token=child)).json
    trace = (await play("get_trace", session_token=child)).json

    assert bad.is_error
    assert (status["parent"]["workflow_id"], status["parent"]["activity"]) == ("score", "tune")
    assert trace["events"][0]["psid"] == status["parent"]["session_id"]
    assert not (await play("next_activity", session_token=parent, activity_id="bow")).is_error


@proves("sessions.children")
async def test_a_declared_trigger_suspends_the_parent_and_brings_its_variables_back(play: Player) -> None:
    parent = await play.at("tune")
    entered = await play("next_activity", session_token=parent, activity_id="play", variables={"mood": "grave"})
    child = await play.start("solo", parent_session_token=entered.token)
    held = await play("next_activity", session_token=entered.token, activity_id="bow")
    waiting = (await play("get_workflow_status", session_token=entered.token)).json
    alone = await play("next_activity", session_token=child, activity_id="alone", variables={"mood": "merry"})
    await play("next_activity", session_token=alone.token, activity_id="__terminal__")
    after = (await play("get_workflow_status", session_token=entered.token)).json

    assert held.is_error
    assert "solo" in held.text
    assert (waiting["status"], bool(waiting["suspended_by"])) == ("active", True)
    assert (await play("get_workflow_status", session_token=child)).json["variables"] == {"mood": "merry"}
    assert after["variables"]["mood"] == "merry"
    assert "suspended_by" not in after
    assert not (await play("next_activity", session_token=entered.token, activity_id="bow")).is_error
