"""Namespaces without bubblewrap (level b): the same mounts, limits and rights, built by system calls.

The order is bubblewrap's. A first user namespace gives the rights to mount; the file tree is built in a mount namespace, from
sources of the old root; a second user namespace takes the rights away again and is the last one that can be created. Then the
capabilities go, the filter is installed, and the program starts as process 1.
"""

from __future__ import annotations

import os
import select

from fidelio.sandbox.inside.launch_system import (
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    FAILED,
    MNT_DETACH,
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_RDONLY,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    SIGKILL,
    close_other_descriptors,
    die_with_parent,
    drop_capabilities,
    fail,
    install_filter,
    mount,
    pivot_root,
    prctl,
    read_all,
    set_host_name,
    set_mount_attributes,
    start_loopback,
    unmount,
    unshare,
    write_text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
_NEW, _OLD = "/newroot", "/oldroot"
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "core": "/proc/kcore",
    "ptmx": "pts/ptmx",
}


def run(task: dict[str, Any]) -> int:
    """Run the program of the task in new namespaces, and return its exit status. The caller is the parent of process 1."""
    # A process that has changed its user is not dumpable, and its own files in /proc belong to root.
    prctl(PR_SET_DUMPABLE, 1)
    uid, gid = os.getuid(), os.getgid()
    unshare(_NAMESPACES | (0 if task["shares_network"] else CLONE_NEWNET))
    _map_ids(0, uid, 0, gid)
    die_with_parent(task["parent"])
    alive, held = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(held)
            _become_first_process(task, alive)
        except OSError as error:
            fail(error)
        finally:
            os._exit(FAILED)
    close_other_descriptors([held])
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _become_first_process(task: dict[str, Any], alive: int) -> None:
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    # The parent is in another namespace, where its number cannot be compared. It holds the other end of this pipe.
    if select.select([alive], [], [], 0)[0]:
        os._exit(FAILED)
    _build_tree(task["operations"])
    set_host_name("sandbox")
    if not task["shares_network"]:
        start_loopback()
    _enter_last_user_namespace(task["inner_user"], task["inner_group"])
    os.setsid()
    drop_capabilities()
    content = read_all(task["filter"])
    close_other_descriptors(task["keep"])
    os.chdir(task["directory"])
    # A change of the user namespace may have cleared it.
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    install_filter(content)
    os.execve(task["argv"][0], task["argv"], task["environment"])  # noqa: S606  # this is the purpose


def _map_ids(inner_user: int, outer_user: int, inner_group: int, outer_group: int) -> None:
    # The kernel lets an unprivileged process map its group only after it has given up changing groups.
    write_text("/proc/self/setgroups", "deny")
    write_text("/proc/self/uid_map", f"{inner_user} {outer_user} 1")
    write_text("/proc/self/gid_map", f"{inner_group} {outer_group} 1")


def _build_tree(operations: list[dict[str, Any]]) -> None:
    """Carry out the operations in a new root, and unmount the old root."""
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")  # noqa: S108  # covered for this process only
    os.mkdir("/tmp/oldroot")  # noqa: PTH102, S108  # as above
    os.mkdir("/tmp/newroot")  # noqa: PTH102, S108  # as above
    mount("tmpfs", "/tmp/newroot", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")  # noqa: S108  # as above
    pivot_root("/tmp", "/tmp/oldroot")  # noqa: S108  # as above
    os.chdir("/")
    for operation in operations:
        _OPERATIONS[operation["kind"]](_NEW + operation["path"].rstrip("/"), operation)
    unmount(_OLD, MNT_DETACH)
    os.chdir(_NEW)
    pivot_root(".", ".")
    unmount(".", MNT_DETACH)
    os.chdir("/")


def _bind(target: str, operation: dict[str, Any]) -> None:
    _bind_source(_OLD + operation["source"], target, 0)


def _bind_read_only(target: str, operation: dict[str, Any]) -> None:
    _bind_source(_OLD + operation["source"], target, MOUNT_ATTR_RDONLY)


def _bind_source(source: str, target: str, attributes: int) -> None:
    _create_target(target, is_directory=os.path.isdir(source))  # noqa: PTH112  # text in
    mount(source, target, flags=MS_BIND | MS_REC)
    set_mount_attributes(target, attributes | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, recursive=True)


def _create_target(target: str, *, is_directory: bool) -> None:
    os.makedirs(target if is_directory else os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120  # text in
    if not is_directory and not os.path.lexists(target):
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _mount_tmpfs(target: str, operation: dict[str, Any]) -> None:
    _create_target(target, is_directory=True)
    mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=0755,size={operation['size']}")


def _create_directory(target: str, _: dict[str, Any]) -> None:
    _create_target(target, is_directory=True)


def _create_link(target: str, operation: dict[str, Any]) -> None:
    _create_target(os.path.dirname(target), is_directory=True)  # noqa: PTH120  # text in
    os.symlink(operation["source"], target)  # noqa: PTH211  # text in


def _mount_proc(target: str, _: dict[str, Any]) -> None:
    _create_target(target, is_directory=True)
    mount("proc", target, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    # This user namespace may contain one more, which is entered below.
    write_text(f"{target}/sys/user/max_user_namespaces", "1")
    mount(f"{target}/sys", f"{target}/sys", flags=MS_BIND | MS_REC)
    set_mount_attributes(f"{target}/sys", MOUNT_ATTR_RDONLY, recursive=True)


def _mount_devices(target: str, _: dict[str, Any]) -> None:
    _create_target(target, is_directory=True)
    mount("tmpfs", target, "tmpfs", MS_NOSUID, "mode=0755,size=64k")
    for name in _DEVICES:
        _create_target(f"{target}/{name}", is_directory=False)
        mount(f"{_OLD}/dev/{name}", f"{target}/{name}", flags=MS_BIND)
        set_mount_attributes(f"{target}/{name}", MOUNT_ATTR_NOSUID)
    for name, destination in _DEVICE_LINKS.items():
        os.symlink(destination, f"{target}/{name}")  # noqa: PTH211  # text in
    for name in ("shm", "pts"):
        os.mkdir(f"{target}/{name}")  # noqa: PTH102  # text in
    mount("devpts", f"{target}/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")


def _make_read_only(target: str, _: dict[str, Any]) -> None:
    set_mount_attributes(target, MOUNT_ATTR_RDONLY)


_OPERATIONS = {
    "bind": _bind,
    "bind_read_only": _bind_read_only,
    "tmpfs": _mount_tmpfs,
    "directory": _create_directory,
    "link": _create_link,
    "proc": _mount_proc,
    "dev": _mount_devices,
    "make_read_only": _make_read_only,
}


def _enter_last_user_namespace(user: int, group: int) -> None:
    unshare(CLONE_NEWUSER)
    _map_ids(user, 0, group, 0)
