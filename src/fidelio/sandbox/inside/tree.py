"""The file tree that the actions see, and access to its entries.

Behind namespaces (levels a and b) the kernel's own path lookup is the boundary, so a path is opened as it is. At level c
`fidelio.sandbox.inside.beneath` opens it beneath the descriptors of the mounts. All else works on descriptors and single names,
so every action is written once. Nothing here reads or writes content.
"""

from __future__ import annotations

import difflib
import errno
import hashlib
import itertools
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from fidelio.sandbox.inside.failures import Failure, display, failure_of, text_argument

WORKSPACE = "/workspace"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NONBLOCK
# A suggestion compares with at most as many names of a directory.
_COMPARED_NAMES = 2000
MAX_BYTES = 1 << 20
MAX_ENTRIES = 10_000


class Entry(NamedTuple):
    """A name in a directory. `kind` is file, directory, link or other."""

    name: str
    kind: str


class MountPoint(NamedTuple):
    """Where a mount begins, and whether it can be changed."""

    path: str
    writable: bool


def kind_of(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


def is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


class Tree(ABC):
    """A file tree. `base` is the directory that relative paths start from."""

    def __init__(self, base: str = WORKSPACE) -> None:
        self.base = base

    @abstractmethod
    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Open an absolute path; links are followed, with O_NOFOLLOW not the last. Raises OSError."""

    @abstractmethod
    def resolve(self, path: str) -> str:
        """Return the absolute path without links. The last names may be missing. Raises OSError for a loop of links."""

    @abstractmethod
    def mounts(self) -> list[MountPoint]:
        """Every mount, in byte order of its path."""

    @abstractmethod
    def check_writable(self, path: str) -> None:
        """Raise OSError (EROFS) if the kernel will not refuse a change of this resolved path but the mount does."""

    @abstractmethod
    def child_mounts(self, path: str) -> list[str]:
        """Names of mounts in this directory that its own listing may lack."""

    def absolute(self, path: str) -> str:
        """Return the absolute form of a caller's path.

        `..` stays: only the kernel knows where it leads behind a link. A final slash stays too: it demands a directory.
        """
        if not path or "\0" in path:
            raise Failure("invalid_path", f"{path!r} is not a path. Pass an absolute path, or one relative to {self.base}.")
        joined = path if path.startswith("/") else f"{self.base.rstrip('/')}/{path}"
        names = [name for name in joined.split("/") if name not in ("", ".")]
        return "/" + "/".join(names) + ("/" if names and joined.endswith(("/", "/.")) else "")

    def failures(self, path: str) -> Explained:
        """Turn what the kernel says about a path into a failure that says what to do."""
        return Explained(self, path)

    def open_directory(self, path: str, *, follow: bool = True) -> int:
        return self.open(path, _DIRECTORY | (0 if follow else os.O_NOFOLLOW))

    def open_file(self, path: str) -> tuple[int, os.stat_result]:
        """Open a regular file for reading. Never waits for a fifo or a device."""
        descriptor = self.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            found = os.fstat(descriptor)
            require_regular(found.st_mode, path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, found

    def stat(self, path: str, *, follow: bool = True) -> os.stat_result:
        descriptor = self.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def scan(self, path: str, *, follow: bool = True) -> list[Entry]:
        """The entries of a directory, in no order."""
        descriptor = self.open_directory(path, follow=follow)
        try:
            with os.scandir(descriptor) as entries:
                found = [Entry(entry.name, _kind_of_entry(entry)) for entry in entries]
        finally:
            os.close(descriptor)
        added = self.child_mounts(path)
        if not added:
            return found
        return [entry for entry in found if entry.name not in added] + [Entry(name, "directory") for name in added]

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the directory of a resolved path for a change; the second value is the last name."""
        top, _, name = path.rpartition("/")
        if not name:
            raise OSError(errno.EISDIR, "a directory")
        self.check_writable(path)
        descriptor = self.open_directory(top or "/")
        try:
            yield descriptor, name
        finally:
            os.close(descriptor)

    def make_directories(self, path: str) -> bool:
        """Create a directory and those above it that are missing. False if it exists."""
        missing: list[str] = []
        current = path
        while current != "/" and not self._is_directory(current):
            missing.append(current)
            current = current.rpartition("/")[0] or "/"
        for each in reversed(missing):
            with self.parent(each) as (directory, name):
                self._make_directory(directory, name)
        return bool(missing)

    def mount_of(self, path: str) -> str:
        inside = [mount.path for mount in self.mounts() if is_below(path, mount.path)]
        return max(inside, key=len, default="/")

    def _is_directory(self, path: str) -> bool:
        try:
            if stat.S_ISDIR(self.stat(path).st_mode):
                return True
        except FileNotFoundError:
            return False
        raise NotADirectoryError(errno.ENOTDIR, "not a directory")

    @staticmethod
    def _make_directory(directory: int, name: str) -> None:
        try:
            os.mkdir(name, dir_fd=directory)
        except FileExistsError:
            # A command may have created it at the same time.
            if not stat.S_ISDIR(os.stat(name, dir_fd=directory).st_mode):
                raise

    def explain(self, error: OSError, path: str) -> Failure:
        if error.errno == errno.ENOENT:
            return self._missing(path)
        if error.errno == errno.EROFS:
            mount = self.mount_of(self._resolved(path))
            sentence = f"{display(path)} is in the read-only mount {display(mount)}. Write below {self.base} outside of it."
            return Failure("read_only", sentence)
        return failure_of(error, path)

    def _missing(self, path: str) -> Failure:
        top, _, name = path.rstrip("/").rpartition("/")
        top = top or "/"
        try:
            names = [entry.name for entry in itertools.islice(self.scan(top), _COMPARED_NAMES)]
        except OSError:
            return Failure("not_found", f"{display(path)} does not exist, and neither does its directory. Look with glob.")
        if name in names:
            return Failure(
                "not_found", f"{display(path)} is a link to something that does not exist. See its target with stat."
            )
        near = difflib.get_close_matches(name, names, n=1)
        folder = top.rstrip("/")
        hint = f"Did you mean {display(f'{folder}/{near[0]}')}?" if near else f"List {display(top)} with list_dir."
        return Failure("not_found", f"{display(path)} does not exist. {hint}")

    def _resolved(self, path: str) -> str:
        try:
            return self.resolve(path)
        except OSError:
            return path


class Explained:
    """The context of `Tree.failures`. A generator is slower than most actions."""

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree, self._path = tree, path

    def __enter__(self) -> None:
        """Nothing has failed yet."""

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, OSError):
            raise self._tree.explain(error, self._path) from error


class PlainTree(Tree):
    """The tree behind namespaces: the kernel's lookup is the boundary."""

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        return os.open(path, flags, mode)

    def stat(self, path: str, *, follow: bool = True) -> os.stat_result:
        return os.stat(path, follow_symlinks=follow)  # noqa: PTH116  # `Path` costs 10 us, and this runs for every entry

    def resolve(self, path: str) -> str:
        resolved = os.path.realpath(path)
        if os.path.islink(resolved):  # noqa: PTH114  # `Path` costs 10 us, and this runs for every write
            raise OSError(errno.ELOOP, "too many links")
        return resolved

    def mounts(self) -> list[MountPoint]:
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:  # noqa: PTH123  # a constant
                found = [_mount_of_line(line) for line in lines]
        except OSError:
            return []
        # A later line covers an earlier one at the same path.
        latest: dict[str, MountPoint] = {mount.path: mount for mount in found}
        return sorted(latest.values(), key=lambda mount: os.fsencode(mount.path))

    def check_writable(self, path: str) -> None:
        """The kernel refuses by itself."""

    def child_mounts(self, path: str) -> list[str]:  # noqa: ARG002  # part of the contract
        return []


def path_argument(tree: Tree, arguments: dict[str, Any], default: str | None = None) -> str:
    return tree.absolute(text_argument(arguments, "path", default))


def digest_file(tree: Tree, path: str) -> dict[str, Any]:
    descriptor, _ = tree.open_file(path)
    try:
        state, size = hashlib.sha256(), 0
        while True:
            data = os.read(descriptor, MAX_BYTES)
            if not data:
                return {"digest": state.hexdigest(), "size": size}
            state.update(data)
            size += len(data)
    finally:
        os.close(descriptor)


def require_regular(mode: int, path: str) -> None:
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, "a directory")
    if not stat.S_ISREG(mode):
        raise Failure("not_a_file", f"{display(path)} is a fifo, a socket or a device, not a file. Name a regular file.")


def _kind_of_entry(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _mount_of_line(line: str) -> MountPoint:
    """Parse a line of mountinfo; the fifth field is the path with octal escapes, the sixth the options of the mount."""
    fields = line.split(" ")
    path = fields[4]
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(octal, character)
    return MountPoint(path, "ro" not in fields[5].split(","))
