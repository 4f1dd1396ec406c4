"""Levels and users that the tests of isolation run with, and a session to start sandboxes for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from fidelio.sandbox.directory import create_directory, may_switch_user
from fidelio.sandbox.levels import LEVELS, try_level
from fidelio.sandbox.model import Level, SandboxSpec
from tests.sandbox.isolation.scene import make_spec
from tests.support.parts import require_part
from tests.support.users import NOBODY

ROOT = Path(__file__).parents[3]
# As root both are possible; an ordinary user is only himself.
USERS = {"root": 0, "another user": NOBODY} if may_switch_user() else {"this user": os.geteuid()}
WITH_COMMANDS: tuple[Level, ...] = ("bubblewrap", "namespaces")


@cache
def find_problem(level: Level) -> str:
    return try_level(level)


def need_level(level: Level) -> None:
    """Skip the test on a machine without this level."""
    if problem := find_problem(level):
        require_part(f"The isolation level {level}", f"{problem} See `fidelio doctor`.")


@cache
def run_scene(level: str, user: int) -> dict[str, str]:
    """The outcome of all attempts at a level, as a user; "" is stopped."""
    argv = [sys.executable, "-m", "tests.sandbox.isolation.scene", str(user), level]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    outcome: dict[str, str] = json.loads(done.stdout)
    return outcome


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Level:
    found: Level = request.param
    need_level(found)
    return found


@pytest.fixture(params=WITH_COMMANDS)
def command_level(request: pytest.FixtureRequest) -> Level:
    found: Level = request.param
    need_level(found)
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return create_directory(home)


@pytest.fixture
def spec(directory: Path) -> SandboxSpec:
    return make_spec(directory)
