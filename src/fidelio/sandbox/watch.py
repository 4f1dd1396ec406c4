"""Disk usage of sandboxes: measure directories that agents fill, and decide which sandboxes have to be stopped.

Quotas of the file system need an administrator, so the host measures. An agent may be hostile: it nests directories, plants
links and removes its own permissions to hide bytes. Nothing here follows a link; what cannot be measured counts as too much.
A file that was deleted and is still open is not found by measuring; the reserve of the host bounds it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fidelio.errors import SandboxUnavailable
from fidelio.sandbox.model import SandboxSpec

RESERVE_BYTES = 512 << 20
# Files of no bytes use the disk as well: the entry and the inode.
_ENTRY_BYTES = 1_024
# One descriptor is open for each level.
_MAX_DEPTH = 200
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A session with so many times its limit is not started again: each start could add more before the next measurement.
_REFUSED_FACTOR = 2


class DiskUsage(NamedTuple):
    """Bytes in the directory of a session. `problem` says why they could not be counted."""

    bytes: int
    problem: str = ""


class DiskLimits(NamedTuple):
    """Bytes of the file system that stay free for everything else on the machine."""

    reserve_bytes: int = RESERVE_BYTES


def measure_directory(path: str) -> DiskUsage:
    """The bytes that a directory uses on its file system. Files with several links count once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    try:
        for status in _walk(path):
            if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
            total += status.st_blocks * 512 + _ENTRY_BYTES
    except _Unmeasurable as problem:
        return DiskUsage(total, str(problem))
    return DiskUsage(total)


def read_free_bytes(path: str) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def find_excess(spec: SandboxSpec, usage: DiskUsage) -> str:
    """Why the session uses too much of the disk, as a sentence; empty if it does not."""
    if usage.problem:
        return f"The bytes of the session cannot be counted: {usage.problem}."
    if usage.bytes > spec.limits.disk_bytes:
        return f"The session uses {_megabytes(usage.bytes)} of the disk, and its limit is {_megabytes(spec.limits.disk_bytes)}."
    return ""


def describe_reserve(free: int, limits: DiskLimits) -> str:
    """Why no sandbox may write more, as a sentence; empty if enough is free."""
    if free >= limits.reserve_bytes:
        return ""
    return f"The disk of the host has {_megabytes(free)} free, and {_megabytes(limits.reserve_bytes)} are reserved."


def check_start(spec: SandboxSpec, last: DiskUsage | None, limits: DiskLimits) -> None:
    """Raise `SandboxUnavailable` if the disk has no room for the session. `last`: what was measured last, if anything."""
    try:
        free = read_free_bytes(spec.directory)
    except OSError as error:
        raise SandboxUnavailable(
            f"The directory of the sandbox cannot be used: {error.strerror}.", remedy="Start a new session."
        ) from error
    if problem := describe_reserve(free, limits):
        raise SandboxUnavailable(problem, remedy="Free some space on the disk of the home.")
    if last is not None and last.bytes > _REFUSED_FACTOR * spec.limits.disk_bytes:
        raise SandboxUnavailable(
            find_excess(spec, last), remedy="A person can raise the limit of the environment, or delete the session."
        )


def order_by_usage(sessions: Sequence[tuple[str, DiskUsage]]) -> list[str]:
    """The sessions in the order in which they are stopped when the reserve is used: the largest first."""
    return [session for session, _ in sorted(sessions, key=lambda entry: -entry[1].bytes)]


class _Unmeasurable(Exception):
    """The tree cannot be walked completely."""


def _walk(path: str) -> Iterator[os.stat_result]:
    """The status of every entry below a directory, on the same file system. Depth first, so that few descriptors are open."""
    with _open_directory(path, None) as top:
        if top is not None:
            yield from _walk_open(top, os.fstat(top).st_dev, 1)


def _walk_open(directory: int, device: int, depth: int) -> Iterator[os.stat_result]:
    if depth > _MAX_DEPTH:
        raise _Unmeasurable(f"its directories are nested deeper than {_MAX_DEPTH}")
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield status
            if stat.S_ISDIR(status.st_mode) and status.st_dev == device:
                with _open_directory(entry.name, directory) as child:
                    if child is not None:
                        yield from _walk_open(child, device, depth + 1)


@contextmanager
def _open_directory(name: str, parent: int | None) -> Iterator[int | None]:
    """Open a directory; None if it was removed or replaced meanwhile."""
    try:
        handle = _open_searchable(name, parent)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    except PermissionError:
        with _open_forbidden(name, parent) as forbidden:
            yield forbidden
        return
    except OSError as error:
        # A link that has replaced it (ELOOP) leads nowhere; other errors leave bytes uncounted.
        if error.errno != errno.ELOOP:
            raise _Unmeasurable(f"a directory cannot be opened: {error.strerror}") from error
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _open_searchable(name: str, parent: int | None) -> int:
    """Raises `PermissionError` also if the entries could be listed but not looked at."""
    handle = os.open(name, _DIRECTORY, dir_fd=parent)
    if os.geteuid() and not os.fstat(handle).st_mode & stat.S_IXUSR:
        os.close(handle)
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return handle


@contextmanager
def _open_forbidden(name: str, parent: int | None) -> Iterator[int]:
    """Open a directory whose owner has removed his own permissions, and put them back as they were."""
    reference = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    # By descriptor: the entry can be replaced by a link at any moment.
    path, mode = Path(f"/proc/self/fd/{reference}"), stat.S_IMODE(os.fstat(reference).st_mode)
    try:
        path.chmod(mode | 0o500)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError as error:
        raise _Unmeasurable("a directory in it belongs to another user and cannot be read") from error
    else:
        try:
            yield handle
        finally:
            os.close(handle)
            path.chmod(mode)
    finally:
        os.close(reference)


def _megabytes(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB"
