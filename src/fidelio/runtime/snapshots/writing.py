"""Writes the tree of a snapshot: into a new directory, or instead of what a workspace has now.

A state is complete beside the workspace before anything of the workspace is moved. The directory of the workspace itself stays,
because sandboxes mount it, and so do the directories in it at which others are mounted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from fidelio.runtime.project.host_files import CHUNK, HostDirectory
from fidelio.runtime.snapshots.store import AREAS, SnapshotManifest, SnapshotStore
from fidelio.runtime.snapshots.tree import FileTree, TreeEntry, TreeLimits, list_tree
from fidelio.sandbox.directory import host_uid, share

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# The content of a file of the tree, chunk by chunk.
ReadContent = Callable[[TreeEntry], Iterator[bytes]]


def restore(directory: Path, store: SnapshotStore, manifest: SnapshotManifest) -> None:
    """Make the areas of a snapshot what they were. Raises `UsageProblem` before anything is changed if a content is damaged."""
    staged, replaced = store.create_staging(), store.create_staging()
    for area, tree in manifest.trees.items():
        (staged / area).mkdir(mode=0o700)
        write_tree(staged / area, tree, store.read_blob)
        share(staged / area, host_uid(directory))
    for area, tree in manifest.trees.items():
        (replaced / area).mkdir(mode=0o700)
        _move_entries(directory / area, replaced / area, AREAS[area])
        _move_entries(staged / area, directory / area, frozenset())
        set_modes(directory / area, tree)
    store.remove_staging(staged)
    store.remove_staging(replaced)


def write_tree(target: Path, tree: FileTree, read: ReadContent) -> None:
    """Write a tree into an empty directory. Its directories stay writable until `set_modes`."""
    with HostDirectory(target) as host:
        for entry in tree.entries:
            with host.parent(os.fsdecode(entry.path)) as (directory, name):
                _write_entry(directory, name, entry, read)


def _write_entry(directory: int, name: str, entry: TreeEntry, read: ReadContent) -> None:
    if entry.kind == "directory":
        os.mkdir(name, 0o700, dir_fd=directory)
    elif entry.kind == "link":
        os.symlink(os.fsdecode(entry.content), name, dir_fd=directory)
    else:
        handle = os.open(name, _NEW_FILE, 0o600, dir_fd=directory)
        with os.fdopen(handle, "wb") as file:
            for data in read(entry):
                file.write(data)
            file.flush()
            os.fchmod(handle, entry.mode)
            # Build tools compare the times of files.
            os.utime(handle, ns=(entry.stamp[0], entry.stamp[0]))


def set_modes(target: Path, tree: FileTree) -> None:
    """Set the modes of the directories of a tree, the innermost first: some cannot be entered afterwards."""
    with HostDirectory(target) as host:
        for entry in reversed(tree.entries):
            if entry.kind == "directory":
                with host.parent(f"{os.fsdecode(entry.path)}/.") as (directory, _):
                    os.fchmod(directory, entry.mode)


def _move_entries(source: Path, target: Path, without: frozenset[str]) -> None:
    with (
        HostDirectory(source) as old,
        old.parent(".") as (here, _),
        HostDirectory(target) as new,
        new.parent(".") as (there, _),
    ):
        for name in os.listdir(here):  # noqa: PTH208  # of a descriptor
            if name not in without:
                _make_movable(here, name)
                os.rename(name, name, src_dir_fd=here, dst_dir_fd=there)


def _make_movable(directory: int, name: str) -> None:
    """A directory without write permission cannot be moved: its entry `..` would change."""
    if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        os.chmod(name, 0o700, dir_fd=directory)


def copy_area(source: Path, target: Path, limits: TreeLimits, without: frozenset[str]) -> FileTree:
    """Copy a directory that an agent has filled into an empty directory. Raises `TreeTooLarge`, and OSError.

    As with `write_tree`, the directories of the copy get their modes afterwards.
    """
    tree = list_tree(source, limits, without=without)
    with HostDirectory(source) as host:
        write_tree(target, tree, lambda entry: _read_counted(host, entry))
    return tree


def _read_counted(host: HostDirectory, entry: TreeEntry) -> Iterator[bytes]:
    """The content of a file, but not more than was counted: it may grow meanwhile."""
    try:
        with host.open(os.fsdecode(entry.path)) as handle:
            size = 0
            while data := os.read(handle, min(CHUNK, entry.size - size)):
                size += len(data)
                yield data
    except OSError:
        # Removed, replaced by a link, or not readable: its copy is empty.
        return
