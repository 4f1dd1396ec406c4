"""`fidelio init`: configuration files of the MCP clients."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.surfaces.cli.config_files import CannotEdit
from fidelio.surfaces.cli.init import CLIENTS, Client, server_command
from tests.support import proves
from tests.surfaces.conftest import Fidelio

FILES = [client.file for client in CLIENTS]
CLAUDE, CODEX, VSCODE = (next(client for client in CLIENTS if client.name == name) for name in ("claude", "codex", "vscode"))
COMMAND = ["/opt/fidelio", "mcp"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CONFIGS = st.dictionaries(st.text(), VALUES, max_size=3).flatmap(
    lambda rest: (
        st.none().map(lambda _: rest)
        | st.dictionaries(st.text(), VALUES, max_size=3).map(lambda servers: {"mcpServers": servers, **rest})
        | st.dictionaries(st.text(), VALUES, max_size=3).map(lambda servers: {**rest, "mcpServers": servers})
    )
)


@pytest.fixture
def environ(environ: dict[str, str], home: Path) -> dict[str, str]:
    """No named home; the user has a data directory."""
    unnamed = {name: value for name, value in environ.items() if name != "FIDELIO_HOME"}
    return {**unnamed, "XDG_DATA_HOME": str(home)}


def refused(client: Client, text: str) -> CannotEdit:
    with pytest.raises(CannotEdit) as caught:
        client.add(text, {"fidelio": COMMAND})
    return caught.value


def inserted(before: str, after: str) -> str:
    """The text that was inserted; fails if anything else has changed."""
    start = next((at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(before))
    end = len(after) - (len(before) - start)
    assert after[:start] + after[end:] == before
    return after[start:end]


def without_comments(text: str) -> Any:
    return json.loads(re.sub(r"//.*", "", text))


@proves("cli.init")
def test_every_client_gets_an_entry_and_the_project_a_home(fidelio: Fidelio, tmp_path: Path) -> None:
    done = fidelio("init", "--all")

    assert done.returncode == 0
    for file in FILES:
        text = (tmp_path / file).read_text()
        config = tomllib.loads(text) if file.endswith("toml") else json.loads(text)
        (servers,) = config.values()
        assert servers["fidelio"]["args"][-2:] == ["mcp", "--enforce"]
    assert (tmp_path / ".fidelio" / ".gitignore").read_text().startswith("*\n")


@proves("cli.init")
def test_a_second_run_changes_nothing(fidelio: Fidelio, tmp_path: Path) -> None:
    fidelio("init", "--all")
    before = {file: (tmp_path / file).read_bytes() for file in FILES}

    again = fidelio("init", "--all", "--json")

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
    assert done.returncode == 1
    assert "was not changed, because" in done.stdout
    assert '"command": "' in done.stdout
    assert done.stderr == "fidelio: 1 of 1 files have no entry for Fidelio: .vscode/mcp.json.\n"


@proves("cli.init")
def test_a_dry_run_shows_the_difference_and_writes_nothing(fidelio: Fidelio, tmp_path: Path) -> None:
    done = fidelio("init", "--all", "--dry-run")

    assert '+    "fidelio": {' in done.stdout
    assert f"would be kept in {tmp_path / '.fidelio'}, which would be created." in done.stdout
    assert not any((tmp_path / file).exists() for file in [*FILES, ".fidelio"])


@proves("cli.init", "cli.surroundings")
def test_a_home_that_cannot_be_filled_is_a_problem_with_a_remedy(fidelio: Fidelio, tmp_path: Path) -> None:
    (tmp_path / ".fidelio").mkdir()
    (tmp_path / ".fidelio" / "workflows").write_text("a file where the directory should be")

    done = fidelio("init", "--all")

    assert done.returncode == 1
    assert "cannot be written: File exists. Check its owner and mode." in done.stderr


@proves("cli.init-as-text")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{\n  "mcpServers": {\n    "fidelio": {\n      "command": "x",\n      "args": []\n    }\n  }\n}'),
        ('{"mcpServers":{}}', '{"mcpServers":{"fidelio": {"command": "x", "args": []}}}'),
        (
            '{"mcpServers": {"a": {}}, "b": 1}\n',
            '{"mcpServers": {"a": {}, "fidelio": {"command": "x", "args": []}}, "b": 1}\n',
        ),
        (
            '{\n\t"mcpServers": {\n\t}\n}',
            '{\n\t"mcpServers": {\n\t\t"fidelio": {\n\t\t\t"command": "x",\n\t\t\t"args": []\n\t\t}\n\t}\n}',
        ),
        (
            '{\r\n "mcpServers": {\r\n  "a": {}\r\n }\r\n}',
            '{\r\n "mcpServers": {\r\n  "a": {},\r\n  "fidelio": {\r\n   "command": "x",\r\n   "args": []\r\n  }\r\n }\r\n}',
        ),
    ],
)
def test_an_entry_is_written_in_the_manner_of_the_file(before: str, after: str) -> None:
    assert CLAUDE.add(before, {"fidelio": ["x"]}) == after


@proves("cli.init-as-text")
def test_numbers_keys_that_stand_there_twice_and_line_ends_stay_as_they_are(fidelio: Fidelio, tmp_path: Path) -> None:
    digits = "9" * 5000
    json_text = f'{{\r\n  "a": 1.0e5, "a": {digits},\r\n  "b": 0.10000000000000000001,\r\n  "e": "\\u00e9é"\r\n}}'
    toml_text = '# mine\r\nmodel = "m"\r\n'
    (tmp_path / ".mcp.json").write_bytes(json_text.encode())
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_bytes(toml_text.encode())

    assert fidelio("init", "--client", "claude", "--client", "codex").returncode == 0

    for file, before in ((".mcp.json", json_text), (".codex/config.toml", toml_text)):
        added = inserted(before, (tmp_path / file).read_bytes().decode())
        assert "fidelio" in added
        assert added.count("\n") == added.count("\r\n")


@proves("cli.init-as-text")
@given(CONFIGS, st.sampled_from([None, 1, 4, "\t"]), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_whatever_the_file_holds_an_entry_is_all_that_changes(
    config: dict[str, Any], indent: int | str | None, newline: str, ascii_only: bool
) -> None:
    before = json.dumps(config, indent=indent, ensure_ascii=ascii_only).replace("\n", newline)

    after = CLAUDE.add(before, {"fidelio": COMMAND})

    known = config.setdefault("mcpServers", {})
    entry = {"command": "/opt/fidelio", "args": ["mcp"]}
    assert json.loads(after) == {**config, "mcpServers": {"fidelio": entry, **known}}
    assert after == before or "fidelio" in inserted(before, after)


@proves("cli.init-as-text")
def test_what_is_shown_for_json_with_comments_can_be_pasted_into_that_file() -> None:
    bare, filled = "{ // mine\n}", '{ // mine\n "servers": {\n}, "inputs": []}'
    entry = {"type": "stdio", "command": "/opt/fidelio", "args": ["mcp"]}

    outside, inside = refused(VSCODE, bare), refused(VSCODE, filled)

    assert outside.where.startswith("inside its outermost braces")
    assert without_comments(bare.replace("}", outside.snippet + "}")) == {"servers": {"fidelio": entry}}
    assert inside.where.startswith("inside the braces of servers")
    pasted = filled.replace("}", inside.snippet + "}", 1)
    assert without_comments(pasted)["servers"] == {"fidelio": entry}
    assert VSCODE.add(pasted, {"fidelio": COMMAND}) == pasted


@proves("cli.init-as-text")
@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[]", "as its only content"),
        ('{"mcpServers": 1}', "in place of mcpServers"),
        ('{"mcpServers": {"a": 1}, "mcpServers": {}}', "inside the braces of the last mcpServers"),
        ("[" * 100_000, "as its only content"),
        ("{,}", "inside its outermost braces"),
    ],
)
def test_where_the_place_in_json_is_not_certain_a_person_is_told_what_to_write(text: str, where: str) -> None:
    error = refused(CLAUDE, text)

    assert error.where.startswith(where)
    shown = error.snippet if error.snippet.startswith("{") else f"{{{error.snippet}}}"
    assert json.loads(shown).get("mcpServers", json.loads(shown))["fidelio"]["command"] == "/opt/fidelio"


@proves("cli.init-as-text", "cli.init-toolsets")
@pytest.mark.parametrize("content", [b'{"mcpServers": []}', b"\xff", b"{,}", b"[]", b'// mine\n{"mcpServers": {}}'])
def test_all_entries_that_a_file_cannot_get_are_one_text_to_write(fidelio: Fidelio, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_bytes(content)
    options = ("init", "--client", "cursor", "--sandbox", "--orchestrator")

    done, listed = fidelio(*options), fidelio(*options, "--json")

    (snippet,) = {edit["snippet"] for edit in json.loads(listed.stdout)["clients"]}
    shown = json.loads(snippet if snippet.startswith("{") else f"{{{snippet}}}")
    assert set(shown.get("mcpServers", shown)) == {"fidelio", "fidelio-sandbox", "fidelio-orchestrator"}
    assert done.stdout.count("Write this ") == 1
    assert file.read_bytes() == content


@proves("cli.init-as-text", "cli.init-toolsets")
@pytest.mark.parametrize("text", ["mcp_servers = 5\n", "= broken\n", "mcp_servers = {}\n"])
def test_all_entries_that_a_toml_file_cannot_get_are_one_text_to_write(fidelio: Fidelio, tmp_path: Path, text: str) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text(text)

    done = fidelio("init", "--client", "codex", "--sandbox")

    assert done.stdout.count("Write this ") == 1
    if "5" in text:
        assert "Write this at its end, after you have deleted the line with the key mcp_servers:" in done.stdout
    snippet = "\n".join(line[4:] for line in done.stdout.splitlines() if line.startswith("    "))
    filled = f"mcp_servers = {{ {snippet.strip()} }}" if "{}" in text else snippet
    assert set(tomllib.loads(filled)["mcp_servers"]) == {"fidelio", "fidelio-sandbox"}


@proves("cli.init-as-text")
def test_a_person_is_told_only_the_entries_that_are_missing() -> None:
    text = '{"mcpServers": {}, "mcpServers": {"fidelio": {}}}'

    with pytest.raises(CannotEdit) as caught:
        CLAUDE.add(text, {"fidelio": COMMAND, "other": COMMAND})

    assert list(json.loads(f"{{{caught.value.snippet}}}")) == ["other"]


@proves("cli.init-as-text")
def test_a_table_in_braces_is_left_to_a_person_with_the_line_to_write() -> None:
    text = "mcp_servers = {}\n"

    error = refused(CODEX, text)

    filled = text.replace("}", error.snippet.strip() + "}")
    assert tomllib.loads(filled)["mcp_servers"]["fidelio"] == {"command": "/opt/fidelio", "args": ["mcp"]}
    assert tomllib.loads(refused(CODEX, "mcp_servers = 1").snippet)["mcp_servers"]["fidelio"]["args"] == ["mcp"]
    for broken in ("= broken", "a = " + "[" * 100_000, "a = " + "9" * 5000):
        assert tomllib.loads(refused(CODEX, broken).snippet)["mcp_servers"]["fidelio"]["args"] == ["mcp"]


@proves("cli.init-each-file")
def test_one_file_that_cannot_be_written_does_not_hold_up_the_others(fidelio: Fidelio, tmp_path: Path) -> None:
    (tmp_path / ".vscode").symlink_to(tmp_path / "nowhere")
    (tmp_path / ".codex").write_text("a file where the directory should be")
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "settings.json").write_bytes(b'{"name": "\xff"}')

    shown = fidelio("init", "--all", "--dry-run", "--json")
    done = fidelio("init", "--all")

    states = {one["client"]: one["state"] for one in json.loads(shown.stdout)["clients"]}
    assert states == {"claude": "added", "codex": "failed", "cursor": "added", "vscode": "failed", "gemini": "skipped"}
    assert (shown.returncode, done.returncode) == (1, 1)
    assert "VS Code: .vscode/mcp.json cannot be read: .vscode is a broken symbolic link." in done.stdout
    assert "Codex: .codex/config.toml cannot be read: Not a directory. Correct that, then run the command again." in done.stdout
    assert done.stderr.endswith("have no entry for Fidelio: .codex/config.toml, .vscode/mcp.json, .gemini/settings.json.\n")
    assert json.loads((tmp_path / ".cursor" / "mcp.json").read_text())["mcpServers"]
    assert not (tmp_path / "nowhere").exists()


@proves("cli.init-each-file")
def test_a_link_is_followed_to_the_file_it_means_and_no_draft_stays_behind(fidelio: Fidelio, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / ".mcp.json").symlink_to(Path("shared") / "mcp.json")
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").symlink_to(Path("gone") / "mcp.json")

    done = fidelio("init", "--client", "claude", "--client", "cursor")

    assert (tmp_path / ".mcp.json").is_symlink()
    assert json.loads((tmp_path / "shared" / "mcp.json").read_text())["mcpServers"]["fidelio"]
    assert "Cursor: .cursor/mcp.json cannot be written: No such file or directory." in done.stdout
    assert not list(tmp_path.rglob(".*.fidelio"))


@proves("cli.init-command")
def test_a_name_that_only_our_own_environment_knows_is_written_as_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, others = tmp_path / "venv" / "bin", tmp_path / "bin"
    for place in (ours, others):
        place.mkdir(parents=True)
        (place / "fidelio").touch(mode=0o755)
    monkeypatch.setattr(sys, "prefix", str(ours.parent))
    monkeypatch.setattr(sys, "executable", str(ours / "python"))

    monkeypatch.setenv("PATH", f"{ours}")
    activated = server_command()
    monkeypatch.setenv("PATH", f"{ours}{os.pathsep}{others}")
    installed = server_command()
    (ours / "fidelio").unlink()
    monkeypatch.setenv("PATH", "")
    bare = server_command()

    assert activated == [str(ours / "fidelio"), "mcp", "--enforce"]
    assert installed == ["fidelio", "mcp", "--enforce"]
    assert bare == [str(ours / "python"), "-m", "fidelio", "mcp", "--enforce"]
