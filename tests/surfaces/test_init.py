"""Making a project ready for agents."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from fidelio.surfaces.cli.clients import CLIENTS
from tests.support import proves
from tests.surfaces.conftest import Fidelio

FILES = [client.file for client in CLIENTS]


@proves("cli.init")
def test_every_client_gets_an_entry_and_the_project_a_home(fidelio: Fidelio, tmp_path: Path) -> None:
    done = fidelio("init")

    assert done.returncode == 0
    for file in FILES:
        text = (tmp_path / file).read_text()
        config = tomllib.loads(text) if file.endswith("toml") else json.loads(text)
        (servers,) = config.values()
        assert servers["fidelio"]["args"][-1] == "mcp"
    assert (tmp_path / ".fidelio" / ".gitignore").read_text().startswith("*\n")


@proves("cli.init")
def test_a_second_run_changes_nothing(fidelio: Fidelio, tmp_path: Path) -> None:
    fidelio("init")
    before = {file: (tmp_path / file).read_bytes() for file in FILES}

    again = fidelio("init", "--json")

    assert {client["state"] for client in json.loads(again.stdout)["clients"]} == {"kept"}
    assert {file: (tmp_path / file).read_bytes() for file in FILES} == before


@proves("cli.init")
def test_what_is_there_stays_there(fidelio: Fidelio, tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text('{\n    "mcpServers": {\n        "other": {"command": "x"}\n    },\n    "more": 1\n}\n')
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text('# mine\nmodel = "m"\n\n[mcp_servers.other]\ncommand = "x"')

    fidelio("init", "--client", "claude", "--client", "codex")

    claude = json.loads((tmp_path / ".mcp.json").read_text())
    codex = (tmp_path / ".codex" / "config.toml").read_text()
    assert (claude["mcpServers"]["other"], claude["more"]) == ({"command": "x"}, 1)
    assert codex.startswith("# mine\n")
    assert set(tomllib.loads(codex)["mcp_servers"]) == {"other", "fidelio"}
    assert not (tmp_path / ".cursor").exists()


@proves("cli.init")
@pytest.mark.parametrize("text", ["// a comment\n{}", "[]", '{"servers": []}', "\0"])
def test_a_file_that_cannot_be_edited_safely_is_left_alone(fidelio: Fidelio, tmp_path: Path, text: str) -> None:
    (tmp_path / ".vscode").mkdir()
    file = tmp_path / ".vscode" / "mcp.json"
    file.write_text(text)

    done = fidelio("init", "--client", "vscode")

    assert file.read_text() == text
    assert "is left alone, because" in done.stdout


@proves("cli.init")
def test_a_dry_run_shows_the_difference_and_writes_nothing(fidelio: Fidelio, tmp_path: Path) -> None:
    done = fidelio("init", "--dry-run")

    assert '+    "fidelio": {' in done.stdout
    assert not any((tmp_path / file).exists() for file in [*FILES, ".fidelio"])


@proves("cli.init", "cli.surroundings")
def test_a_home_that_cannot_be_filled_is_a_problem_with_a_remedy(fidelio: Fidelio, tmp_path: Path) -> None:
    (tmp_path / ".fidelio").mkdir()
    (tmp_path / ".fidelio" / "workflows").write_text("a file where the directory should be")

    done = fidelio("init")

    assert done.returncode == 1
    assert "cannot be written: File exists. Check its owner and mode." in done.stderr
