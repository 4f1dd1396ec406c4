"""`fidelio sessions --end` looks up the definition where it came from, not on its own search path."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.settings import Settings, load_settings
from fidelio.surfaces.mcp.dialects import load_tools
from tests.dialects.gates.conftest import payload
from tests.support import proves
from tests.support.tool_calls import call_tool
from tests.surfaces.conftest import Fidelio

FLOW = """
id: hello
version: 1.0.0
title: Ours
initialActivity: alone
fidelity: enforce
activities: [{id: alone, version: 1.0.0, name: Alone}]
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    directory = tmp_path / "flows"
    directory.mkdir()
    (directory / "hello.yaml").write_text(FLOW)
    return directory


@pytest.fixture
def settings(environ: dict[str, str]) -> Settings:
    return load_settings(environ=environ)


def start_session(settings: Settings, *directories: Path, workflow: str = "hello") -> str:
    async def start() -> str:
        async with Application(settings, [str(path) for path in directories]) as application:
            done: Any = await call_tool(load_tools("sessions", application), "start_session", {"workflow_id": workflow})
            return str(payload(done.meta["session_token"])["sid"])

    return asyncio.run(start())


@proves("reach.end")
def test_a_healthy_session_is_not_ended_without_any_option(fidelio: Fidelio, settings: Settings, library: Path) -> None:
    (library / "ours.yaml").write_text(FLOW.replace("id: hello", "id: ours"))
    refused = fidelio("sessions", "--end", start_session(settings, library, workflow="ours"))

    assert refused.returncode == 1
    assert "can be read, so the session can be continued normally" in refused.stderr


@proves("reach.end")
@pytest.mark.parametrize("spoils", [True, False])
def test_a_session_is_ended_without_any_option_although_another_root_has_the_name(
    fidelio: Fidelio, settings: Settings, library: Path, spoils: bool
) -> None:
    """A bundled workflow has the same id."""
    session = start_session(settings, library)
    (library / "hello.yaml").write_text("id: [\n") if spoils else (library / "hello.yaml").unlink()
    ended = fidelio("sessions", "--end", session, "--json")

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["status"] == "completed"
    assert f"its definition came from {library}" in fidelio("report", session).stdout


@proves("reach.end")
def test_workflows_option_replaces_the_recorded_root(
    fidelio: Fidelio, settings: Settings, library: Path, tmp_path: Path
) -> None:
    session = start_session(settings, library)
    empty = tmp_path / "empty"
    empty.mkdir()
    shutil.rmtree(library)
    refused = fidelio("sessions", "--end", session)
    ended = fidelio("sessions", "--end", session, "--workflows", str(empty))

    # It may lie on another machine, or on a disk that is not there just now.
    assert refused.returncode == 2
    assert f"There is no directory {library}" in refused.stderr
    assert ended.returncode == 0, ended.stderr


@proves("reach.end", "reach.same-place")
def test_the_workflow_directory_of_the_home_may_be_missing(fidelio: Fidelio, settings: Settings, library: Path) -> None:
    own = settings.home.workflows
    own.parent.mkdir(parents=True)
    library.rename(own)
    session = start_session(settings)
    healthy = fidelio("sessions", "--end", session)
    shutil.rmtree(own)
    ended = fidelio("sessions", "--end", session)

    assert healthy.returncode == 1
    assert ended.returncode == 0, ended.stderr


@proves("reach.end")
def test_a_bundled_workflow_is_found_in_any_installation(fidelio: Fidelio, settings: Settings) -> None:
    session = start_session(settings)
    refused = fidelio("sessions", "--end", session)

    assert "can be read" in refused.stderr
    assert "its definition came from bundled" in fidelio("report", session).stdout


@proves("reach.older")
def test_a_session_without_recorded_root_is_ended(fidelio: Fidelio, settings: Settings, library: Path) -> None:
    (library / "ours.yaml").write_text(FLOW.replace("id: hello", "id: ours"))
    session = start_session(settings, library, workflow="ours")
    with closing(sqlite3.connect(settings.ledger, isolation_level=None)) as database:
        database.execute("UPDATE sessions SET record = json_remove(record, '$.found_in')")
    refused = fidelio("sessions", "--end", session, "--workflows", str(library))
    shutil.rmtree(library)
    ended = fidelio("sessions", "--end", session)

    assert "can be read" in refused.stderr
    assert ended.returncode == 0, ended.stderr
