"""Trees that an agent made to harm the host: links, loops, sizes, depths, names, permissions, changes meanwhile."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fidelio.runtime.project.host_files import HostDirectory
from fidelio.runtime.snapshots import tree as trees
from fidelio.runtime.snapshots.store import AREA, SnapshotStore
from fidelio.runtime.snapshots.tree import (
    FileTree,
    TreeLimits,
    TreeTooLarge,
    compare_trees,
    compute_digest,
    list_tree,
    read_contents,
)
from fidelio.runtime.snapshots.writing import copy_area, restore
from fidelio.sandbox.directory import empty_directory, share
from tests.support import proves
from tests.support.users import NOBODY, needs_root, open_to_all

NO_KNOWN: dict[bytes, trees.TreeEntry] = {}


def read(path: Path, limits: TreeLimits | None = None) -> FileTree:
    limits = limits or TreeLimits()
    return read_contents(path, list_tree(path, limits), NO_KNOWN, limits, compute_digest)


def make_session(path: Path) -> tuple[Path, SnapshotStore]:
    """The directory of a session with an empty workspace."""
    (path / AREA).mkdir(parents=True)
    return path / AREA, SnapshotStore(path)


@proves("runtime.snapshot-hostile")
def test_links_are_stored_as_links_whatever_they_lead_to(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("private")
    workspace, store = make_session(tmp_path / "session")
    (workspace / "file").symlink_to(secret / "key")
    (workspace / "directory").symlink_to(secret)
    (workspace / "self").symlink_to("self")
    (workspace / "up").symlink_to("..")
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")

    manifest = store.create("snap_1", TreeLimits(), None)

    assert {entry.path: entry.content for entry in manifest.trees[AREA].entries} == {
        b"file": os.fsencode(secret / "key"),
        b"directory": os.fsencode(secret),
        b"self": b"self",
        b"up": b"..",
        b"a": b"b",
        b"b": b"a",
    }
    assert not list((tmp_path / "session" / "snapshots" / "blobs").glob("*/*"))
    (workspace / "file").unlink()
    restore(tmp_path / "session", store, manifest)
    assert (workspace / "file").readlink() == secret / "key"
    assert (secret / "key").read_text() == "private"


@proves("runtime.snapshot-hostile")
def test_a_directory_that_becomes_a_link_meanwhile_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "passwords").write_text("private")
    workspace = tmp_path / "workspace"
    (workspace / "sub").mkdir(parents=True)
    (workspace / "sub" / "passwords").write_text("mine")
    limits = TreeLimits()
    listed = list_tree(workspace, limits)
    (workspace / "sub" / "passwords").unlink()
    (workspace / "sub").rmdir()
    (workspace / "sub").symlink_to(outside)

    found = read_contents(workspace, listed, NO_KNOWN, limits, compute_digest)

    assert [entry.path for entry in found.entries] == [b"sub"]
    assert found.unreadable == 1
    with (
        HostDirectory(workspace) as host,
        pytest.raises(OSError, match=r"symbolic links|Not a directory"),
        host.open("sub/passwords"),
    ):
        pass


@proves("runtime.snapshot-hostile")
def test_pipes_sockets_and_devices_are_passed_over_without_being_opened(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    os.mkfifo(workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(workspace / "socket"))
        (workspace / "file").write_text("text")

        assert [entry.path for entry in read(workspace).entries] == [b"file"]


@proves("runtime.snapshot-bounds")
def test_sizes_are_looked_at_before_anything_is_read(tmp_path: Path) -> None:
    for size in (1 << 50, 200_000_001):
        with (tmp_path / "sparse").open("wb") as file:
            try:
                file.truncate(size)
            except OSError:
                continue
        with pytest.raises(TreeTooLarge, match="200,000,000 bytes"):
            list_tree(tmp_path, TreeLimits())


@proves("runtime.snapshot-bounds")
def test_too_many_entries_and_directories_that_are_nested_too_deep_are_refused(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / str(number)).touch()
    with pytest.raises(TreeTooLarge, match="10 files and directories"):
        list_tree(tmp_path, TreeLimits(max_entries=10))
    deep = tmp_path / "deep"
    deep.mkdir()
    current = os.open(deep, os.O_RDONLY)
    for _ in range(1_100):
        os.mkdir("d", dir_fd=current)
        inner = os.open("d", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = inner
    os.close(current)

    with pytest.raises(TreeTooLarge, match="nested deeper"):
        list_tree(deep, TreeLimits())
    # The recursion of pytest's own clean-up would not get to its end.
    empty_directory(deep)


@proves("runtime.snapshot-bounds")
def test_a_file_that_grows_while_it_is_read_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"x" * 100)
    limits = TreeLimits(max_bytes=1_000)
    listed = list_tree(tmp_path, limits)
    file.write_bytes(b"x" * 5_000)

    with pytest.raises(TreeTooLarge, match="1,000 bytes"):
        read_contents(tmp_path, listed, NO_KNOWN, limits, compute_digest)


@proves("runtime.snapshot-hostile")
def test_names_that_are_no_text_survive_a_restore(tmp_path: Path) -> None:
    workspace, store = make_session(tmp_path)
    name = os.fsdecode(b"\xff\xfe name\n")
    (workspace / name).write_text("content")
    manifest = store.create("snap_1", TreeLimits(), None)
    (workspace / name).unlink()

    restore(tmp_path, store, store.load("snap_1"))

    assert (workspace / name).read_text() == "content"
    assert manifest.files == 1


@proves("runtime.snapshot-hostile")
def test_permissions_that_were_removed_stop_neither_snapshot_nor_restore(tmp_path: Path) -> None:
    workspace, store = make_session(tmp_path)
    (workspace / "closed").mkdir()
    (workspace / "closed" / "inside").write_text("one")
    (workspace / "closed").chmod(0o500)
    manifest = store.create("snap_1", TreeLimits(), None)
    (workspace / "closed").chmod(0o000)

    restore(tmp_path, store, manifest)

    assert (workspace / "closed").stat().st_mode & 0o777 == 0o500
    assert (workspace / "closed" / "inside").read_text() == "one"
    assert sorted(path.name for path in (tmp_path / "snapshots").iterdir()) == [".clock", "blobs", "snap_1.snapshot"]


def run_unprivileged(work: Callable[[], None]) -> int:
    """Run something in a process of another user, who is bound by permissions; 0 if it works."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@needs_root
@proves("runtime.snapshot-hostile")
def test_without_root_what_is_closed_is_counted_and_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "session"
    workspace, store = make_session(directory)
    (workspace / "closed").mkdir()
    (workspace / "closed" / "inside").write_text("one")
    (workspace / "unreadable").write_text("two")
    (workspace / "hidden").mkdir()
    (workspace / "hidden" / "inside").write_text("three")
    share(directory, NOBODY)
    open_to_all(directory)
    for name, mode in (("closed", 0o500), ("unreadable", 0), ("hidden", 0)):
        (workspace / name).chmod(mode)

    def store_and_restore() -> None:
        manifest = store.create("snap_1", TreeLimits(), None)
        assert manifest.unreadable == 2
        restore(directory, store, manifest)

    assert run_unprivileged(store_and_restore) == 0
    assert (workspace / "closed" / "inside").read_text() == "one"
    assert (workspace / "closed").stat().st_mode & 0o777 == 0o500
    assert sorted(path.name for path in workspace.iterdir()) == ["closed", "hidden"]


@proves("runtime.snapshot-changed")
def test_only_files_that_may_differ_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, store = make_session(tmp_path)
    for name in ("old", "changed", "fresh"):
        (workspace / name).write_text("content")
    monkeypatch.setattr(trees, "_UNSETTLED_NS", -(10**12))
    first = store.create("snap_1", TreeLimits(), None)
    (workspace / "changed").write_text("another")
    opened: list[str] = []
    open_file = HostDirectory.open

    def open_counted(host: HostDirectory, path: str) -> AbstractContextManager[int]:
        opened.append(path)
        return open_file(host, path)

    monkeypatch.setattr(HostDirectory, "open", open_counted)

    second = store.create("snap_2", TreeLimits(), first)

    assert opened == ["changed"]
    (changed,) = compare_trees(first.trees[AREA], second.trees[AREA])
    assert (changed[0].path, changed[1]) == (b"changed", "modified")


@proves("runtime.snapshot-changed")
def test_a_file_that_changed_at_the_moment_of_a_snapshot_is_read_again(tmp_path: Path) -> None:
    workspace, store = make_session(tmp_path)
    (workspace / "a").write_text("one")
    first = store.create("snap_1", TreeLimits(), None)

    assert first.trees[AREA].find_settled() == {}


@proves("runtime.snapshot-project")
def test_the_copy_of_a_project_is_part_of_a_snapshot_unless_it_is_too_large(tmp_path: Path) -> None:
    workspace, store = make_session(tmp_path)
    (workspace / "a").write_text("one")
    (workspace / "project").mkdir()
    project = tmp_path / "project"
    project.mkdir()
    (project / "code.py").write_text("print()")
    first = store.create("snap_1", TreeLimits(), None)
    (project / "code.py").write_text("broken")
    restore(tmp_path, store, first)

    assert (project / "code.py").read_text() == "print()"
    assert [entry.path for entry in first.trees[AREA].entries] == [b"a"]
    with (project / "large").open("wb") as file:
        file.truncate(10_000)
    second = store.create("snap_2", TreeLimits(max_bytes=5_000), first)
    assert (list(second.trees), list(second.without)) == ([AREA], ["project"])
    restore(tmp_path, store, second)
    assert (project / "large").exists()


@proves("runtime.snapshot-bounds")
def test_snapshots_that_do_not_fit_together_are_removed_with_their_contents(tmp_path: Path) -> None:
    workspace, store = make_session(tmp_path)
    names = []
    for number in range(5):
        (workspace / "a").write_bytes(bytes([number]) * 1_000)
        names.append(store.create(f"snap_{number}", TreeLimits(), None).id)

    remaining = store.prune(reversed(names), 2_500, frozenset({"snap_4", "snap_0"}))

    assert remaining == {"snap_4", "snap_0"}
    assert len(list((tmp_path / "snapshots" / "blobs").glob("*/*"))) == 2
    assert store.find("snap_3") is None
    assert b"".join(store.read_blob(store.load("snap_0").trees[AREA].entries[0])) == bytes(1_000)


FILES = st.dictionaries(
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join), st.binary(max_size=20), max_size=6
)


def fill(workspace: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = workspace / name
        if not any(parent.is_file() for parent in path.parents) and not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


@proves("runtime.snapshot-restore")
@settings(deadline=None, max_examples=40)
@given(before=FILES, after=FILES)
def test_a_restore_is_the_inverse_of_any_change(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, bytes], after: dict[str, bytes]
) -> None:
    directory = tmp_path_factory.mktemp("session")
    workspace, store = make_session(directory)
    fill(workspace, before)
    manifest = store.create("snap_1", TreeLimits(), None)
    fill(workspace, after)
    restore(directory, store, manifest)

    assert list(compare_trees(manifest.trees[AREA], read(workspace))) == []
    (directory / "copy").mkdir()
    copied = copy_area(workspace, directory / "copy", TreeLimits(), frozenset())
    assert [entry.path for entry in copied.entries] == [entry.path for entry in manifest.trees[AREA].entries]
