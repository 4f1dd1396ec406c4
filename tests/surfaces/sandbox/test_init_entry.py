"""`fidelio init --sandbox`: an entry for the sandbox beside the one for Fidelio."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from fidelio.surfaces.cli.init import CLIENTS
from tests.support import proves
from tests.surfaces.conftest import Fidelio

OPTIONS = ["mcp", "--toolset", "sandbox", "--mount", "."]


def entries(tmp_path: Path, file: str, table: str) -> dict[str, dict[str, list[str]]]:
    text = (tmp_path / file).read_text()
    found = tomllib.loads(text) if file.endswith(".toml") else json.loads(text)
    servers: dict[str, dict[str, list[str]]] = found[table]
    return servers


@proves("sandbox-init.entry")
def test_every_client_gets_both_entries(fidelio: Fidelio, tmp_path: Path) -> None:
    done = fidelio("init", "--all", "--sandbox", FIDELIO_HOME="")

    assert done.returncode == 0, done.stderr
    for client in CLIENTS:
        found = entries(tmp_path, client.file, client.table)
        assert set(found) == {"fidelio", "fidelio-sandbox"}
        assert found["fidelio-sandbox"]["args"][-len(OPTIONS) :] == OPTIONS
        assert "--enforce" in found["fidelio"]["args"]
    assert "Claude Code: .mcp.json has an entry for the sandbox of Fidelio." in done.stdout
    assert "use only the tools of the fidelio-sandbox server" in done.stdout
    assert "fidelio sandbox diff` shows what it has changed." in done.stdout


@proves("sandbox-init.entry")
def test_without_the_option_nothing_is_written_for_the_sandbox(fidelio: Fidelio, tmp_path: Path) -> None:
    done = fidelio("init", "--all", FIDELIO_HOME="")

    assert "For the sandbox" not in done.stdout
    assert set(entries(tmp_path, ".mcp.json", "mcpServers")) == {"fidelio"}


@proves("sandbox-init.entry")
def test_an_entry_that_exists_stays_and_the_other_is_added(fidelio: Fidelio, tmp_path: Path) -> None:
    fidelio("init", "--client", "claude", FIDELIO_HOME="")
    before = (tmp_path / ".mcp.json").read_text()

    dry = fidelio("init", "--client", "claude", "--sandbox", "--dry-run", FIDELIO_HOME="")
    unchanged = (tmp_path / ".mcp.json").read_text()
    again = fidelio("init", "--client", "claude", "--sandbox", "--json", FIDELIO_HOME="")

    assert unchanged == before
    assert "+" in dry.stdout
    assert [(edit["state"], edit.get("entry")) for edit in json.loads(again.stdout)["clients"]] == [
        ("kept", None),
        ("added", "fidelio-sandbox"),
    ]
    found = entries(tmp_path, ".mcp.json", "mcpServers")
    assert found["fidelio"] == json.loads(before)["mcpServers"]["fidelio"]
    assert found["fidelio-sandbox"]["args"][-len(OPTIONS) :] == OPTIONS


@proves("sandbox-init.entry")
def test_a_file_that_cannot_be_edited_is_left_to_a_person_with_both_entries(fidelio: Fidelio, tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text("[]")

    done = fidelio("init", "--client", "claude", "--sandbox", FIDELIO_HOME="")

    assert done.returncode == 1
    assert '"fidelio"' in done.stdout
    assert '"fidelio-sandbox"' in done.stdout
    assert done.stdout.count("was not changed") == 1
    assert "1 of 1 files have no entry" in done.stderr
    assert (tmp_path / ".mcp.json").read_text() == "[]"
