"""Launcher: the step between the host process and the first process of a sandbox, where bubblewrap alone does not suffice.

As root it binds what the sandbox mounts to short paths in a mount namespace of its own, because an unprivileged user cannot
enter a home below `/root`; then it becomes the user of the sandbox. It gets its task as JSON through a descriptor, runs before
anything of an agent does, and reads nothing that an agent can write.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from typing import Any

from fidelio.sandbox.inside.launch_system import (
    CLONE_NEWNS,
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    die_with_parent,
    mount,
    unshare,
)

# The exit status that says that no sandbox was started.
FAILED = 125


def main() -> None:
    """Start the sandbox that the descriptor in the first argument describes. Never returns."""
    task = _read_task(int(sys.argv[1]))
    try:
        die_with_parent(task["parent"])
        _launch(task)
    except OSError as error:
        sys.stderr.write(f"fidelio: the sandbox cannot be started: {error.strerror}\n")
        sys.stderr.flush()
    os._exit(FAILED)


def _read_task(descriptor: int) -> dict[str, Any]:
    with open(descriptor, "rb") as file:
        task: dict[str, Any] = json.load(file)
    return task


def _launch(task: dict[str, Any]) -> None:
    if task["uid"] is not None:
        stage_sources(task["sources"], task["stage"])
        become_user(task["uid"])
        die_with_parent(task["parent"])
    os.execve(task["argv"][0], task["argv"], {})  # noqa: S606  # this is the purpose


def stage_sources(sources: list[str], stage: str) -> None:
    """Bind each source to its number below `stage`, visible for this process and its children only."""
    unshare(CLONE_NEWNS)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    # Opened before `stage` is covered, and in this mount namespace: the kernel binds nothing of another one.
    descriptors = [os.open(source, os.O_PATH | os.O_CLOEXEC) for source in sources]
    mount("tmpfs", stage, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
    for number, descriptor in enumerate(descriptors):
        _bind_descriptor(descriptor, f"{stage}/{number}")
        os.close(descriptor)


def _bind_descriptor(descriptor: int, target: str) -> None:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.mkdir(target)  # noqa: PTH102  # text in
    else:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    mount(f"/proc/self/fd/{descriptor}", target, flags=MS_BIND | MS_REC)


def become_user(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
