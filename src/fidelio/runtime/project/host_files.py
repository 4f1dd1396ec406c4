"""Access to files of the user's project on the host, beneath a descriptor of its directory, without following any link.

The project may contain links that lead anywhere, and another program may exchange a directory at any moment. Names come from an
agent where changes are brought back.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Also characters that turn the direction of text: a person reads the names.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffd]")
# What git executes or believes; and the directory of our runtime files inside of a workspace.
_REFUSED_NAMES = (".git", ".openboa-runtime")
# What a project shares with whoever clones it. Everything else in such a directory may be a ledger, a key or a token.
_HOME, _SHARED = ".fidelio", ("workflows", "agents", "environments", ".gitignore")
CHUNK = 1 << 20


def find_name_problem(path: str) -> str:
    """Why a path is neither copied nor brought back; empty if it is fine."""
    names = path.split("/")
    if any(name in ("", ".", "..") for name in names) or _CONTROL.search(path) or len(path) > 4_000:
        return "its name cannot be used"
    plain = [name.casefold().rstrip(". ") for name in names]
    if refused := next((name for name in plain if name in _REFUSED_NAMES), ""):
        return f"{refused} is left alone"
    return "it would be in a home of Fidelio" if any(map(_is_of_home, plain, names[1:])) else ""


def _is_of_home(name: str, following: str) -> bool:
    return name == _HOME and following not in _SHARED and not following.endswith(".md")


class HostDirectory:
    """A directory of the host. All paths are relative to it."""

    def __init__(self, path: str | Path) -> None:
        self._top = os.open(path, _DIRECTORY)

    def close(self) -> None:
        os.close(self._top)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def parent(self, path: str, *, creates: bool = False) -> Iterator[tuple[int, str]]:
        """The descriptor of the directory of a path, and its last name. Raises OSError for a link among its directories."""
        *names, last = path.split("/")
        current = os.dup(self._top)
        try:
            for name in names:
                if creates:
                    _make_directory(current, name)
                inner = os.open(name, _DIRECTORY, dir_fd=current)
                os.close(current)
                current = inner
            yield current, last
        finally:
            os.close(current)

    @contextmanager
    def open(self, path: str) -> Iterator[int]:
        """The descriptor of a regular file. Raises OSError for anything else."""
        with self.parent(path) as (directory, name):
            handle = os.open(name, _FILE, dir_fd=directory)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            yield handle
        finally:
            os.close(handle)

    def digest(self, path: str) -> str:
        """The digest of a file; empty if nothing is there. Raises OSError for a link, a directory and anything else."""
        try:
            with self.open(path) as handle, os.fdopen(os.dup(handle), "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return ""

    def read(self, path: str, limit: int) -> bytes:
        with self.open(path) as handle, os.fdopen(os.dup(handle), "rb") as file:
            return file.read(limit)

    def write(self, path: str, content: bytes, *, executable: bool) -> None:
        """Replace the content of a file atomically. A new file belongs to the owner of its directory."""
        with self.parent(path, creates=True) as (directory, name):
            draft = f".fidelio-{secrets.token_hex(8)}"
            handle = os.open(
                draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory
            )
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                    _set_access(handle, directory, name, executable)
                    file.flush()
                    os.fsync(handle)
                os.rename(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
                os.fsync(directory)
            except BaseException:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=directory)
                raise

    def remove(self, path: str) -> None:
        with self.parent(path) as (directory, name):
            os.unlink(name, dir_fd=directory)


def _make_directory(parent: int, name: str) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        return
    _change_owner(os.open(name, _DIRECTORY, dir_fd=parent), parent, closes=True)


def _set_access(handle: int, directory: int, name: str, executable: bool) -> None:
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        mode = 0o644
        _change_owner(handle, directory)
    else:
        # No special bits: they are not the agent's to give.
        mode = stat.S_IMODE(found.st_mode) & 0o777
        if os.geteuid() == 0:
            os.fchown(handle, found.st_uid, found.st_gid)
    readers = (mode & 0o444) >> 2
    os.fchmod(handle, mode | readers if executable else mode & ~0o111)


def _change_owner(handle: int, directory: int, *, closes: bool = False) -> None:
    if os.geteuid() == 0:
        owner = os.fstat(directory)
        os.fchown(handle, owner.st_uid, owner.st_gid)
    if closes:
        os.close(handle)
