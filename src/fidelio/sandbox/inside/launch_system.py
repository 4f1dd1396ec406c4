"""System calls that the launcher needs and Python lacks, by ctypes.

Standard library only, for Python 3.9 and newer: these files run under the system's interpreter. Every call raises OSError.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

# As `typing.TYPE_CHECKING`: importing `typing`, `collections` or `json` costs more than all the rest of the launcher.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE = 4096, 16384, 1 << 18, 1 << 19
MNT_DETACH = 2
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
SIGKILL = 9
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _CLEAR_AMBIENT = 22, 2, 24, 47, 4
_CAPABILITY_VERSION = 0x20080522
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_JOIN_SESSION_KEYRING = 1
# The numbers of these calls differ between architectures; those of newer calls do not.
_PIVOT_ROOT, _KEYCTL = {"x86_64": (155, 250), "aarch64": (41, 219)}.get(os.uname().machine, (-1, -1))
_OPEN_TREE, _MOVE_MOUNT, _CLOSE_RANGE, _MOUNT_SETATTR = 428, 429, 436, 442
_OPEN_TREE_CLONE, _MOVE_FROM_DESCRIPTOR, _AT_EMPTY_PATH, _MOUNT_ATTR_IDMAP = 1, 4, 0x1000, 0x100000
_LAST_DESCRIPTOR = 0xFFFFFFFF

# The exit status that says that no sandbox was started.
FAILED = 125

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    arguments = (source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None)
    _check(_libc.mount(*arguments), f"mount {target}")


def unmount(target: str, flags: int = 0) -> None:
    _check(_libc.umount2(target.encode(), ctypes.c_int(flags)), f"unmount {target}")


def prctl(option: int, value: int = 0, third: int = 0) -> int:
    arguments = (ctypes.c_ulong(value), ctypes.c_ulong(third), ctypes.c_ulong(0), ctypes.c_ulong(0))
    return _check(_libc.prctl(ctypes.c_int(option), *arguments), f"prctl {option}")


def syscall(number: int, *arguments: object) -> int:
    return _check(_libc.syscall(ctypes.c_long(number), *arguments), f"system call {number}")


def die_with_parent(parent: int) -> None:
    """End this process with its parent. A change of the user clears this, so it is called again afterwards.

    The parent may have ended before the call; nobody would be left to end this process then.
    """
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != parent:
        os._exit(FAILED)


def become_user(uid: int) -> None:
    """Become an unprivileged user without further groups."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def pivot_root(new: str, old: str) -> None:
    syscall(_PIVOT_ROOT, new.encode(), old.encode())


def set_mount_attributes(target: str, attributes: int, *, recursive: bool = False) -> None:
    """Add attributes to a mount, or to all below it. Unlike a remount this keeps the others."""
    content = struct.pack("=QQQQ", attributes, 0, 0, 0)
    flags = ctypes.c_uint(_AT_RECURSIVE if recursive else 0)
    path = (ctypes.c_int(_AT_FDCWD), target.encode(), flags)
    try:
        syscall(_MOUNT_SETATTR, *path, content, ctypes.c_size_t(len(content)))
    except OSError as error:
        raise OSError(error.errno, f"restrict the mount {target}: {os.strerror(error.errno or 0)}") from error


def set_host_name(name: str) -> None:
    _check(_libc.sethostname(name.encode(), ctypes.c_size_t(len(name))), "sethostname")


def start_loopback() -> None:
    """Start the loopback interface of a new network namespace."""
    internet, datagram, set_flags, is_up = 2, 2, 0x8914, 1
    descriptor = _check(_libc.socket(internet, datagram, 0), "socket")
    request = struct.pack("16sH22x", b"lo", is_up)
    _check(_libc.ioctl(ctypes.c_int(descriptor), ctypes.c_ulong(set_flags), request), "start the loopback interface")
    os.close(descriptor)


def bind_with_ids(descriptor: int, target: str, namespace: int) -> None:
    """Bind what the descriptor refers to, with user and group ids mapped as in the user namespace."""
    nothing, flags = b"", ctypes.c_uint(_AT_EMPTY_PATH)
    clone = ctypes.c_uint(_OPEN_TREE_CLONE | _AT_EMPTY_PATH | os.O_CLOEXEC)
    tree = syscall(_OPEN_TREE, ctypes.c_int(descriptor), nothing, clone)
    try:
        content = struct.pack("=QQQQ", _MOUNT_ATTR_IDMAP, 0, 0, namespace)
        syscall(_MOUNT_SETATTR, ctypes.c_int(tree), nothing, flags, content, ctypes.c_size_t(len(content)))
        destination = (ctypes.c_int(_AT_FDCWD), target.encode(), ctypes.c_uint(_MOVE_FROM_DESCRIPTOR))
        syscall(_MOVE_MOUNT, ctypes.c_int(tree), nothing, *destination)
    finally:
        os.close(tree)


def write_text(path: str, text: str) -> None:
    """Write a file of the kernel with a single call."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def join_new_keyring() -> None:
    """Join a new session keyring instead of that of the host. A kernel without keyrings needs none."""
    _libc.syscall(ctypes.c_long(_KEYCTL), ctypes.c_long(_JOIN_SESSION_KEYRING), None)


def read_all(descriptor: int) -> bytes:
    """The content of an open file, which is then closed."""
    with open(descriptor, "rb") as file:
        return file.read()


def drop_capabilities() -> None:
    """Drop all capabilities of this process and of every program that it executes."""
    prctl(_PR_CAP_AMBIENT, _CLEAR_AMBIENT)
    last = int(read_all(os.open("/proc/sys/kernel/cap_last_cap", os.O_RDONLY | os.O_CLOEXEC)))
    for capability in range(last + 1):
        prctl(_PR_CAPBSET_DROP, capability)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    _check(_libc.capset(header, bytes(24)), "capset")


def install_filter(content: bytes) -> None:
    """Install a seccomp filter. The process can no longer gain rights by executing a program."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    buffer = ctypes.create_string_buffer(content, len(content))
    program = _FilterProgram(len(content) // 8, ctypes.addressof(buffer))
    arguments = (ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(program), ctypes.c_ulong(0), ctypes.c_ulong(0))
    _check(_libc.prctl(ctypes.c_int(_PR_SET_SECCOMP), *arguments), "seccomp")


class _FilterProgram(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def close_other_descriptors(keep: Iterable[int]) -> None:
    """Close all descriptors but the standard ones and those to keep."""
    first = 3
    for descriptor in sorted({number for number in keep if number >= first}):
        if first < descriptor:
            _close_range(first, descriptor - 1)
        first = descriptor + 1
    _close_range(first, _LAST_DESCRIPTOR)


def _close_range(first: int, last: int) -> None:
    # Python before 3.10 closes them one by one, and a limit of open files that was lowered hides those above it.
    syscall(_CLOSE_RANGE, ctypes.c_uint(first), ctypes.c_uint(last), ctypes.c_uint(0))


def fail(error: OSError) -> NoReturn:
    """Say on standard error why no sandbox was started, and end this process."""
    sys.stderr.write(f"fidelio: the sandbox cannot be started: {error.strerror}\n")
    sys.stderr.flush()
    os._exit(FAILED)
