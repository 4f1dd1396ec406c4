"""The private directories of sandboxes below `<home>/sandboxes`: create, share, remove.

The name of a directory is random, because commands see it in `/proc/self/mountinfo`: it names no user, project or session. When
Fidelio runs as root, the directories that a sandbox writes belong to an unprivileged user of their own, so that the limit of
processes counts per session and a process that left its namespaces would still be nobody.

What lies in such a directory was written by an agent. Nothing here follows a link in it or recurses as deep as an agent likes.
"""

from __future__ import annotations

import os
import pwd
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from fidelio.errors.runtime import SandboxUnavailable
from fidelio.sandbox.cgroups import remove_group

# The ids that systemd reserves for services without a user of their own; no distribution gives them to a person.
FIRST_UID, LAST_UID = 61184, 65519
# What sandboxes mount. `home` and `tmp` are the agent's own directories, on disk so that a watcher can count them.
WRITABLE = ("workspace", "home", "tmp")
READ_ONLY = ("runtime", "substrate", "learnings", "vaults")
# The socket of the network proxy, in the directory of the sandbox. The host serves it; commands reach it through the sandbox.
PROXY_SOCKET = "proxy.sock"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def create_directory(home: Path) -> Path:
    """Create the directory of a sandbox. Raises `SandboxUnavailable` if it cannot be created."""
    parent = home / "sandboxes"
    directory = parent / secrets.token_hex(8)
    try:
        parent.mkdir(mode=0o700, exist_ok=True)
        directory.mkdir(mode=0o700)
        uid = _choose_uid(parent) if may_switch_user() else os.geteuid()
        for name in (*WRITABLE, *READ_ONLY):
            (directory / name).mkdir(mode=0o700)
            share(directory / name, uid)
    except OSError as error:
        raise SandboxUnavailable(
            f"The directory of a sandbox cannot be created in {parent}: {error.strerror}.",
            remedy="Correct owner and mode of the home, or choose another one with --home DIR.",
        ) from error
    return directory


def host_uid(directory: Path) -> int:
    """The user of the host that the processes of this sandbox run as: the owner of its workspace."""
    return (directory / "workspace").lstat().st_uid


def share(path: Path, uid: int) -> None:
    """Make the user of a sandbox the owner of a file or directory, with everything in it.

    The host writes with its own user and umask; without this a sandbox of another user cannot read the files. Links are not
    followed.
    """
    for entry in (path, *_walk(path)):
        if entry.is_symlink() or entry.lstat().st_uid == uid:
            continue
        os.chown(entry, uid, uid, follow_symlinks=False)


def remove_directory(directory: Path) -> None:
    """Remove the directory of a sandbox that is no longer live. It may be missing, or be removed elsewhere at the same time."""
    try:
        top = os.open(directory, _DIRECTORY)
    except FileNotFoundError:
        return
    try:
        _empty(top)
    finally:
        os.close(top)
    with suppress(FileNotFoundError):
        directory.rmdir()
    remove_group(directory.name)


def empty_directory(directory: Path) -> None:
    """Remove everything in a directory that an agent has filled."""
    top = os.open(directory, _DIRECTORY)
    try:
        _empty(top)
    finally:
        os.close(top)


@cache
def may_switch_user() -> bool:
    """Whether this process is root and can make other users the owners of files and processes.

    Root of a container may lack the capabilities, or its user namespace the ids.
    """
    return os.geteuid() == 0 and _has_capabilities() and all(_maps_ids(name) for name in ("uid_map", "gid_map"))


def _has_capabilities() -> bool:
    chown, setgid, setuid = 0, 6, 7
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    effective = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    return all(effective >> capability & 1 for capability in (chown, setgid, setuid))


def _maps_ids(name: str) -> bool:
    ranges = [tuple(map(int, line.split())) for line in Path("/proc/self", name).read_text("ascii").splitlines()]
    return any(first <= FIRST_UID and first + length > LAST_UID for first, _, length in ranges)


def _choose_uid(parent: Path) -> int:
    """Choose a user that no other sandbox of this home has, or any if all are in use."""
    used = {uid for uid in map(_find_uid, parent.iterdir()) if uid is not None}
    free = [uid for uid in range(FIRST_UID, LAST_UID + 1) if uid not in used]
    candidate = secrets.choice(free or range(FIRST_UID, LAST_UID + 1))
    while free and _is_known(candidate):
        free.remove(candidate)
        candidate = secrets.choice(free or range(FIRST_UID, LAST_UID + 1))
    return candidate


def _find_uid(directory: Path) -> int | None:
    try:
        return host_uid(directory)
    except OSError:
        return None


def _is_known(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _walk(path: Path) -> Iterator[Path]:
    if path.is_symlink() or not path.is_dir():
        return
    pending = [path]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                yield Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))


def _empty(top: int) -> None:
    """Remove everything in a directory, without recursion.

    An agent can nest directories deeper than the stack, and deeper than a path may be long: a directory that is not empty is
    moved to the top under a random name and emptied there.
    """
    while names := os.listdir(top):
        for name in names:
            # Another process may remove the same directory at the same time.
            with suppress(FileNotFoundError):
                _remove_entry(top, name)


def _remove_entry(top: int, name: str) -> None:
    if not stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=top)
        return
    # Its owner may have removed his own permissions. Only root could enter it then.
    os.chmod(name, 0o700, dir_fd=top, follow_symlinks=True)
    child = os.open(name, _DIRECTORY, dir_fd=top)
    try:
        for inner in os.listdir(child):  # noqa: PTH208  # of a descriptor
            _move_or_remove(child, inner, top)
    finally:
        os.close(child)
    os.rmdir(name, dir_fd=top)


def _move_or_remove(parent: int, name: str, top: int) -> None:
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=parent)
        return
    # A directory without write permission cannot be moved: its entry `..` would change.
    os.chmod(name, 0o700, dir_fd=parent)
    os.rename(name, secrets.token_hex(16), src_dir_fd=parent, dst_dir_fd=top)
