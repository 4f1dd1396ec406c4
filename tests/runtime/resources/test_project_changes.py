"""Changes of an agent in the copy of a project: the diff, and bringing them back."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fidelio.errors import FidelioError, RuntimeProblem, UsageProblem
from fidelio.runtime.events import PROJECT_APPLIED
from fidelio.runtime.project.changes import ProjectChanges
from tests.runtime.resources.support import Bench, change_owner
from tests.support import proves
from tests.support.users import NOBODY, needs_root


class Scene:
    """A project, and a session with a copy of it."""

    def __init__(self, bench: Bench, project: Path) -> None:
        self.bench, self.project = bench, project
        self.changes = ProjectChanges(bench.context)
        self.session = ""
        self.copy = project

    async def start(self) -> Scene:
        self.session = await self.bench.start(mount_mode="copy", mount_source=str(self.project))
        await self.bench.spec(self.session)
        self.copy = await self.bench.directory(self.session) / "project"
        return self

    async def kinds(self) -> dict[str, str]:
        return {change.path: change.kind for change in (await self.changes.diff(self.session)).changes}

    async def apply(self, *paths: str, expect: str | None = None) -> set[str]:
        applied = await self.changes.apply(self.session, paths or None, expect=expect, by="anna")
        return {change.path for change in applied}


@pytest.fixture
async def scene(bench: Bench, tmp_path: Path) -> Scene:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src/main.py").write_text("one\ntwo\nthree\n")
    (project / "README").write_text("hello\n")
    (project / "run").write_text("#!/bin/sh\n")
    (project / "old").write_text("old\n")
    (project / "inside").symlink_to("README")
    return await Scene(bench, project).start()


def run_git(directory: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=directory, check=True, timeout=20)


def edit(copy: Path) -> None:
    (copy / "src/main.py").write_text("one\n2\nthree\n")
    (copy / "run").chmod(0o755)
    (copy / "old").unlink()
    (copy / "new/deep").mkdir(parents=True)
    (copy / "new/deep/file").write_text("fresh\n")
    (copy / "data.bin").write_bytes(b"\x00\x01")
    (copy / "empty").touch()


@proves("runtime.project-changes")
async def test_a_diff_shows_every_change_and_nothing_else(scene: Scene) -> None:
    assert (await scene.changes.diff(scene.session)).text == ""
    edit(scene.copy)
    diff = await scene.changes.diff(scene.session)
    assert {change.path: change.kind for change in diff.changes} == {
        "src/main.py": "modified",
        "run": "modified",
        "old": "deleted",
        "new/deep/file": "added",
        "data.bin": "added",
        "empty": "added",
    }
    assert "--- a/src/main.py\n+++ b/src/main.py\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n" in diff.text
    assert "--- /dev/null\n+++ b/new/deep/file\n@@ -0,0 +1 @@\n+fresh\n" in diff.text
    assert "--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n" in diff.text
    assert "Binary or large file data.bin: added, 2 bytes." in diff.text
    assert "# run: modified, 10 bytes, executable." in diff.text


@proves("runtime.project-changes")
async def test_the_shown_text_is_a_patch(scene: Scene, tmp_path: Path) -> None:
    (scene.copy / "src/main.py").write_text("zero\none\nthree")
    (scene.copy / "added").write_text("x\ny\n")
    diff = await scene.changes.diff(scene.session)
    (tmp_path / "patch").write_text(diff.text)
    run_git(scene.project, "apply", str(tmp_path / "patch"))
    assert (scene.project / "src/main.py").read_text() == "zero\none\nthree"
    assert (scene.project / "added").read_text() == "x\ny\n"


@proves("runtime.project-changes")
async def test_changes_are_brought_back_exactly(scene: Scene) -> None:
    edit(scene.copy)
    diff = await scene.changes.diff(scene.session)
    assert await scene.apply(expect=diff.digest) == {change.path for change in diff.changes}
    project = scene.project
    assert (project / "src/main.py").read_text() == "one\n2\nthree\n"
    assert os.access(project / "run", os.X_OK)
    assert not (project / "old").exists()
    assert (project / "new/deep/file").read_text() == "fresh\n"
    assert (project / "data.bin").read_bytes() == b"\x00\x01"
    assert (project / "empty").read_bytes() == b""
    assert sorted(path.name for path in project.rglob(".*")) == []
    assert await scene.kinds() == {}
    (event,) = [event for event in await scene.bench.ledger.events(scene.session) if event.type == PROJECT_APPLIED]
    assert (event.body["by"], event.body["count"]) == ("anna", 6)


@proves("runtime.project-changes")
async def test_single_paths_can_be_brought_back(scene: Scene) -> None:
    edit(scene.copy)
    assert await scene.apply("src/main.py", "empty") == {"src/main.py", "empty"}
    assert (scene.project / "old").exists()
    assert set(await scene.kinds()) == {"run", "old", "new/deep/file", "data.bin"}
    with pytest.raises(UsageProblem, match="is not changed"):
        await scene.apply("README")
    with pytest.raises(UsageProblem, match="is not changed"):
        await scene.apply("../outside")


@proves("runtime.project-changes")
@pytest.mark.parametrize("how", ["changed", "deleted", "created", "replaced by a link", "directory became a link"])
async def test_a_file_that_changed_on_the_host_is_never_overwritten(scene: Scene, tmp_path: Path, how: str) -> None:
    edit(scene.copy)
    await scene.changes.diff(scene.session)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "main.py").write_text("one\ntwo\nthree\n")
    target = scene.project / "src/main.py"
    if how == "changed":
        target.write_text("of the person\n")
    elif how == "deleted":
        target.unlink()
    elif how == "created":
        (scene.project / "empty").write_text("of the person\n")
    elif how == "replaced by a link":
        target.unlink()
        target.symlink_to(outside / "main.py")
    else:
        target.unlink()
        (scene.project / "src").rmdir()
        (scene.project / "src").symlink_to(outside)
    before = {path: path.read_bytes() for path in scene.project.rglob("*") if path.is_file()}

    diff = await scene.changes.diff(scene.session)
    with pytest.raises(RuntimeProblem, match="Nothing was written") as refused:
        await scene.apply()

    name = "empty" if how == "created" else "src/main.py"
    assert f"# {name} " in diff.text
    assert name in str(refused.value)
    assert {path: path.read_bytes() for path in scene.project.rglob("*") if path.is_file()} == before
    assert (outside / "main.py").read_text() == "one\ntwo\nthree\n"
    assert await scene.apply("data.bin") == {"data.bin"}


@proves("runtime.project-changes")
async def test_what_was_looked_at_is_what_is_brought_back(scene: Scene) -> None:
    (scene.copy / "README").write_text("harmless\n")
    diff = await scene.changes.diff(scene.session)
    (scene.copy / "README").write_text("something else\n")
    with pytest.raises(RuntimeProblem, match="changed after the diff"):
        await scene.apply(expect=diff.digest)
    assert (scene.project / "README").read_text() == "hello\n"


@proves("runtime.project-changes")
async def test_a_file_that_changes_while_it_is_read_is_not_written(scene: Scene) -> None:
    (scene.copy / "README").write_text("harmless\n")

    def change(action: str, _: Mapping[str, Any]) -> None:
        if action == "read_bytes":
            (scene.copy / "README").write_text("something else\n")

    scene.bench.sandboxes.before = change
    with pytest.raises(RuntimeProblem, match="is being changed in the copy"):
        await scene.apply()
    assert (scene.project / "README").read_text() == "hello\n"


@proves("runtime.project-changes")
async def test_links_and_special_files_of_the_agent_are_refused(scene: Scene, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (scene.copy / "out").symlink_to(secret)
    (scene.copy / "README").unlink()
    (scene.copy / "README").symlink_to("/etc/passwd")
    (scene.copy / "inside").unlink()
    (scene.copy / "inside").write_text("now a file\n")
    os.mkfifo(scene.copy / "pipe")
    diff = await scene.changes.diff(scene.session)
    assert {change.path: change.kind for change in diff.changes} == dict.fromkeys(
        ("out", "README", "inside", "pipe"), "refused"
    )
    assert "secret" not in diff.text.replace(str(secret), "")
    assert await scene.apply() == set()
    for path in ("out", "README"):
        with pytest.raises(RuntimeProblem, match="cannot be brought back"):
            await scene.apply(path)
    assert (scene.project / "README").read_text() == "hello\n"


@proves("runtime.project-changes")
@pytest.mark.parametrize(
    "name",
    [".git/hooks/pre-commit", "sub/.git/config", ".GIT/config", ".git ", "sub/.Git./x", "a\x1b[2J", "a\u202eb", "a\x9b2J"],
)
async def test_names_that_git_believes_in_or_a_terminal_interprets_are_refused(scene: Scene, name: str) -> None:
    (scene.copy / name).parent.mkdir(parents=True, exist_ok=True)
    (scene.copy / name).write_text("planted\n")
    kinds = await scene.kinds()
    assert kinds in ({}, {name: "refused"})
    assert await scene.apply() == set()
    assert not (scene.project / name).exists()


@proves("runtime.project-changes")
@pytest.mark.parametrize("name", [".fidelio/http-token", ".fidelio/ledger.db-wal", ".Fidelio/new", "sub/.fidelio/keys/new"])
async def test_nothing_is_brought_back_into_a_home(scene: Scene, name: str) -> None:
    (scene.copy / name).parent.mkdir(parents=True)
    (scene.copy / name).write_text("planted\n")

    assert await scene.kinds() == {name: "refused"}
    assert await scene.apply() == set()
    assert not (scene.project / name).exists()


@proves("runtime.project-changes")
@pytest.mark.parametrize(
    "page",
    [{"entries": 1}, {"entries": [1]}, {"entries": [["path", "x"]]}, {"entries": "ab"}, {"entries": None}, {}],
    ids=str,
)
async def test_a_sandbox_that_lists_anything_else_is_refused(scene: Scene, page: dict[str, Any]) -> None:
    scene.bench.sandboxes.replies["list_tree"] = lambda _, __: page

    with pytest.raises(FidelioError):
        await scene.changes.diff(scene.session)


@proves("runtime.project-changes")
@pytest.mark.parametrize("path", ["../outside", "/etc/cron.d/x", "src/../../outside", "", "a//b", "."])
async def test_a_sandbox_that_lies_about_paths_writes_nothing_outside(scene: Scene, tmp_path: Path, path: str) -> None:
    content = b"planted\n"
    entry = {
        "path": f"/workspace/project/{path}",
        "kind": "file",
        "size": len(content),
        "mode": 0o644,
        "digest": hashlib.sha256(content).hexdigest(),
    }
    scene.bench.sandboxes.replies["list_tree"] = lambda _, __: {"entries": [entry], "nextCursor": None}
    data = {"data": base64.b64encode(content).decode(), "eof": True, "size": len(content)}
    scene.bench.sandboxes.replies["read_bytes"] = lambda _, __: data
    changes = (await scene.changes.diff(scene.session)).changes
    assert {change.kind for change in changes if change.path == path} == {"refused"}
    assert path not in await scene.apply()
    assert not (tmp_path / "outside").exists()
    assert not os.path.exists("/etc/cron.d/x")  # noqa: ASYNC240, PTH110  # a test


@proves("runtime.project-changes")
async def test_a_crash_between_two_writes_is_continued_by_the_same_call(scene: Scene) -> None:
    edit(scene.copy)
    # As after a crash: one file is written already, the manifest is not.
    (scene.project / "src/main.py").write_text("one\n2\nthree\n")
    (scene.project / "old").unlink()
    assert len(await scene.apply()) == 6
    assert await scene.kinds() == {}


@proves("runtime.project-changes")
async def test_a_list_that_is_not_complete_deletes_nothing(scene: Scene) -> None:
    scene.bench.sandboxes.replies["list_tree"] = lambda _, __: {"entries": [], "truncated": True, "nextCursor": None}
    with pytest.raises(RuntimeProblem, match="too many files"):
        await scene.apply()
    numbers = iter(range(10_000))
    endless = {"entries": [], "truncated": True}
    scene.bench.sandboxes.replies["list_tree"] = lambda _, __: {**endless, "nextCursor": str(next(numbers))}
    with pytest.raises(RuntimeProblem, match="too many files"):
        await scene.apply()
    assert (scene.project / "README").exists()


@proves("runtime.project-changes")
async def test_a_project_that_was_moved_away_is_reported(scene: Scene) -> None:
    edit(scene.copy)
    scene.project.rename(scene.project.with_name("moved"))
    for call in (scene.kinds(), scene.apply()):
        with pytest.raises(RuntimeProblem, match="cannot be opened"):
            await call


@proves("runtime.project-changes")
@pytest.mark.parametrize("mode", ["", "ro"])
async def test_without_a_copy_there_is_nothing_to_compare(bench: Bench, tmp_path: Path, mode: str) -> None:
    session = await bench.start(mount_mode=mode, mount_source=str(tmp_path))
    with pytest.raises(UsageProblem, match="there is no copy"):
        await ProjectChanges(bench.context).diff(session)


@needs_root
@proves("runtime.project-changes")
async def test_as_root_new_files_belong_to_the_owner_of_the_project(scene: Scene) -> None:
    change_owner(scene.project, NOBODY)
    edit(scene.copy)
    await scene.apply()
    assert {path.lstat().st_uid for path in scene.project.rglob("*")} == {NOBODY}


@proves("runtime.project-changes")
async def test_the_digest_of_a_diff_covers_the_content(scene: Scene) -> None:
    digests = set()
    for text in ("a\n", "b\n"):
        (scene.copy / "README").write_text(text)
        diff = await scene.changes.diff(scene.session)
        digests.add(diff.digest)
        assert msgspec.json.encode(diff)
    assert len(digests) == 2
