"""Which level of isolation a machine offers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fidelio.app import checks
from fidelio.sandbox import levels
from fidelio.sandbox.levels import LEVELS, detect_level
from fidelio.sandbox.model import Level, LevelReport
from tests.support import proves
from tests.support.command_line import run_fidelio


@pytest.fixture
def working(monkeypatch: pytest.MonkeyPatch) -> set[Level]:
    """The levels that work on a pretended machine."""
    works: set[Level] = set()
    monkeypatch.setattr(levels, "try_level", lambda level: "" if level in works else f"{level} is broken.")
    return works


@proves("sandbox.levels")
def test_the_best_level_that_works_is_chosen_and_says_why_no_better_one_is(working: set[Level]) -> None:
    assert detect_level({}).level == "none"
    assert detect_level({}).reason == "bubblewrap is broken. namespaces is broken. landlock is broken."

    for level in reversed(LEVELS):
        working.add(level)
        report = detect_level({})
        assert report.level == level
        assert report.runs_commands == (level != "landlock")
        assert [f"{better} is broken." in report.reason for better in LEVELS] == [better not in working for better in LEVELS]
    assert report.remedy == ""


@proves("sandbox.level-forced")
@pytest.mark.parametrize(
    ("value", "level"), [("namespaces", "namespaces"), ("b", "namespaces"), ("c", "landlock"), ("d", "none")]
)
def test_a_level_can_be_forced(working: set[Level], value: str, level: Level) -> None:
    working.update(LEVELS)

    assert detect_level({"FIDELIO_SANDBOX_LEVEL": value}).level == level


@proves("sandbox.level-forced")
def test_a_forced_level_that_does_not_work_is_replaced_by_no_other(working: set[Level]) -> None:
    working.add("bubblewrap")

    broken = detect_level({"FIDELIO_SANDBOX_LEVEL": "namespaces"})
    unknown = detect_level({"FIDELIO_SANDBOX_LEVEL": "docker"})

    assert (broken.level, broken.reason) == ("none", "namespaces is broken.")
    assert unknown.level == "none"
    assert "'docker'" in unknown.reason
    assert "bubblewrap, namespaces, landlock, none" in unknown.remedy


@proves("sandbox.levels")
def test_a_machine_without_bubblewrap_is_told_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fidelio.sandbox.launch.find_bubblewrap", lambda: None)
    monkeypatch.setattr(levels, "find_bubblewrap", lambda: None)

    assert levels.try_level("bubblewrap") == "bubblewrap is not installed."
    assert "apt-get install bubblewrap" in levels.find_remedy()


@proves("sandbox.levels")
def test_the_message_of_a_program_that_fails_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another program in the place of an old bubblewrap.
    monkeypatch.setattr("fidelio.sandbox.launch.find_bubblewrap", lambda: "/usr/bin/env")

    assert "unrecognized option '--args'" in levels.try_level("bubblewrap")


@proves("sandbox.doctor")
@pytest.mark.parametrize(("level", "state", "cost"), [
    ("bubblewrap", "ok", ""), ("namespaces", "ok", ""),
    ("landlock", "warning", "cannot run commands"), ("none", "warning", "No sandbox can be started"),
])  # fmt: skip
def test_doctor_names_level_reason_and_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, level: Level, state: str, cost: str
) -> None:
    monkeypatch.setattr(checks, "detect_level", lambda: LevelReport(level, "The reason.", "The remedy."))
    environ = {**os.environ, "FIDELIO_HOME": str(tmp_path / "home")}

    done = run_fidelio(("doctor", "--json"), environ=environ, directory=tmp_path)
    (check,) = (check for check in json.loads(done.stdout)["checks"] if check["name"] == "sandbox")

    assert (check["state"], check["sentence"], check["remedy"]) == (state, f"The reason. Level: {level}.", "The remedy.")
    assert cost in check["cost"]


@proves("sandbox.doctor")
def test_apparmor_that_refuses_user_namespaces_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    setting = tmp_path / "apparmor_restrict_unprivileged_userns"
    monkeypatch.setattr(levels, "_APPARMOR", setting)
    assert "AppArmor" not in levels.find_remedy()

    setting.write_text("0\n")
    assert "AppArmor" not in levels.find_remedy()

    setting.write_text("1\n")
    assert "Ubuntu 24.04" in levels.find_remedy()
    assert "userns, }" in levels.find_remedy()
    assert "sudo apparmor_parser -r /etc/apparmor.d/bwrap" in levels.find_remedy()
