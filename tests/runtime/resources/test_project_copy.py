"""The user's project in a sandbox: the option, and what a copy contains."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from fidelio.errors import UsageProblem
from fidelio.home import Home
from fidelio.runtime.project import ProjectMount, parse_mount
from fidelio.runtime.project import copying as module
from fidelio.runtime.project.copying import load_manifest
from tests.runtime.resources.support import Bench, change_owner
from tests.support import proves
from tests.support.parts import require_part
from tests.support.users import NOBODY, needs_root


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


def git(directory: Path, *arguments: str) -> str:
    if shutil.which("git") is None:
        require_part("git", "Install it with apt-get install git.")
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=trunk", *arguments]
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout


async def copy(bench: Bench, project: Path, name: str = "copied") -> Path:
    """Start a session with a copy of the project; the directory of the copy on the host."""
    session = await bench.start(name, mount_mode="copy", mount_source=str(project))
    spec = await bench.spec(session)
    (source,) = [mount.source for mount in spec.mounts if mount.path == "/workspace/project"]
    return Path(source)


def list_files(directory: Path) -> set[str]:
    found = (path.relative_to(directory) for path in directory.rglob("*") if path.is_symlink() or not path.is_dir())
    return {str(path) for path in found if path.parts[0] != ".git"}


@proves("runtime.project-mount")
@pytest.mark.parametrize(
    ("text", "mode"), [("{}", "copy"), ("{}:copy", "copy"), ("{}:ro", "ro"), (".", "copy"), (".:ro", "ro"), ("{}/", "copy")]
)
def test_a_directory_is_a_copy_unless_told_otherwise(project: Path, text: str, mode: str) -> None:
    assert parse_mount(text.format(project), project) == ProjectMount(str(project), mode)  # type: ignore[arg-type]  # a mode


@proves("runtime.project-mount")
@pytest.mark.parametrize("text", ["", ":ro", "/nowhere", "/nowhere:ro", "file", "file:copy", ".:rx", ".:RO", "/", "/:ro"])
def test_what_is_no_directory_or_no_mode_is_refused(project: Path, text: str) -> None:
    (project / "file").touch()
    with pytest.raises(UsageProblem):
        parse_mount(text, project)


@proves("runtime.project-mount")
def test_a_colon_in_the_name_of_a_directory_is_no_mode(project: Path) -> None:
    odd = project / "a:b"
    odd.mkdir()
    assert parse_mount(str(odd), project) == ProjectMount(str(odd))
    assert parse_mount(f"{odd}:ro", project) == ProjectMount(str(odd), "ro")
    assert parse_mount(None, project) is None


@proves("runtime.project-mount")
def test_the_link_to_a_project_is_followed_once_when_it_is_named(project: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project)
    assert parse_mount(str(tmp_path / "link"), project) == ProjectMount(str(project))


@needs_root
@proves("runtime.project-mount")
async def test_as_root_only_a_directory_of_another_user_can_be_written(bench: Bench, project: Path) -> None:
    with pytest.raises(UsageProblem, match="belongs to root"):
        parse_mount(f"{project}:rw", project)
    os.chown(project, NOBODY, NOBODY)
    mount = parse_mount(f"{project}:rw", project)
    assert mount is not None
    session = await bench.start(mount_mode=mount.mode, mount_source=mount.source)
    spec = await bench.spec(session)
    mounted = [(each.source, each.access) for each in spec.mounts if each.path == "/workspace/project"]
    assert mounted == [(str(project), "read_write")]
    assert (await bench.workspace(session)).stat().st_uid == NOBODY


@proves("runtime.project-copy")
async def test_a_plain_directory_is_copied_with_contents_and_rights(bench: Bench, project: Path) -> None:
    (project / "src").mkdir()
    (project / "src/main.py").write_text("print()\n")
    (project / "run").write_text("#!/bin/sh\n")
    (project / "run").chmod(0o750)
    (project / "data.bin").write_bytes(bytes(range(256)))
    (project / "empty").touch()
    (project / "src/link").symlink_to("../run")
    copied = await copy(bench, project)
    assert list_files(copied) == {"src/main.py", "run", "data.bin", "empty", "src/link"}
    assert (copied / "data.bin").read_bytes() == bytes(range(256))
    assert os.access(copied / "run", os.X_OK)
    assert not (copied / "data.bin").stat().st_mode & 0o111
    assert (copied / "src/link").readlink() == Path("../run")
    assert {path.lstat().st_uid for path in (copied, *copied.rglob("*")) if not path.is_symlink()} == {
        (copied.parent / "workspace").stat().st_uid
    }


@proves("runtime.project-copy")
async def test_what_leads_out_or_is_no_file_is_left_out_and_named(bench: Bench, project: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    (project / "absolute").symlink_to(secret / "key")
    (project / "relative").symlink_to("../secret/key")
    (project / "directory").symlink_to(secret)
    (project / "sub").mkdir()
    (project / "sub/up").symlink_to("../../secret")
    os.mkfifo(project / "pipe")
    (project / os.fsdecode(b"caf\xe9")).write_text("odd name")
    (project / "kept").write_text("kept")
    copied = await copy(bench, project)
    assert list_files(copied) == {"kept"}
    skipped = load_manifest(copied.parent).skipped
    leads_out = "it is a link that leads out of the project"
    assert skipped == {
        "absolute": leads_out,
        "relative": leads_out,
        "directory": leads_out,
        "sub/up": leads_out,
        "pipe": "it is not a file",
        "caf\ufffd": "its name cannot be used",
    }


@proves("runtime.project-copy")
async def test_homes_of_fidelio_are_never_copied(bench: Bench, project: Path) -> None:
    home = Home(project / ".fidelio").ensure()
    home.keys.write_text("{}")
    home.http_token.write_text("token")
    (project / "code.py").touch()
    (project / "nested/.fidelio").mkdir(parents=True)
    (project / "nested/.fidelio/ledger.db").touch()
    (project / "shared/.fidelio/workflows").mkdir(parents=True)
    (project / "shared/.fidelio/workflows/a.toon").write_text("x")
    assert list_files(await copy(bench, project)) == {"code.py", "shared/.fidelio/workflows/a.toon"}


@proves("runtime.project-copy")
async def test_the_own_home_is_not_copied_whatever_its_name(bench: Bench) -> None:
    above = bench.home.path.parent
    (above / "code.py").touch()
    copied = await copy(bench, above)
    assert "code.py" in list_files(copied)
    assert not any(path.startswith("home/") for path in list_files(copied))


@proves("runtime.project-copy")
async def test_uncommitted_changes_of_a_repository_belong_to_the_copy(bench: Bench, project: Path) -> None:
    git(project, "init", "--quiet")
    for name in ("same", "changed", "deleted", "staged"):
        (project / name).write_text(f"{name}\n")
    (project / ".gitignore").write_text("ignored\nnode_modules/\n")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "first")
    (project / "changed").write_text("uncommitted\n")
    (project / "deleted").unlink()
    (project / "staged").write_text("in the index\n")
    git(project, "add", "staged")
    (project / "new").write_text("untracked\n")
    (project / "ignored").write_text("secret\n")
    (project / "node_modules").mkdir()
    (project / "node_modules/x").touch()
    before = git(project, "status", "--porcelain")

    copied = await copy(bench, project)

    assert list_files(copied) == {"same", "changed", "staged", "new", ".gitignore"}
    assert (copied / "changed").read_text() == "uncommitted\n"
    assert (copied / "staged").read_text() == "in the index\n"
    assert git(project, "status", "--porcelain") == before
    shutil.copytree(copied, project.parent / "looked")
    looked = project.parent / "looked"
    change_owner(looked, os.getuid())
    assert git(looked, "log", "--format=%s").split() == ["first"]
    assert git(looked, "branch", "--show-current").strip() == "trunk"
    assert set(git(looked, "status", "--porcelain").splitlines()) == {" M changed", " D deleted", " M staged", "?? new"}


@proves("runtime.project-copy")
async def test_the_copy_of_a_repository_names_no_path_of_the_host_and_shares_no_file_with_it(
    bench: Bench, project: Path
) -> None:
    git(project, "init", "--quiet")
    (project / "a").write_text("a\n")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "first")
    hook = project / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {project}/hooked\n")
    hook.chmod(0o755)
    git(project, "config", "core.fsmonitor", f"touch {project}/monitored")
    copied = await copy(bench, project)
    files = [path for path in (copied / ".git").rglob("*") if path.is_file()]
    assert files
    assert not any(str(project).encode() in path.read_bytes() for path in files)
    assert {path.stat().st_nlink for path in files} == {1}
    assert not (copied / ".git/hooks").exists()
    assert not (project / "hooked").exists()
    assert not (project / "monitored").exists()


@proves("runtime.project-copy")
@pytest.mark.parametrize("state", ["no commit", "detached", "subdirectory", "deep history"])
async def test_any_repository_can_be_copied(bench: Bench, project: Path, state: str) -> None:
    git(project, "init", "--quiet")
    (project / "sub").mkdir()
    (project / "sub/a").write_text("a\n")
    if state != "no commit":
        git(project, "add", ".")
        git(project, "commit", "--quiet", "-m", "first")
    if state == "detached":
        git(project, "checkout", "--quiet", "--detach")
    if state == "deep history":
        for number in range(3):
            git(project, "commit", "--quiet", "--allow-empty", "-m", str(number))
    copied = await copy(bench, project / "sub" if state == "subdirectory" else project)
    assert list_files(copied) == ({"a"} if state == "subdirectory" else {"sub/a"})
    assert (copied / ".git").exists() == (state != "subdirectory")


@needs_root
@proves("runtime.project-copy")
async def test_the_repository_of_another_user_is_copied_with_its_history(bench: Bench, project: Path) -> None:
    git(project, "init", "--quiet")
    (project / "a").write_text("a\n")
    (project / ".gitignore").write_text("ignored\n")
    (project / "ignored").touch()
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "first")
    change_owner(project, NOBODY)
    copied = await copy(bench, project)
    assert list_files(copied) == {"a", ".gitignore"}
    assert (copied / ".git/shallow").exists() or list((copied / ".git/objects").rglob("*"))
    assert (copied / ".git/refs/heads/trunk").exists()


@proves("runtime.project-copy")
async def test_a_copy_is_made_once_and_an_interrupted_one_again(bench: Bench, project: Path) -> None:
    (project / "a").write_text("one\n")
    session = await bench.start(mount_mode="copy", mount_source=str(project))
    partial = await bench.directory(session) / "project"
    partial.mkdir()
    (partial / "half").write_text("of an interrupted copy\n")
    await bench.spec(session)
    assert list_files(partial) == {"a"}
    (partial / "a").write_text("of the agent\n")
    (project / "a").write_text("two\n")
    await bench.spec(session)
    assert (partial / "a").read_text() == "of the agent\n"


@proves("runtime.project-copy")
@pytest.mark.parametrize("limit", ["MAX_FILES", "MAX_BYTES"])
async def test_a_project_above_the_limit_is_refused(
    bench: Bench, project: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    for number in range(4):
        (project / str(number)).write_text("x" * 10)
    monkeypatch.setattr(module, limit, 3)
    with pytest.raises(UsageProblem, match="so it is not copied") as caught:
        await copy(bench, project)
    assert str(project) not in str(caught.value)


@proves("runtime.project-copy", "runtime.mounts")
async def test_a_project_that_was_moved_away_is_not_named_to_the_agent(bench: Bench, project: Path) -> None:
    shutil.rmtree(project)
    with pytest.raises(UsageProblem, match="cannot be copied") as caught:
        await copy(bench, project)
    assert str(project) not in str(caught.value)
