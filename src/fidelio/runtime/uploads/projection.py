"""Shows the files of a session to its sandbox: a directory of the host that follows the record.

The directory is mounted read-only, so that a live sandbox sees every change. A file that belongs into the workspace lies in it
too, and the workspace has a link to it. The workspace is the agent's: nothing there is replaced, and no link in it is followed.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from fidelio.ledger import Ledger
from fidelio.runtime.attachments import SessionResource
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.uploads.attaching import FILE, find_target
from fidelio.sandbox.directory import host_uid
from fidelio.sandbox.model import UPLOADS, WORKSPACE, Mount

DIRECTORY = "uploads"
_STATE = "uploads.json"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def has_files(record: RuntimeRecord) -> bool:
    return any(resource.type == FILE for resource in record.resources)


def list_file_mounts(record: RuntimeRecord, directory: Path) -> tuple[Mount, ...]:
    return (Mount(UPLOADS, f"{directory}/{DIRECTORY}", "read_only", "session_files"),) if has_files(record) else ()


async def project_files(ledger: Ledger, record: RuntimeRecord, directory: Path) -> None:
    """Bring the directory of a session up to date with its record. It is changed only where it differs."""
    if not record.resources and not _has_state(directory):
        return
    wanted = {find_target(each.content["mount_path"]): each for each in record.resources if each.type == FILE}
    present = _read_state(directory)
    state = {target: resource.id for target, resource in wanted.items()}
    if state == present:
        return
    top = directory / DIRECTORY
    await asyncio.to_thread(_make_folder, top)
    for target in present.keys() - wanted.keys():
        await asyncio.to_thread(_remove, directory, target)
    for target, resource in wanted.items():
        if present.get(target) != resource.id:
            await _write_file(ledger, directory, target, resource)
    # Written last: after a crash before it, everything is written again.
    await asyncio.to_thread(_replace, directory / _STATE, [msgspec.json.encode(state)], 0o600)


def _has_state(directory: Path) -> bool:
    # As text: every call of every session asks.
    return os.path.exists(f"{directory}/{_STATE}")  # noqa: PTH110  # as above


async def _write_file(ledger: Ledger, directory: Path, target: str, resource: SessionResource) -> None:
    chunks = [await ledger.blob(digest) for digest in resource.content["chunks"]]
    if any(chunk is None for chunk in chunks):
        # A person has redacted the content.
        return
    await asyncio.to_thread(_write, directory, target, [chunk for chunk in chunks if chunk is not None])


def _write(directory: Path, target: str, chunks: list[bytes]) -> None:
    top = directory / DIRECTORY
    for parent in reversed(PurePosixPath(target).parents[:-1]):
        _make_folder(top / parent)
    _replace(top / target, chunks, 0o644)
    if (inside := _in_workspace(target)) is not None:
        with suppress(OSError):
            # What the agent has put there stays: the file is found in the directory of uploads all the same.
            _link(directory, inside, f"{UPLOADS}/{target}")


def _make_folder(path: Path) -> None:
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    path.mkdir(mode=0o755, exist_ok=True)
    # The user of the sandbox reads it, whatever the umask says.
    path.chmod(0o755)


def _replace(target: Path, chunks: list[bytes], mode: int) -> None:
    """Write a file that nobody ever sees in part."""
    draft = target.with_name(f".{secrets.token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        for chunk in chunks:
            file.write(chunk)
        os.fchmod(handle, mode)
    draft.replace(target)


def _remove(directory: Path, target: str) -> None:
    top = directory / DIRECTORY
    (top / target).unlink(missing_ok=True)
    for parent in PurePosixPath(target).parents[:-1]:
        with suppress(OSError):
            (top / parent).rmdir()
    if (inside := _in_workspace(target)) is not None:
        with suppress(OSError):
            _unlink(directory, inside, f"{UPLOADS}/{target}")


def _in_workspace(target: str) -> tuple[str, ...] | None:
    """The names that lead from the workspace to a file; None for a file that is only among the uploads."""
    names = PurePosixPath(target).parts
    return names[1:] if names[0] == WORKSPACE[1:] and len(names) > 1 else None


def _link(directory: Path, names: tuple[str, ...], target: str) -> None:
    uid = host_uid(directory)
    for parent, name in _open_parent(directory / "workspace", names, uid):
        os.symlink(target, name, dir_fd=parent)


def _unlink(directory: Path, names: tuple[str, ...], target: str) -> None:
    for parent, name in _open_parent(directory / "workspace", names, None):
        if os.readlink(name, dir_fd=parent) == target:
            os.unlink(name, dir_fd=parent)


def _open_parent(top: Path, names: tuple[str, ...], uid: int | None) -> Iterator[tuple[int, str]]:
    """The directory of the last name, open during the loop. With `uid` what is missing is made, and belongs to this user."""
    parent = os.open(top, _FOLDER)
    try:
        for name in names[:-1]:
            if uid is not None:
                _ensure(parent, name, uid)
            inner = os.open(name, _FOLDER, dir_fd=parent)
            os.close(parent)
            parent = inner
        yield parent, names[-1]
    finally:
        os.close(parent)


def _ensure(parent: int, name: str, uid: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=parent)
        if os.geteuid() == 0:
            os.chown(name, uid, uid, dir_fd=parent, follow_symlinks=False)


def _read_state(directory: Path) -> Mapping[str, Any]:
    try:
        # Opened as text, because every call of a session with files reads it.
        with open(f"{directory}/{_STATE}", "rb") as file:  # noqa: PTH123  # as above
            return msgspec.json.decode(file.read(), type=dict[str, str])
    except (FileNotFoundError, msgspec.MsgspecError):
        # Without a state everything is written again.
        return {}
