"""`fidelio sessions --end`: a person ends a session."""

from __future__ import annotations

import asyncio
import json
import re
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
    """The ids of a parent and its child. The child is enforced and waits for a person; its file is deleted."""
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


@proves("cancel.person", "cancel.withdraws", "cancel.report")
def test_a_person_ends_the_session_and_the_report_says_so(fidelio: Fidelio, blocked_sessions: tuple[str, str]) -> None:
    parent, child = blocked_sessions
    ended = fidelio("sessions", "--end", child, "--reason", "Wrong port.", "--json")
    assert ended.returncode == 0, ended.stderr
    again = fidelio("sessions", "--end", child)
    report, shown = json.loads(fidelio("report", child, "--json").stdout), fidelio("report", child).stdout
    inbox, listed = fidelio("inbox", "--all").stdout, fidelio("sessions", "--status", "cancelled").stdout
    parents = fidelio("sessions", "--end", parent)

    assert json.loads(ended.stdout) == {"session": child, "status": "cancelled", "ended": [child]}
    assert again.stdout == f"Session {child} was ended before.\n"
    assert report["cancelled"]["by"].startswith("person:")
    assert (report["cancelled"]["reason"], report["agents"]) == ("Wrong port.", ["orchestrator"])
    assert report["visits"][0]["answers"][0]["state"] == "withdrawn"
    assert "CANCELLED " in shown
    assert re.search(r"CANCELLED \S+ \S+ \S+ over cli by person:", " ".join(shown.split()))
    assert '("Wrong port.")' in shown
    assert "withdrawn: the session ended before it was answered" in shown
    assert "dismissed: local over cli, by person:" in inbox
    assert child in listed
    assert parents.stdout == f"Session {parent} is cancelled.\n"


@proves("cancel.person")
def test_an_unknown_session_is_an_error(fidelio: Fidelio) -> None:
    assert fidelio("sessions", "--end", "s_000000000000").returncode == 4


@proves("cancel.person")
def test_an_agent_may_not_end_a_session(fidelio: Fidelio, blocked_sessions: tuple[str, str]) -> None:
    done = fidelio("sessions", "--end", blocked_sessions[1], **{AGENT_MARKER: "s_1/1"})

    assert done.returncode == 2
    assert "only a person may do this" in done.stderr
