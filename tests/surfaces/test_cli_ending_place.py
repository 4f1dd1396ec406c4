"""`fidelio sessions --end` looks where the definition came from, whatever else is on its search path."""

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
    place = tmp_path / "flows"
    place.mkdir()
    (place / "hello.yaml").write_text(FLOW)
    return place


@pytest.fixture
def settings(environ: dict[str, str]) -> Settings:
    return load_settings(environ=environ)


def started(settings: Settings, *directories: Path, workflow: str = "hello") -> str:
    async def start() -> str:
        async with Application(settings, [str(one) for one in directories]) as house:
            done: Any = await call_tool(load_tools("sessions", house), "start_session", {"workflow_id": workflow})
            return str(payload(done.meta["session_token"])["sid"])

    return asyncio.run(start())


@proves("reach.end")
def test_a_healthy_session_is_left_alone_without_any_option(fidelio: Fidelio, settings: Settings, library: Path) -> None:
    (library / "ours.yaml").write_text(FLOW.replace("id: hello", "id: ours"))
    refused = fidelio("sessions", "--end", started(settings, library, workflow="ours"))

    assert refused.returncode == 1
    assert "can be read, so the session can be led to its end" in refused.stderr


@proves("reach.end")
@pytest.mark.parametrize("spoils", [True, False])
def test_what_is_gone_is_ended_without_any_option_also_where_others_have_its_name(
    fidelio: Fidelio, settings: Settings, library: Path, spoils: bool
) -> None:
    """A bundled workflow has the same id."""
    session = started(settings, library)
    (library / "hello.yaml").write_text("id: [\n") if spoils else (library / "hello.yaml").unlink()
    ended = fidelio("sessions", "--end", session, "--json")

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["status"] == "completed"
    assert f"its definition came from {library}" in fidelio("report", session).stdout


@proves("reach.end")
def test_a_directory_that_is_given_counts_instead(fidelio: Fidelio, settings: Settings, library: Path, tmp_path: Path) -> None:
    session = started(settings, library)
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
def test_the_directory_of_the_home_may_be_gone_altogether(fidelio: Fidelio, settings: Settings, library: Path) -> None:
    own = settings.home.workflows
    own.parent.mkdir(parents=True)
    library.rename(own)
    session = started(settings)
    healthy = fidelio("sessions", "--end", session)
    shutil.rmtree(own)
    ended = fidelio("sessions", "--end", session)

    assert healthy.returncode == 1
    assert ended.returncode == 0, ended.stderr


@proves("reach.end")
def test_what_comes_with_fidelio_is_found_wherever_that_is_installed(fidelio: Fidelio, settings: Settings) -> None:
    session = started(settings)
    refused = fidelio("sessions", "--end", session)

    assert "can be read" in refused.stderr
    assert "its definition came from bundled" in fidelio("report", session).stdout


@proves("reach.older")
def test_a_person_ends_a_session_of_which_nobody_noted_where_it_came_from(
    fidelio: Fidelio, settings: Settings, library: Path
) -> None:
    (library / "ours.yaml").write_text(FLOW.replace("id: hello", "id: ours"))
    session = started(settings, library, workflow="ours")
    with closing(sqlite3.connect(settings.ledger, isolation_level=None)) as database:
        database.execute("UPDATE sessions SET record = json_remove(record, '$.found_in')")
    refused = fidelio("sessions", "--end", session, "--workflows", str(library))
    shutil.rmtree(library)
    ended = fidelio("sessions", "--end", session)

    assert "can be read" in refused.stderr
    assert ended.returncode == 0, ended.stderr
