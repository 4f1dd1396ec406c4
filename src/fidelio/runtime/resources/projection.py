"""Projection of the shared files of an agent into a directory of the host, which sandboxes see read-only at /workspace/agent.

The ledger has the truth. The directory is written file by file: a live sandbox holds the directory itself, so that it cannot be
exchanged as a whole. A new content is written and synced elsewhere and then renamed into place. A state file beside the
directory says which files were written; a directory that differs from it was edited by hand: it is written again, what was
found is moved aside and not deleted, and the store records it.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from fidelio.home import sync_directory
from fidelio.ledger.model import NewEvent
from fidelio.runtime import events as e
from fidelio.runtime.resources.versions import SharedFile, Substrate
from fidelio.runtime.stores import shared_directory

AREA = "substrates"
_NOFOLLOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Mark(msgspec.Struct, frozen=True, array_like=True):
    """What identifies a file of the directory: its content, and what every edit changes."""

    digest: str
    size: int
    inode: int
    changed_ns: int


class _State(msgspec.Struct, frozen=True):
    """The files of the directory after the event `seq` of the store."""

    seq: int = -1
    files: dict[str, _Mark] = {}


_STATE = msgspec.json.Decoder(_State)


async def update_projection(substrate: Substrate) -> Path:
    """The directory with the current files. It is checked on every call and changed only where it differs."""
    directory = shared_directory(substrate.context, substrate.store, AREA)
    if _is_current(directory, substrate.store.last_seq):
        return directory
    wanted: dict[str, SharedFile] = {}
    contents: dict[str, bytes] = {}
    async for file in substrate.files():
        # None: there is no file any more, or a person has redacted its content.
        content = None if file.version is None else await substrate.find_content(file.version)
        if content is not None:
            wanted[file.path] = file
            if await asyncio.to_thread(_hash_file, directory / file.path) != file.digest:
                contents[file.path] = content
    edited = await asyncio.to_thread(_write, directory, substrate.store.last_seq, wanted, contents)
    if edited:
        body = {"paths": edited[:100], "count": len(edited)}
        await substrate.context.ledger.append(substrate.store.id, NewEvent(type=e.DIRECTORY_REBUILT, body=body))
    return directory


def _is_current(directory: Path, seq: int) -> bool:
    state = _read_state(directory)
    if state.seq < seq:
        return False
    found = dict(_scan(directory))
    return found.keys() == state.files.keys() and all(_matches(found[path], mark) for path, mark in state.files.items())


def _matches(found: os.stat_result, mark: _Mark) -> bool:
    same = (mark.size, mark.inode, mark.changed_ns) == (found.st_size, found.st_ino, found.st_ctime_ns)
    return same and stat.S_ISREG(found.st_mode)


def _scan(directory: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Everything in the directory that is not itself a directory. Links are not followed."""
    pending = [""]
    while pending:
        inside = pending.pop()
        try:
            entries = list(os.scandir(f"{directory}/{inside}"))
        except FileNotFoundError:
            continue
        for entry in entries:
            path = f"{inside}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                pending.append(f"{path}/")
            else:
                yield path, entry.stat(follow_symlinks=False)


def _hash_file(path: Path) -> str:
    """The digest of a regular file; empty for anything else."""
    try:
        handle = os.open(path, _NOFOLLOW)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return ""
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(directory: Path, seq: int, wanted: Mapping[str, SharedFile], contents: Mapping[str, bytes]) -> list[str]:
    """Bring the directory up to date; returns the paths that somebody had edited."""
    for parent in (directory.parent.parent, directory.parent):
        parent.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o755, exist_ok=True)
    # The users of several sandboxes read it, whatever the umask says.
    directory.chmod(0o755)
    with _hold_lock(directory):
        before = _read_state(directory)
        if before.seq > seq:
            # Another process has already written a newer state.
            return []
        edited = [path for path, _ in _scan(directory) if not _is_ours(directory, path, before, wanted)]
        for path in edited:
            _move_aside(directory, path)
        _remove_unwanted(directory, wanted)
        for path, content in contents.items():
            _write_file(directory, path, content)
        marks = {path: _mark(directory / path, file.digest) for path, file in wanted.items()}
        # Written last: after a crash before it, everything is looked at again.
        _replace(_state_file(directory), msgspec.json.encode(_State(seq, marks)))
    return sorted(edited)


def _is_ours(directory: Path, path: str, before: _State, wanted: Mapping[str, SharedFile]) -> bool:
    known = {mark.digest for name, mark in before.files.items() if name == path}
    if path in wanted:
        known.add(wanted[path].digest)
    return _hash_file(directory / path) in known


def _move_aside(directory: Path, path: str) -> None:
    aside = directory.with_name(f"{directory.name}.edited")
    aside.mkdir(mode=0o700, exist_ok=True)
    (directory / path).rename(aside / f"{secrets.token_hex(4)}-{Path(path).name}")


def _remove_unwanted(directory: Path, wanted: Mapping[str, SharedFile]) -> None:
    for path, _ in list(_scan(directory)):
        if path not in wanted:
            (directory / path).unlink()
    needed = {str(parent) for path in wanted for parent in Path(path).parents}
    for inner in sorted((top for top, _, _ in os.walk(directory)), key=len, reverse=True):
        if inner != str(directory) and os.path.relpath(inner, directory) not in needed:
            os.rmdir(inner)  # noqa: PTH106  # a text of os.walk


def _write_file(directory: Path, path: str, content: bytes) -> None:
    target = directory / path
    for parent in reversed([parent for parent in Path(path).parents if parent.name]):
        (directory / parent).mkdir(mode=0o755, exist_ok=True)
        (directory / parent).chmod(0o755)
    _replace(target, content, staged_in=directory)
    sync_directory(target.parent)


def _replace(target: Path, content: bytes, *, staged_in: Path | None = None) -> None:
    """Replace a file atomically. The content is first synced outside of the directory that sandboxes see."""
    base = staged_in or target
    draft = base.with_name(f".{base.name}.{hashlib.sha256(content).hexdigest()[:16]}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fchmod(handle, 0o644)
        os.fsync(handle)
    draft.replace(target)


def _mark(path: Path, digest: str) -> _Mark:
    found = path.lstat()
    return _Mark(digest, found.st_size, found.st_ino, found.st_ctime_ns)


def _state_file(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.json")


def _read_state(directory: Path) -> _State:
    try:
        # Opened as text: `Path` costs 10 us, and this runs for every call.
        with open(f"{directory}.json", "rb") as file:  # noqa: PTH123  # as above
            return _STATE.decode(file.read())
    except (FileNotFoundError, msgspec.MsgspecError):
        # Without a state everything is looked at.
        return _State()


@contextmanager
def _hold_lock(directory: Path) -> Iterator[None]:
    handle = os.open(directory.with_name(f"{directory.name}.lock"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
