"""A reader can follow one call through few files, and a script shows which."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fidelio.app.application import Application
from fidelio.settings import load_settings
from fidelio.surfaces.mcp.dialects import DEFAULT, load_tools
from scripts.walk import CALLS
from tests.support import proves

ROOT = Path(__file__).resolve().parents[1]
# A bound that goes up only with a rule that every move needs. Every move checks loops, person-only checkpoints, triggers and
# the caller, and chains digests of what is stored beside the events; a reply carries the short form of its token, and reading
# calls are counted with the next event.
MOST_FILES = 52


def walked(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.walk", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@proves("project.walk")
def test_the_walk_of_next_activity_is_short_and_ends_in_a_reply() -> None:
    done = walked("next_activity")
    *files, count = done.stdout.splitlines()

    # A call that is refused or gets no reply ends the script with an error.
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"next_activity: {len(files)} files from the line read to the reply written\.", count)
    assert len(files) <= MOST_FILES
    for part in ("surfaces/mcp/", "app/", "workflows/", "engine/", "definitions/", "ledger/sqlite/"):
        assert any(line.split()[1].startswith(part) for line in files), part


@proves("project.walk")
@pytest.mark.parametrize("tool", ["discover", "respond_checkpoint"])
def test_other_tools_are_walked_with_a_session_that_fits_them(tool: str) -> None:
    done = walked(tool)

    assert (done.returncode, done.stderr) == (0, "")


@proves("project.walk")
def test_every_tool_of_the_default_dialect_can_be_walked() -> None:
    served = load_tools(DEFAULT, Application(load_settings(environ={"FIDELIO_HOME": "unused"})))

    assert set(CALLS) == {tool["name"] for tool in served.table.describe()}


@proves("project.walk")
def test_a_tool_that_does_not_exist_is_named_with_those_that_do() -> None:
    done = walked("next_activty")

    assert done.returncode == 1
    assert done.stderr.startswith("There is no tool 'next_activty' to walk; there are discover, ")
