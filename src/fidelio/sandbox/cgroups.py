"""Control groups (cgroup v2): limits for a session as a whole, where the system has delegated a group to this user.

Resource limits count processes per user and memory per process. Only a control group bounds the memory of a session. systemd
marks the groups that it leaves to others; in any other group nothing is created, because systemd owns it. Without a delegated
group there are the resource limits alone.
"""

from __future__ import annotations

import os
from pathlib import Path

from fidelio.sandbox.model import SandboxLimits

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_CONTROLLERS = {"memory", "pids"}
_MARKS = ("user.delegate", "trusted.delegate")
# The launcher, bubblewrap and the shell that sets the limits are in the group as well.
_OWN_PROCESSES = 8


def find_delegated_group(root: Path = _ROOT, own: Path = _OWN) -> Path | None:
    """The nearest delegated group above this process, if it limits the memory and the processes of its children."""
    try:
        line = next((line for line in own.read_text("utf-8").splitlines() if line.startswith("0::/")), None)
        if line is None:
            return None
        start = root / line[len("0::/") :]
        groups = (path for path in (start, *start.parents) if path != root and root in path.parents)
        found = next((path for path in groups if _is_delegated(path)), None)
        return found if found and _has_controllers(found) else None
    except (OSError, ValueError):
        return None


def _is_delegated(group: Path) -> bool:
    return os.access(group / "cgroup.procs", os.W_OK) and any(_read_mark(group, name) == b"1" for name in _MARKS)


def _read_mark(group: Path, name: str) -> bytes:
    try:
        return os.getxattr(group, name)
    except OSError:
        return b""


def _has_controllers(group: Path) -> bool:
    return set((group / "cgroup.subtree_control").read_text("ascii").split()) >= _CONTROLLERS


def create_group(name: str, limits: SandboxLimits) -> Path | None:
    """The group of a session with its limits; None if there cannot be any. A group that exists gets the new limits."""
    parent = find_delegated_group()
    if parent is None:
        return None
    group = parent / _group_name(name)
    try:
        group.mkdir(exist_ok=True)
        (group / "pids.max").write_text(str(limits.processes + _OWN_PROCESSES), "ascii")
        (group / "memory.max").write_text(str(limits.memory_bytes), "ascii")
        if (group / "memory.swap.max").exists():
            (group / "memory.swap.max").write_text("0", "ascii")
    except OSError:
        return None
    return group


def remove_group(name: str) -> None:
    """Remove the group of a session that is no longer live, if it has a group."""
    parent = find_delegated_group()
    if parent is not None:
        try:
            (parent / _group_name(name)).rmdir()
        except OSError:
            # It does not exist, or a process in it has not ended yet: the group then ends with its parent.
            return


def _group_name(name: str) -> str:
    return f"fidelio-{name}"
