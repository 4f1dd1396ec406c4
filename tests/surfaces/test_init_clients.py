"""`fidelio init`: which clients are set up, in which directory, with which toolsets, and what is said about paths."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.support import proves
from tests.surfaces.conftest import Fidelio


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """The directory of a user without any client."""
    directory = tmp_path / "user"
    (directory / "bin").mkdir(parents=True)
    return directory


@pytest.fixture
def environ(environ: dict[str, str], user: Path) -> dict[str, str]:
    unnamed = {name: value for name, value in environ.items() if name != "FIDELIO_HOME"}
    return {**unnamed, "HOME": str(user), "XDG_DATA_HOME": str(user / "data"), "PATH": str(user / "bin")}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


def install(user: Path, *programs: str) -> None:
    for program in programs:
        (user / "bin" / program).touch(mode=0o755)


def names(fidelio: Fidelio, project: Path, *options: str) -> list[str]:
    done = fidelio("init", "--project", str(project), "--dry-run", "--json", *options)
    return [client["client"] for client in json.loads(done.stdout)["clients"]]


@proves("cli.init-clients")
def test_a_client_is_found_by_its_program_its_directory_or_its_file_in_the_project(
    fidelio: Fidelio, user: Path, project: Path
) -> None:
    none = names(fidelio, project)
    install(user, "claude")
    (user / ".codex").mkdir()
    (project / ".cursor").mkdir()
    (project / ".cursor" / "mcp.json").write_text("{}")

    assert none == []
    assert names(fidelio, project) == ["claude", "codex", "cursor"]
    assert names(fidelio, project, "--client", "gemini") == ["gemini"]
    assert names(fidelio, project, "--all") == ["claude", "codex", "cursor", "vscode", "gemini"]


@proves("cli.init-clients")
def test_clients_that_are_left_out_are_named(fidelio: Fidelio, user: Path, project: Path) -> None:
    install(user, "claude", "code")

    done = fidelio("init", "--project", str(project))

    assert (done.returncode, done.stderr) == (0, "")
    assert "Not found on this machine, so not set up: Codex, Cursor, Gemini CLI. --all sets up every client." in done.stdout
    assert sorted(path.name for path in project.iterdir()) == [".fidelio", ".mcp.json", ".vscode"]


@proves("cli.init-clients")
def test_a_program_that_cannot_be_started_is_no_client(fidelio: Fidelio, user: Path, project: Path) -> None:
    (user / "bin" / "claude").touch(mode=0o644)

    assert names(fidelio, project) == []


@proves("cli.init-clients")
def test_without_any_client_the_project_still_gets_its_home(fidelio: Fidelio, project: Path) -> None:
    done = fidelio("init", "--project", str(project))

    assert done.returncode == 0
    assert [path.name for path in project.iterdir()] == [".fidelio"]
    assert "Start your agent here" not in done.stdout


@proves("cli.init-nested")
def test_a_second_home_inside_of_a_project_is_refused_until_it_is_wanted(fidelio: Fidelio, project: Path) -> None:
    fidelio("init", "--project", str(project))
    inner = project / "packages" / "inner part"
    inner.mkdir(parents=True)

    refused = fidelio("init", "--project", str(inner))
    left = [*inner.iterdir()]
    wanted = fidelio("init", "--project", str(inner), "--nested")
    again = fidelio("init", "--project", str(inner))

    assert refused.returncode == 1
    assert f"{inner} is inside of the project {project}, which has a home." in refused.stderr
    assert f"--project {project}, or make a second home with --nested." in refused.stderr
    assert left == []
    assert (wanted.returncode, again.returncode) == (0, 0)
    assert (inner / ".fidelio").is_dir()


@proves("cli.init-nested")
def test_a_home_in_the_directory_of_the_user_makes_no_project_of_it(fidelio: Fidelio, user: Path) -> None:
    (user / ".fidelio").mkdir(mode=0o700)
    (user / "work").mkdir()

    assert fidelio("init", "--project", str(user / "work")).returncode == 0


@proves("cli.init-nested")
def test_a_home_that_was_named_is_no_second_home(fidelio: Fidelio, project: Path) -> None:
    fidelio("init", "--project", str(project))
    (project / "inner").mkdir()

    done = fidelio("--home", str(project / ".fidelio"), "init", "--project", str(project / "inner"), "--client", "claude")

    assert done.returncode == 0
    assert not (project / "inner" / ".fidelio").exists()


@proves("cli.init-toolsets")
def test_the_orchestrator_is_an_entry_of_its_own_that_is_offered(fidelio: Fidelio, user: Path, project: Path) -> None:
    install(user, "claude", "codex")

    plain = fidelio("init", "--project", str(project))
    both = fidelio("init", "--project", str(project), "--sandbox", "--orchestrator")

    servers = json.loads((project / ".mcp.json").read_text())["mcpServers"]
    codex = tomllib.loads((project / ".codex" / "config.toml").read_text())["mcp_servers"]
    assert servers["fidelio-orchestrator"]["args"][-3:] == ["mcp", "--toolset", "orchestrator"]
    assert list(servers) == list(codex) == ["fidelio", "fidelio-sandbox", "fidelio-orchestrator"]
    assert "--sandbox (a sandbox with a copy of this project), --orchestrator (tools that start other agents)" in plain.stdout
    assert "--orchestrator (" not in both.stdout


@proves("cli.init-paths")
def test_paths_that_only_this_machine_has_are_named(fidelio: Fidelio, user: Path, project: Path) -> None:
    install(user, "claude")
    by_path = fidelio("init", "--project", str(project), "--dry-run")
    install(user, "fidelio")
    by_name = fidelio("init", "--project", str(project), "--dry-run")
    elsewhere = fidelio("--home", str(user / "home"), "init", "--project", str(project), "--dry-run", "--json")

    assert "The entries contain paths of this machine, so do not commit them: /" in by_path.stdout
    assert "paths of this machine" not in by_name.stdout
    assert json.loads(elsewhere.stdout)["absolute"] == [str(user / "home")]
