"""`fidelio init`: the home of a project is the same for agents and people."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support import proves
from tests.surfaces.conftest import Fidelio

UNNAMED = {"FIDELIO_HOME": ""}


def arguments_in(project: Path) -> list[str]:
    entry: list[str] = json.loads((project / ".mcp.json").read_text())["mcpServers"]["fidelio"]["args"]
    return entry


@proves("cli.init-home")
@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_home_that_was_named_is_the_one_that_agents_use(fidelio: Fidelio, tmp_path: Path, by: str) -> None:
    named = str(tmp_path / "named")
    options, outside = (["--home", "./named"], UNNAMED) if by == "option" else ([], {"FIDELIO_HOME": named})

    done = fidelio(*options, "init", "--client", "claude", **outside)

    assert arguments_in(tmp_path)[-4:] == ["mcp", "--enforce", "--home", named]
    assert f"Sessions of this project are kept in {named}." in done.stdout
    assert not (tmp_path / ".fidelio").exists()


@proves("cli.init-home")
def test_the_projects_own_home_is_found_without_being_named(fidelio: Fidelio, tmp_path: Path) -> None:
    fidelio("--home", ".fidelio", "init", "--client", "claude")

    assert arguments_in(tmp_path)[-2:] == ["mcp", "--enforce"]
    assert (tmp_path / ".fidelio" / "workflows").is_dir()


@proves("cli.init-home")
def test_a_new_home_that_hides_another_says_where_the_former_sessions_are(fidelio: Fidelio, tmp_path: Path) -> None:
    outside = {**UNNAMED, "XDG_DATA_HOME": str(tmp_path / "data")}
    fidelio("tour", "--json", **outside)

    first, second = (fidelio("init", "--client", "claude", **outside).stdout for _ in range(2))

    former = tmp_path / "data" / "fidelio"
    assert f"Earlier sessions stay in {former}. List them with: " in first
    assert f" --home {former} sessions" in first
    assert "Earlier sessions" not in second


@proves("cli.init-home")
def test_git_sees_workflows_and_blueprints_and_nothing_else_of_a_home(fidelio: Fidelio, tmp_path: Path) -> None:
    fidelio("init", **UNNAMED)
    home = tmp_path / ".fidelio"
    for name in (
        "agents/robot.md",
        "agents/team/AGENT.md",
        "workflows/mine/workflow.yaml",
        "ledger.db",
        "schemas/skill.json",
        "runs/one/output",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()

    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True, timeout=60)
    listing = ["git", "ls-files", "--others", "--exclude-standard", ".fidelio"]
    seen = subprocess.run(listing, cwd=tmp_path, check=True, timeout=60, capture_output=True, text=True).stdout.split()

    shared = {"agents/robot.md", "agents/team/AGENT.md", "workflows/mine/workflow.yaml", "schemas/skill.json"}
    assert set(seen) == {f".fidelio/{name}" for name in (".gitignore", *shared)}
