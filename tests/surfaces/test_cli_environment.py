"""Machines that are not as expected: no home, a home nobody may use, a working directory that is gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import proves
from tests.surfaces.conftest import Fidelio

TOO_LONG = "x" * 300
IN_A_GONE_DIRECTORY = """
import os, subprocess, sys, tempfile
place = tempfile.mkdtemp()
os.chdir(place)
os.rmdir(place)
sys.exit(subprocess.run([sys.executable, "-P", "-m", "fidelio", *sys.argv[1:]], timeout=50).returncode)
"""


def run_in_deleted_directory(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", IN_A_GONE_DIRECTORY, *arguments]
    return subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )


@proves("cli.surroundings", "cli.doctor")
def test_doctor_reports_a_home_that_cannot_be_made_and_looks_at_everything_else(fidelio: Fidelio, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = fidelio("--home", str(tmp_path / "file" / "home"), "doctor", "--json")
    checks = {check["name"]: check["state"] for check in json.loads(done.stdout)["checks"]}

    assert (done.returncode, done.stderr) == (1, "")
    assert (checks["home"], checks["disk"], checks["python"]) == ("problem", "ok", "ok")


@proves("cli.named-home")
@pytest.mark.parametrize(
    "command",
    ["verify --all", "sessions", "inbox", "inbox --watch", "report s_1", "trace s_1", "events s_1", "search x", "answer r_1 y"],
)
def test_a_reading_command_reports_a_missing_home_and_does_not_create_it(
    fidelio: Fidelio, tmp_path: Path, command: str
) -> None:
    missing = tmp_path / "mistyped"

    by_option, outside = fidelio("--home", str(missing), *command.split()), fidelio(*command.split(), FIDELIO_HOME=str(missing))

    for done in (by_option, outside):
        assert (done.returncode, done.stdout) == (4, "")
        assert done.stderr.startswith(f"fidelio: There is no home at {missing}.")
    assert not missing.exists()


@proves("cli.named-home")
def test_a_home_that_nobody_named_and_a_ledger_elsewhere_need_no_home_before(fidelio: Fidelio, tmp_path: Path) -> None:
    unnamed = fidelio("verify", "--all", FIDELIO_HOME="", XDG_DATA_HOME=str(tmp_path / "data"))
    elsewhere = fidelio("verify", "--all", FIDELIO_LEDGER=str(tmp_path / "other.db"))

    assert {unnamed.stdout, elsewhere.stdout} == {"0 of 0 sessions hold.\n"}


@proves("cli.surroundings")
@pytest.mark.parametrize("command", ["list", "keys", "sessions", "tour", "doctor"])
def test_a_home_that_cannot_be_looked_at_is_a_problem_with_a_remedy(fidelio: Fidelio, tmp_path: Path, command: str) -> None:
    done = fidelio("--home", str(tmp_path / TOO_LONG), command)

    assert done.returncode == 1
    assert "File name too long" in done.stdout + done.stderr
    assert "Unexpected" not in done.stderr


@proves("cli.surroundings")
@pytest.mark.parametrize("command", ["sessions", "list", "mcp"])
def test_in_a_directory_that_was_deleted_the_remedy_is_named(environ: dict[str, str], command: str) -> None:
    done = run_in_deleted_directory({name: value for name, value in environ.items() if name != "FIDELIO_HOME"}, command)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("fidelio: The working directory cannot be found")
    assert "Traceback" not in done.stderr


@proves("cli.surroundings")
@pytest.mark.parametrize("command", ["tour", "list", "lint", "mcp"])
def test_a_home_that_is_named_works_from_a_directory_that_was_deleted(environ: dict[str, str], command: str) -> None:
    done = run_in_deleted_directory(environ, command)

    assert (done.returncode, done.stderr) == (0, "")


@proves("cli.surroundings")
@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_keys_in_a_home_that_cannot_be_written_are_not_rotated(fidelio: Fidelio, home: Path) -> None:
    fidelio("keys")
    home.chmod(0o500)
    done = fidelio("keys", "--rotate")
    home.chmod(0o700)

    assert done.returncode == 1
    assert "cannot be written: Permission denied" in done.stderr


@proves("cli.surroundings")
@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may look everywhere")
@pytest.mark.parametrize("command", ["list", "keys", "sessions", "doctor"])
def test_a_home_that_is_closed_to_its_user_is_a_problem_with_a_remedy(fidelio: Fidelio, home: Path, command: str) -> None:
    home.mkdir(mode=0o000)
    done = fidelio(command)
    home.chmod(0o700)

    assert done.returncode in (1, 5)
    assert "Unexpected" not in done.stderr


@proves("cli.bundled-only")
def test_a_broken_workflow_of_the_users_own_breaks_neither_tour_nor_demo(fidelio: Fidelio, home: Path) -> None:
    (home / "workflows" / "hello").mkdir(parents=True)
    (home / "workflows" / "hello" / "workflow.yaml").write_text("id: hello\nthis is [not a workflow")

    tour, demo = fidelio("tour"), fidelio("demo", "--headless")

    assert (tour.returncode, tour.stderr) == (0, "")
    assert (demo.returncode, demo.stderr) == (0, "")
    assert "0 errors, 0 warnings" in tour.stdout


@proves("cli.ledger-address")
@pytest.mark.parametrize(
    "address", ["nonsense://x", "http://user:secret@host/x", ":memory:", "sqlite://x", "file:x?mode=memory"]
)
def test_a_ledger_that_cannot_be_is_refused_with_the_forms_that_can(fidelio: Fidelio, tmp_path: Path, address: str) -> None:
    refused = fidelio("sessions", FIDELIO_LEDGER=address)

    assert refused.returncode == 2
    assert "Use a file path, or an address that begins with postgresql:// or postgres://" in refused.stderr
    assert "secret" not in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == []
