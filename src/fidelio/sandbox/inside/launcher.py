"""Launcher: the step between the host process and the first process of a sandbox, where bubblewrap alone does not suffice.

As root it binds what the sandbox mounts to short paths in a mount namespace of its own, because an unprivileged user cannot
enter a home below `/root`; then it becomes the user of the sandbox. It gets its task through a descriptor, runs before
anything of an agent does, and reads nothing that an agent can write.
"""

from __future__ import annotations

import importlib
import marshal
import os
import signal
import stat
import sys

from fidelio.sandbox.inside.launch_system import (
    CLONE_NEWNS,
    CLONE_NEWUSER,
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    become_user,
    bind_with_ids,
    die_with_parent,
    fail,
    join_new_keyring,
    mount,
    read_all,
    unshare,
    write_text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

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
    _join_group(task["group"])
    # Loaded first: these files need not be readable for the user of the sandbox.
    module = None if task["level"] == "bubblewrap" else importlib.import_module(f"{_FAMILY}{task['level']}")
    if task["level"] != "landlock" and task["uid"] is not None:
        bind_sources(task["sources"], task["root"], task["uid"])
        become_user(task["uid"])
        die_with_parent(task["parent"])
    if not module:
        os.execve(task["argv"][0], task["argv"], {})  # noqa: S606  # this is the purpose
    status: int = module.run(task)
    return status


def _join_group(group: str | None) -> None:
    """Join the control group. If the kernel refuses, the resource limits hold alone, as without a group."""
    try:
        if group is not None:
            write_text(f"{group}/cgroup.procs", "0")
    except OSError:
        return


def bind_sources(sources: list[tuple[str, tuple[int, int] | None]], root: str, uid: int) -> None:
    """Bind each source to its number below `root`, visible for this process and its children only.

    A source with an owner belongs to a person: the user of the sandbox acts as that owner in it.
    """
    unshare(CLONE_NEWNS)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    # Opened before `root` is covered, and in this mount namespace: the kernel binds nothing of another one.
    descriptors = [(os.open(source, os.O_PATH | os.O_CLOEXEC), owner) for source, owner in sources]
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
    for number, (descriptor, owner) in enumerate(descriptors):
        _bind_descriptor(descriptor, f"{root}/{number}", owner, uid)
        os.close(descriptor)


def _bind_descriptor(descriptor: int, target: str, owner: tuple[int, int] | None, uid: int) -> None:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.mkdir(target)  # noqa: PTH102  # text in
    else:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    if owner is None or not _bind_as_owner(descriptor, target, owner, uid):
        mount(f"/proc/self/fd/{descriptor}", target, flags=MS_BIND | MS_REC)


def _bind_as_owner(descriptor: int, target: str, owner: tuple[int, int], uid: int) -> bool:
    """Bind with the ids of the owner shown as those of the sandbox. False if the kernel or the file system cannot."""
    try:
        namespace = _make_id_map(owner, uid)
        bind_with_ids(descriptor, target, namespace)
        os.close(namespace)
    except OSError:
        return False
    return True


def _make_id_map(owner: tuple[int, int], uid: int) -> int:
    """A descriptor of a user namespace that maps the owner to the user of the sandbox; nothing runs in it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _wait_in_namespace(writing)
    try:
        os.close(writing)
        os.read(reading, 1)
        for name, outer in (("uid_map", owner[0]), ("gid_map", owner[1])):
            write_text(f"/proc/{child}/{name}", f"{outer} {uid} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _wait_in_namespace(writing: int) -> NoReturn:
    """Enter a user namespace, say so, and wait to be killed. Without a namespace the parent finds no process to map."""
    try:
        unshare(CLONE_NEWUSER)
        os.write(writing, b"x")
        signal.pause()
    finally:
        os._exit(0)
