"""Tokens that nobody can vouch for: where they are taken up, where they are not, and what they may claim."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from fidelio.settings import Settings
from tests.dialects.conftest import Opens, Player
from tests.dialects.test_tokens import forged
from tests.support import proves


def of_another_server(**claims: Any) -> str:
    whole = {"wf": "score", "act": "tune", "skill": "", "cond": "", "v": "", "seq": 4, "ts": 1, "aid": "worker", **claims}
    return base64.urlsafe_b64encode(json.dumps(whole).encode()).decode().rstrip("=") + "." + "0" * 64


def enforce(library: Path) -> None:
    file = library / "score" / "workflow.yaml"
    file.write_text(file.read_text() + "fidelity: enforce\n")


@proves("sessions.adopt")
async def test_nothing_is_adopted_into_a_workflow_that_is_enforced(memory: Opens, library: Path) -> None:
    enforce(library)
    async with memory() as play:
        adopted = await play("start_session", session_token=of_another_server(sid="never-seen", act="bow"))
        recovered = await play("start_session", session_token="rubbish", workflow_id="score")
        elsewhere = await play("start_session", session_token="rubbish", workflow_id="solo")

    assert adopted.is_error
    assert "not genuine" in adopted.text
    assert recovered.is_error
    assert elsewhere.json["recovered"] is True


@proves("sessions.adopt")
async def test_nothing_is_adopted_by_a_session_that_is_to_be_enforced(memory: Opens) -> None:
    async with memory() as play:
        refused = await play("start_session", session_token=of_another_server(sid="never-seen"), fidelity="enforce")

    assert refused.is_error


@proves("sessions.adoption-setting")
@pytest.mark.parametrize("token", ["rubbish", of_another_server(sid="never-seen"), of_another_server(sid="x", wf="nowhere")])
async def test_where_adoption_is_off_a_token_that_does_not_verify_is_an_error(
    memory: Opens, settings: Settings, token: str
) -> None:
    async with memory(house_settings=settings._replace(adoption=False)) as play:
        refused = await play("start_session", session_token=token)
        genuine = await play("start_session", session_token=await play.start())

    assert refused.is_error
    assert "not genuine" in refused.text
    assert genuine.json["inherited"] is True


@proves("sessions.adopt", "tokens.length")
@pytest.mark.parametrize("sid", ["", " ", "a b", "-x", ".", "ünï", "a\nb", "../../etc/passwd", "S" * 37, "x" * 2000])
async def test_a_claimed_id_that_cannot_be_kept_is_recovered(memory: Opens, sid: str) -> None:
    async with memory() as play:
        started = await play("start_session", session_token=of_another_server(sid=sid), workflow_id="solo")

    assert started.json["recovered"] is True
    assert "adopted" not in started.json
    assert started.json["workflow"]["id"] == "solo"


@proves("sessions.adopt")
async def test_of_two_that_bring_the_same_token_at_once_both_get_a_session(memory: Opens) -> None:
    token = of_another_server(sid="never-seen")
    async with memory() as play:
        both = await asyncio.gather(*(play("start_session", session_token=token) for _ in range(2)))
        found = [(await play("get_workflow_status", session_token=one.token)).json["claims_to_continue"] for one in both]

    assert set(found) == {None, "never-seen"}


@proves("sessions.children")
@pytest.mark.parametrize("session", ["genuine", "forged", "rubbish"])
async def test_a_bad_parent_token_is_an_error_whatever_the_session_token_is(memory: Opens, session: str) -> None:
    async with memory() as play:
        token = await play.start()
        named = {"genuine": token, "forged": forged(token), "rubbish": "rubbish"}[session]
        refused = await play("start_session", session_token=named, parent_session_token="garbage", workflow_id="solo")

    assert refused.is_error
    assert refused.text.startswith("parent_session_token: This token is not genuine")


@proves("sessions.children", "sessions.adopt")
@pytest.mark.parametrize("token", ["rubbish", of_another_server(sid="never-seen", wf="solo", act="alone")])
async def test_a_session_that_takes_the_place_of_a_lost_one_is_linked_to_its_parent(memory: Opens, token: str) -> None:
    async with memory() as play:
        parent = await play.at("tune")
        there = (await play("get_trace", session_token=parent)).json["traceId"]
        started = await play("start_session", session_token=token, workflow_id="solo", parent_session_token=parent)
        status = (await play("get_workflow_status", session_token=started.token)).json

    assert status["parent"]["session_id"] == there


@proves("sessions.children", "sessions.inherit")
async def test_a_continued_session_keeps_its_own_parent(play: Player) -> None:
    parent, other = await play.at("tune"), await play.at("tune")
    child = await play.start("solo", parent_session_token=parent)
    own = await play("start_session", session_token=child, parent_session_token=parent)
    wrong = await play("start_session", session_token=child, parent_session_token=other)
    orphan = await play("start_session", session_token=other, parent_session_token=parent)

    assert own.json["inherited"] is True
    assert wrong.is_error
    assert orphan.is_error
    assert "is not a child of" in wrong.text


@proves("sessions.inherit", "tokens.length")
async def test_an_agent_with_a_long_name_is_recognised(memory: Opens) -> None:
    async with memory() as play:
        token = await play.start(agent_id="😀" * 48)
        again = await play("start_session", session_token=token, agent_id="😀" * 48)

    assert len(token) < 320
    assert again.warnings == []
