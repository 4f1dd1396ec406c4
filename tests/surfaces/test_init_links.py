"""`fidelio init` in a project with symbolic links that lead out of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fidelio.surfaces.cli.contained_files import write_inside
from tests.support import proves
from tests.support.users import NOBODY, needs_root
from tests.surfaces.conftest import Fidelio


@pytest.fixture
def environ(environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """No named home; the user has a data directory."""
    unnamed = {name: value for name, value in environ.items() if name != "FIDELIO_HOME"}
    return {**unnamed, "XDG_DATA_HOME": str(tmp_path / "data")}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    directory.mkdir()
    return directory


def init(fidelio: Fidelio, project: Path, *clients: str) -> list[dict[str, str]]:
    options = [word for client in clients for word in ("--client", client)]
    done = fidelio("init", "--project", str(project), *options, "--json")
    found: list[dict[str, str]] = json.loads(done.stdout)["clients"]
    return found


@proves("cli.init-links")
def test_a_file_that_is_a_link_out_of_the_project_is_refused_by_name(fidelio: Fidelio, project: Path, outside: Path) -> None:
    (outside / "mcp.json").write_text("{}")
    (project / ".mcp.json").symlink_to(outside / "mcp.json")
    (project / ".cursor").symlink_to(outside)
    (project / ".vscode").mkdir()
    (project / ".vscode" / "mcp.json").symlink_to(outside / "new.json")

    claude, cursor, vscode = init(fidelio, project, "claude", "cursor", "vscode")

    assert [client["state"] for client in (claude, cursor, vscode)] == ["failed"] * 3
    for client, link in ((claude, ".mcp.json"), (cursor, ".cursor"), (vscode, ".vscode/mcp.json")):
        assert f"{project / link} is a symbolic link that leads out of the project, to {outside}" in client["reason"]
    assert [path.name for path in outside.iterdir()] == ["mcp.json"]
    assert (outside / "mcp.json").read_text() == "{}"


@proves("cli.init-links")
@pytest.mark.parametrize("target", ["outside", "nowhere"])
def test_a_home_that_is_a_link_out_of_the_project_is_refused(
    fidelio: Fidelio, project: Path, outside: Path, target: str
) -> None:
    (project / ".fidelio").symlink_to(outside.parent / target)

    done = fidelio("init", "--project", str(project))

    assert done.returncode == 1
    assert f"{project / '.fidelio'} is a symbolic link that leads out of the project" in done.stderr
    assert list(outside.iterdir()) == []
    assert not (outside.parent / "nowhere").exists()
    assert not (project / ".mcp.json").exists()


@proves("cli.init-links")
def test_what_init_writes_into_a_home_goes_through_no_link(fidelio: Fidelio, project: Path, outside: Path) -> None:
    (project / ".fidelio").mkdir()
    (project / ".fidelio" / ".gitignore").symlink_to(outside / "planted")

    done = fidelio("init", "--project", str(project))

    assert done.returncode == 1
    assert "leads out of the project" in done.stderr
    assert list(outside.iterdir()) == []


@proves("cli.init-links")
def test_a_link_that_appears_after_the_check_is_not_followed(
    project: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".cursor").mkdir()
    resolve = os.path.realpath

    def exchange(path: str | Path) -> str:
        real = resolve(path)
        if str(path).endswith("mcp.json"):
            (project / ".cursor").rmdir()
            (project / ".cursor").symlink_to(outside)
        return real

    monkeypatch.setattr("os.path.realpath", exchange)

    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        write_inside(project, ".cursor/mcp.json", b"{}")
    assert list(outside.iterdir()) == []


@proves("cli.init-links")
def test_a_draft_that_was_planted_is_not_written_through(project: Path, outside: Path) -> None:
    (project / "..mcp.json.fidelio").symlink_to(outside / "planted")

    write_inside(project, ".mcp.json", b"{}")

    assert (project / ".mcp.json").read_bytes() == b"{}"
    assert list(outside.iterdir()) == []


@needs_root
@proves("cli.init-links", "cli.home-owner")
def test_init_writes_nothing_into_a_home_of_another_user(fidelio: Fidelio, project: Path) -> None:
    (project / ".fidelio").mkdir()
    os.chown(project / ".fidelio", NOBODY, NOBODY)

    done = fidelio("init", "--project", str(project))

    assert "belongs to the user" in done.stderr
    assert list((project / ".fidelio").iterdir()) == []
