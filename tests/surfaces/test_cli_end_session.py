"""`fidelio sessions --end`: a person ends a session whose definition was deleted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from fidelio.processes.table import AGENT_MARKER
from fidelio.settings import Settings, load_settings
from tests.dialects.conftest import playing
from tests.dialects.gates.conftest import payload
from tests.dialects.sample_workflow import write_sample_workflow
from tests.support import proves
from tests.surfaces.conftest import Fidelio


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return write_sample_workflow(tmp_path / "workflows")


@pytest.fixture
def settings(environ: dict[str, str]) -> Settings:
    return load_settings(environ=environ)


@pytest.fixture
def blocked_sessions(settings: Settings, library: Path) -> tuple[str, str]:
    """The ids of a parent and its child. The child is enforced, waits for a person, and its definition is deleted."""
    asks = "checkpoints: [{id: go, name: Go, message: Go?, answered_by: person, options: [{id: yes_, label: Yes}]}]"
    (library / "solo.yaml").write_text(
        "id: solo\nversion: 1.0.0\ntitle: Solo\ninitialActivity: alone\nfidelity: enforce\n"
        f"activities:\n  - id: alone\n    version: 1.0.0\n    name: Alone\n    {asks}\n"
    )

    async def run_to_checkpoint() -> tuple[str, str]:
        async with playing(settings, library) as play:
            parent = await play.at("play")
            child = (await play("start_session", workflow_id="solo", parent_session_token=parent)).token
            child = (await play("next_activity", session_token=child, activity_id="alone")).token
            await play("yield_checkpoint", session_token=child, checkpoint_id="go")
            (library / "solo.yaml").unlink()
            return payload(parent)["sid"], payload(child)["sid"]

    return asyncio.run(run_to_checkpoint())


@proves("gone.person", "gone.enforce", "gone.report")
def test_a_person_ends_the_session_and_the_report_says_so(
    fidelio: Fidelio, blocked_sessions: tuple[str, str], library: Path, settings: Settings
) -> None:
    parent, child = blocked_sessions
    where = ("--workflows", str(library))
    ended = fidelio("sessions", "--end", child, *where, "--json")
    assert ended.returncode == 0, ended.stderr
    again = fidelio("sessions", "--end", child, *where)
    report, shown = json.loads(fidelio("report", child, "--json").stdout), fidelio("report", child).stdout
    inbox, holds = fidelio("inbox", "--all").stdout, fidelio("verify", "--all")

    async def move_parent() -> bool:
        async with playing(settings, library) as play:
            return (await play("next_activity", session_token=parent, activity_id="bow")).is_error

    first, second = json.loads(ended.stdout)["warnings"]
    assert first.startswith("The definition of this session was deleted: Workflow not found: solo.")
    assert second.startswith("Checkpoint 'go' was not answered")
    assert json.loads(ended.stdout)["status"] == "completed"
    assert "This session is completed." in again.stderr
    assert report["ended_unchecked_by"].startswith("person:")
    assert report["ended_unchecked_by"].endswith(" over cli")
    assert report["agents"] == ["orchestrator"]
    assert report["visits"][0]["answers"][0]["state"] == "withdrawn"
    assert "ENDED WITHOUT ITS DEFINITION, by person:" in shown
    assert "withdrawn: the session ended before it was answered" in shown
    assert "dismissed by person:" in inbox
    assert holds.returncode == 0
    assert not asyncio.run(move_parent())


@proves("gone.person")
def test_a_session_with_a_readable_definition_is_not_ended(
    fidelio: Fidelio, blocked_sessions: tuple[str, str], library: Path, settings: Settings
) -> None:
    async def start() -> str:
        async with playing(settings, library) as play:
            return str(payload(await play.start("score"))["sid"])

    parent, free = blocked_sessions[0], asyncio.run(start())
    refused = fidelio("sessions", "--end", free, "--workflows", str(library))
    waits = fidelio("sessions", "--end", parent, "--workflows", str(library))
    unknown = fidelio("sessions", "--end", "s_000000000000")

    assert refused.returncode == 1
    assert "can be read, so the session can be continued normally" in refused.stderr
    assert "waits for its child solo" in waits.stderr
    assert unknown.returncode == 4


@proves("gone.person")
def test_an_agent_may_not_end_a_session(fidelio: Fidelio, blocked_sessions: tuple[str, str], library: Path) -> None:
    done = fidelio("sessions", "--end", blocked_sessions[1], "--workflows", str(library), **{AGENT_MARKER: "s_1/1"})

    assert done.returncode == 2
    assert "an agent does not answer for a person" in done.stderr
