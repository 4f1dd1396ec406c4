"""Arguments that a tool does not have: a warning where moves are advised, an error where they are enforced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fidelio.settings import Settings
from tests.dialects.conftest import playing
from tests.support import proves

ALL = pytest.mark.parametrize("dialect", ["sessions", "gates", "navigator"])
START = {"sessions": "start_session", "gates": "start_session", "navigator": "nav_start"}
WORDS = "(did you mean `agent_id`?)"


@proves("dialects.unknown-arguments")
@ALL
async def test_where_moves_are_advised_a_misspelt_argument_is_a_warning_that_the_model_sees(
    settings: Settings, library: Path, dialect: str
) -> None:
    async with playing(settings, library, dialect=dialect) as play:
        reply = await play(START[dialect], workflow_id="score", agentid="worker")
        listed = await play("list_workflows", workflow="score")

    assert not reply.is_error
    assert f"has no argument `agentid` {WORDS}" in json.loads(reply.text)["warnings"][0]
    assert reply.warnings[0] == json.loads(reply.text)["warnings"][0]
    assert not listed.is_error


@proves("dialects.unknown-arguments")
@ALL
@pytest.mark.parametrize("by", ["server", "workflow"])
async def test_where_moves_are_enforced_it_is_refused(settings: Settings, library: Path, dialect: str, by: str) -> None:
    manifest = library / "score/workflow.yaml"
    if by == "workflow":
        manifest.write_text(manifest.read_text() + "fidelity: enforce\n")
    async with playing(settings, library, dialect=dialect, fidelity="enforce" if by == "server" else "advise") as play:
        refused = await play(START[dialect], workflow_id="score", agentid="worker")

    assert refused.is_error
    assert f"has no argument `agentid` {WORDS}" in refused.text


@proves("dialects.unknown-arguments")
async def test_the_level_of_the_session_decides_and_an_entry_of_a_list_is_checked_too(
    settings: Settings, library: Path
) -> None:
    manifest = [{"step_id": "hear", "output": "heard", "iterations": 1}]
    async with playing(settings, library) as play:
        advised = await play.at("tune")
        enforced = (await play("start_session", workflow_id="solo", fidelity="enforce")).token
        warned = await play("next_activity", session_token=advised, activity_id="bow", step_manifest=manifest)
        refused = await play("next_activity", session_token=enforced, activity_id="alone", manifest=[])
        document = await play("get_skills", session_token=warned.token, fullness=True)
        forged = await play("get_skills", session_token="s_000000000000", fullness=True)

    assert "`step_manifest[0].iterations` (did you mean `iteration`?)" in warned.warnings[0]
    assert "`manifest`" in refused.text
    assert document.warnings[0].startswith("Tool get_skills has no argument `fullness`")
    assert forged.is_error
    assert "fullness" not in forged.text


@proves("dialects.unknown-arguments")
async def test_a_document_carries_the_warning_as_a_text_of_its_own(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play:
        token = await play.start()
        plain = await play("get_skills", session_token=token)
        warned = await play("get_skills", session_token=token, fulll=True)

    assert warned.text == plain.text
    assert warned.warnings == ["Tool get_skills has no argument `fulll` (did you mean `full`?)."]
