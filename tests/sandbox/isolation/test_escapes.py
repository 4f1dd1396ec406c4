"""Attempts to leave a sandbox, at each level, as root and as another user."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest

from fidelio.sandbox.levels import LEVELS
from fidelio.sandbox.model import Level
from tests.sandbox.isolation.attempts.harness import ATTEMPTS
from tests.sandbox.isolation.conftest import ROOT, USERS, need_level, run_scene
from tests.sandbox.isolation.table import list_rows, render_escapes
from tests.support import proves
from tests.support.users import NOBODY, needs_root


@proves("sandbox.escapes", "sandbox.unprivileged", "sandbox.home-hidden", "sandbox.limits")
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("level", LEVELS)
def test_no_attempt_gets_out_of_a_sandbox(level: Level, user: str) -> None:
    need_level(level)
    expected = {name for name, tried in ATTEMPTS.items() if level != "landlock" or tried.without_commands}

    outcome = run_scene(level, USERS[user])

    assert set(outcome) == expected
    assert {name: found for name, found in outcome.items() if found} == {}


@needs_root
@proves("sandbox.escapes")
def test_the_attempts_work_where_there_is_no_sandbox() -> None:
    outcome = run_scene("outside", NOBODY)

    assert set(outcome) == {name for name, tried in ATTEMPTS.items() if tried.outside}
    assert all(found.startswith("escaped") for found in outcome.values()), outcome


@proves("sandbox.filter")
def test_some_attempts_are_stopped_by_the_filter_alone() -> None:
    need_level("namespaces")
    # The same scene with a filter that allows everything.
    allow = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
    program = (
        f"import fidelio.sandbox.launch as launch; launch.build_filter = lambda **options: {allow!r}\n"
        "from tests.sandbox.isolation.scene import main; main()"
    )
    argv = [sys.executable, "-c", program, str(next(reversed(USERS.values()))), "namespaces"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)

    assert '"set-user-id-file": "escaped' in done.stdout, done.stderr
    assert '"trace": "escaped' in done.stdout
    assert '"nested-unshare": ""' in done.stdout


@proves("sandbox.escapes")
def test_the_table_of_attempts_has_no_row_that_is_not_stopped() -> None:
    rows = list_rows()

    assert len(rows) >= 40
    assert len({row.title for row in rows}) == len(rows)
    assert {row.bubblewrap for row in rows} == {row.namespaces for row in rows} == {"stopped"}
    assert {row.landlock for row in rows} == {"stopped", "not offered"}
    assert all(row.title in render_escapes() for row in rows)
