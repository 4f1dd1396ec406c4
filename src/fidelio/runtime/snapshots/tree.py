"""The tree of files in a workspace as the host sees it: listed beneath a descriptor, without following any link.

An agent has filled the directory, and processes of it may change it meanwhile: it nests directories, plants links that lead out
or in a circle, makes sparse files of any size, and removes its own permissions. So sizes are looked at before anything is read,
what is read is bounded again, and what is neither a file, a link nor a directory is left out.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from fidelio.runtime.project.host_files import CHUNK, HostDirectory

MAX_BYTES = 200 * 1000 * 1000
MAX_ENTRIES = 50_000
MAX_DEPTH = 100
MAX_PATH = 4_000
# A file that changed so shortly before a snapshot may change again without another time in its status.
_UNSETTLED_NS = 2_000_000_000
# The entry was removed or replaced meanwhile, or its owner has removed his own permissions.
_CHANGED = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EINVAL, errno.ENXIO)
_DENIED = (errno.EACCES, errno.EPERM)

Kind = Literal["file", "link", "directory"]
ChangeKind = Literal["added", "modified", "removed"]


class TreeEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry of a tree. `content` is the digest of a file, or where a link leads to. `stamp` tells whether it has changed."""

    path: bytes
    kind: Kind
    mode: int = 0
    size: int = 0
    content: bytes = b""
    stamp: tuple[int, int, int] = (0, 0, 0)

    def is_same(self, other: TreeEntry) -> bool:
        return (self.kind, self.mode, self.content) == (other.kind, other.mode, other.content)


class FileTree(msgspec.Struct, frozen=True):
    """The entries of a directory, each after the directory that it is in. `unreadable` counts what could not be read.

    `at` is the time of the file system, in nanoseconds, before the listing began.
    """

    entries: tuple[TreeEntry, ...] = ()
    unreadable: int = 0
    at: int = 0

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)

    @property
    def files(self) -> int:
        return sum(1 for entry in self.entries if entry.kind != "directory")

    def find_settled(self) -> dict[bytes, TreeEntry]:
        """The files whose digest is still right if their stamp is the same, by path."""
        limit = self.at - _UNSETTLED_NS
        return {entry.path: entry for entry in self.entries if entry.kind == "file" and max(entry.stamp[:2]) < limit}


class TreeTooLarge(Exception):
    """The tree is beyond a limit; the message says which, as the end of a sentence."""


class TreeLimits(msgspec.Struct):
    """How much may be listed and read, and how much was. Shared by all trees of a snapshot."""

    max_bytes: int = MAX_BYTES
    max_entries: int = MAX_ENTRIES
    bytes: int = 0
    entries: int = 0

    def count_entry(self, size: int) -> None:
        self.entries += 1
        if self.entries > self.max_entries:
            raise TreeTooLarge(f"it has more than {self.max_entries:,} files and directories")
        self.count_bytes(size)

    def count_bytes(self, size: int) -> None:
        self.bytes += size
        if self.bytes > self.max_bytes:
            raise TreeTooLarge(f"its files have more than {self.max_bytes:,} bytes")


# Stores the content of a file chunk by chunk, and returns its digest.
Store = Callable[[Iterator[bytes]], bytes]
NO_FILES: Mapping[bytes, TreeEntry] = {}


def list_tree(path: Path, limits: TreeLimits, *, without: frozenset[str] = frozenset(), at: int = 0) -> FileTree:
    """List a directory with everything in it, but without its entries named in `without`. Digests are not computed.

    Raises `TreeTooLarge`, and OSError if the directory itself cannot be read.
    """
    found: list[TreeEntry] = []
    unreadable = 0
    with HostDirectory(path) as host:
        pending = [""]
        while pending:
            directory = pending.pop()
            listed = _list_directory(host, directory, limits, without if not directory else frozenset())
            unreadable += listed is None
            for entry in listed or ():
                found.append(entry)
                if entry.kind == "directory":
                    pending.append(os.fsdecode(entry.path))
    return FileTree(tuple(found), unreadable, at)


def _list_directory(host: HostDirectory, directory: str, limits: TreeLimits, without: frozenset[str]) -> list[TreeEntry] | None:
    """The entries of a directory in the order of their names; None if it cannot be read."""
    if directory.count("/") >= MAX_DEPTH:
        raise TreeTooLarge(f"its directories are nested deeper than {MAX_DEPTH}")
    try:
        with host.parent(f"{directory}/." if directory else ".") as (handle, _):
            names = (name for name in _iterate_names(handle) if name not in without)
            found = [entry for name in names for entry in _look(handle, directory, name, limits)]
    except OSError as error:
        if error.errno in _CHANGED:
            return []
        if error.errno in _DENIED and directory:
            return None
        raise
    return sorted(found, key=lambda entry: entry.path)


def _iterate_names(handle: int) -> Iterator[str]:
    # One by one: a directory may have millions of names.
    with os.scandir(handle) as entries:
        for entry in entries:
            yield entry.name


def _look(handle: int, directory: str, name: str, limits: TreeLimits) -> Iterator[TreeEntry]:
    path = os.fsencode(f"{directory}/{name}" if directory else name)
    if len(path) > MAX_PATH:
        raise TreeTooLarge("its paths are too long")
    try:
        status = os.stat(name, dir_fd=handle, follow_symlinks=False)
        kind = _find_kind(status.st_mode)
        content = os.fsencode(os.readlink(name, dir_fd=handle)) if kind == "link" else b""
    except FileNotFoundError:
        return
    if kind is None:
        return
    size = status.st_size if kind == "file" else 0
    limits.count_entry(size)
    mode = 0 if kind == "link" else stat.S_IMODE(status.st_mode) & 0o777
    stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino) if kind == "file" else (0, 0, 0)
    yield TreeEntry(path, kind, mode, size, content, stamp)


def _find_kind(mode: int) -> Kind | None:
    """The kind of an entry; None for pipes, sockets and devices."""
    kinds: Mapping[int, Kind] = {stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFDIR: "directory"}
    return kinds.get(stat.S_IFMT(mode))


def read_contents(path: Path, tree: FileTree, known: Mapping[bytes, TreeEntry], limits: TreeLimits, store: Store) -> FileTree:
    """Read the files of a tree that differ from `known`, and add the digests of all. Raises `TreeTooLarge`."""
    entries: list[TreeEntry] = []
    unreadable = tree.unreadable
    with HostDirectory(path) as host:
        for entry in tree.entries:
            before = known.get(entry.path)
            if entry.kind != "file":
                entries.append(entry)
            elif before is not None and (before.stamp, before.size) == (entry.stamp, entry.size):
                entries.append(replace(entry, content=before.content))
            elif (read := _read_file(host, entry, limits, store)) is not None:
                entries.append(read)
            else:
                unreadable += 1
    return FileTree(tuple(entries), unreadable, tree.at)


def _read_file(host: HostDirectory, entry: TreeEntry, limits: TreeLimits, store: Store) -> TreeEntry | None:
    try:
        with host.open(os.fsdecode(entry.path)) as handle:
            size = 0

            def iterate_chunks() -> Iterator[bytes]:
                nonlocal size
                while data := os.read(handle, CHUNK):
                    size += len(data)
                    # It may have grown since it was looked at.
                    if size > entry.size:
                        limits.count_bytes(min(len(data), size - entry.size))
                    yield data

            content = store(iterate_chunks())
    except OSError as error:
        if error.errno in (*_CHANGED, *_DENIED):
            return None
        raise
    return replace(entry, content=content, size=size)


def compute_digest(chunks: Iterator[bytes]) -> bytes:
    """The digest of a content that is not stored."""
    digest = hashlib.sha256()
    for data in chunks:
        digest.update(data)
    return digest.digest()


def compare_trees(before: FileTree, after: FileTree) -> Iterator[tuple[TreeEntry, ChangeKind]]:
    """The entries that differ, in the order of their paths."""
    old = {entry.path: entry for entry in before.entries}
    new = {entry.path: entry for entry in after.entries}
    for path in sorted({*old, *new}):
        if path not in old:
            yield new[path], "added"
        elif path not in new:
            yield old[path], "removed"
        elif not old[path].is_same(new[path]):
            yield new[path], "modified"
