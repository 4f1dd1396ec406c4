"""Ownership rule: whether another user of this machine controls a file or directory that Fidelio is about to use.

What another user could have written is not used: workflows lead agents, blueprints run commands, and keys and tokens must not
be known to others. Accepted are this user, root, and under root the user of sudo. A group may write, other users may not.
Files whose content matters are opened first and checked by their descriptor, so that they cannot be exchanged in between.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import msgspec


class Allowance(msgspec.Struct, frozen=True):
    """What the rule accepts in addition: files of `owner`, and with `is_open` files that every user can write."""

    owner: int = -1
    is_open: bool = False


STRICT = Allowance()


def find_status_problem(status: os.stat_result, allowed: Allowance = STRICT, *, is_parent: bool = False) -> str:
    """Why the rule refuses a file with this status, as the end of a sentence; empty if it accepts it.

    `is_parent`: only the entries of the directory are used, so a sticky directory such as /tmp is good enough.
    """
    if status.st_uid not in {*_own_users(), allowed.owner}:
        return f"belongs to {_name_user(status.st_uid)}"
    # The mode of a symbolic link says nothing.
    is_open = status.st_mode & stat.S_IWOTH and not stat.S_ISLNK(status.st_mode) and not allowed.is_open
    if is_open and not (is_parent and status.st_mode & stat.S_ISVTX):
        return "can be written by every user"
    return ""


def find_path_problem(path: Path, allowed: Allowance = STRICT) -> str:
    """A sentence about the first problem of a path, its link included; empty if there is no problem or no file."""
    try:
        status = path.lstat()
        checks = [(path, status, False)]
        if stat.S_ISLNK(status.st_mode):
            target = Path(os.path.realpath(path))
            # Whoever can rename entries beside the target decides what the link leads to.
            checks += [(target, target.stat(), False), (target.parent, target.parent.stat(), True)]
    except OSError:
        # Opening it reports the error, or creates it.
        return ""
    problems = ((at, find_status_problem(status, allowed, is_parent=is_parent)) for at, status, is_parent in checks)
    return next((f"{at} {problem}" for at, problem in problems if problem), "")


def find_parent_problem(directory: Path, allowed: Allowance = STRICT) -> str:
    """A sentence about why other users could exchange the entries of the directory; empty if they could not."""
    try:
        problem = find_status_problem(directory.stat(), allowed, is_parent=True)
    except OSError:
        return ""
    return f"{directory} {problem}" if problem else ""


def find_allowance(*paths: Path) -> Allowance:
    """What would have to be allowed for the paths, of which the last that exists counts for the owner."""
    found = [status for path in paths if (status := _read_status(path)) is not None]
    foreign = [status.st_uid for status in found if status.st_uid not in _own_users()]
    return Allowance(foreign[-1] if foreign else -1, any(status.st_mode & stat.S_IWOTH for status in found))


def _read_status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _own_users() -> set[int]:
    user = os.geteuid()
    caller = os.environ.get("SUDO_UID", "")
    return {user, 0, int(caller)} if user == 0 and caller.isascii() and caller.isdigit() else {user, 0}


def _name_user(number: int) -> str:
    try:
        return f"the user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"the user {number}"
