"""Launcher: the step between the host process and the first process of a sandbox, where bubblewrap alone does not suffice.

As root it binds what the sandbox mounts to short paths in a mount namespace of its own, because an unprivileged user cannot
enter a home below `/root`; then it becomes the user of the sandbox. It gets its task through a descriptor, runs before
anything of an agent does, and reads nothing that an agent can write.
"""

from __future__ import annotations

import importlib
import marshal
import os
import stat
import sys

from fidelio.sandbox.inside.launch_system import (
    CLONE_NEWNS,
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    become_user,
    die_with_parent,
    fail,
    join_new_keyring,
    mount,
    read_all,
    unshare,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FAMILY = "fidelio.sandbox.inside.launch_"


def main() -> None:
    """Start the sandbox that the descriptor in the first argument describes. Never returns."""
    try:
        status = _launch(_read_task(int(sys.argv[1])))
    except OSError as error:
        fail(error)
    # As a shell reports it, and as bubblewrap does.
    os._exit(status if status >= 0 else 128 - status)


def _read_task(descriptor: int) -> dict[str, Any]:
    task: dict[str, Any] = marshal.loads(read_all(descriptor))  # noqa: S302  # from the host process; JSON is slow to import
    return task


def _launch(task: dict[str, Any]) -> int:
    die_with_parent(task["parent"])
    join_new_keyring()
    # Loaded first: these files need not be readable for the user of the sandbox.
    module = None if task["level"] == "bubblewrap" else importlib.import_module(f"{_FAMILY}{task['level']}")
    if task["level"] != "landlock" and task["uid"] is not None:
        stage_sources(task["sources"], task["stage"])
        become_user(task["uid"])
        die_with_parent(task["parent"])
    if not module:
        os.execve(task["argv"][0], task["argv"], {})  # noqa: S606  # this is the purpose
    status: int = module.run(task)
    return status


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
