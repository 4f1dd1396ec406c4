"""The seccomp filter of sandboxes: an assembler for classic BPF, and the list of system calls that no sandbox makes.

Namespaces hide things; the filter takes away the parts of the kernel that have been a way out or that a sandbox has no use for.
What is refused fails with EPERM, or with ENOSYS where programs then use an older call whose arguments a filter can read. A new
system call that is in no list works.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from fidelio.errors.runtime import SandboxUnavailable

# Offsets in `struct seccomp_data`: the number of the call, the architecture, and six arguments of eight bytes.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_X32 = 0x40000000
_REFUSE = _ERROR | errno.EPERM
_MISSING = _ERROR | errno.ENOSYS

# CLONE_NEWTIME is left out: in `clone` the same bit belongs to the signal. `unshare` needs a capability for it.
_NEW_NAMESPACES = 0x7E020000
_SET_ID_BITS = 0o6000
_CREATE = 0o100
# Terminals: TIOCSTI and TIOCLINUX type for the user of the terminal, TIOCSETD loads line disciplines into the kernel.
_IOCTLS = (0x5412, 0x541C, 0x5423)
# Unix, IPv4, IPv6, netlink. Others are of no use without a capability, or reach beyond the network namespace (vsock).
_FAMILIES = (1, 2, 10, 16)


class _Architecture(NamedTuple):
    audit: int
    numbers: Mapping[str, int]


# Calls whose numbers are the same on every architecture.
_COMMON = {
    "pidfd_getfd": 438, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "openat2": 437,
    "mount_setattr": 442, "quotactl_fd": 443, "fchmodat2": 452, "statmount": 457, "listmount": 458, "open_tree_attr": 467,
}  # fmt: skip
_X86_64 = {
    "ioctl": 16, "socket": 41, "socketpair": 53, "clone": 56, "open": 2, "creat": 85, "chmod": 90, "fchmod": 91, "ptrace": 101,
    "syslog": 103, "mknod": 133, "uselib": 134, "ustat": 136, "sysfs": 139, "vhangup": 153, "modify_ldt": 154,
    "pivot_root": 155, "_sysctl": 156, "adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165,
    "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172,
    "ioperm": 173, "init_module": 175, "delete_module": 176, "quotactl": 179, "nfsservctl": 180, "lookup_dcookie": 212,
    "clock_settime": 227, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "openat": 257, "mkdirat": 258,
    "mknodat": 259, "fchmodat": 268, "unshare": 272, "move_pages": 279, "perf_event_open": 298, "fanotify_init": 300,
    "name_to_handle_at": 303, "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310,
    "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
    "execve": 59, "execveat": 322, "mkdir": 83, "migrate_pages": 256, "chown": 92, "fchown": 93, "lchown": 94, "setxattr": 188,
    "lsetxattr": 189, "fsetxattr": 190, "fchownat": 260,
}  # fmt: skip
_AARCH64 = {
    "ioctl": 29, "mknodat": 33, "mkdirat": 34, "umount2": 39, "mount": 40, "pivot_root": 41, "nfsservctl": 42, "chroot": 51,
    "fchmod": 52, "fchmodat": 53, "openat": 56, "vhangup": 58, "quotactl": 60, "lookup_dcookie": 18, "acct": 89, "unshare": 97,
    "kexec_load": 104, "init_module": 105, "delete_module": 106, "clock_settime": 112, "syslog": 116, "ptrace": 117,
    "reboot": 142, "sethostname": 161, "setdomainname": 162, "settimeofday": 170, "adjtimex": 171, "socket": 198,
    "socketpair": 199, "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220, "execve": 221, "swapon": 224,
    "swapoff": 225, "migrate_pages": 238, "move_pages": 239, "perf_event_open": 241, "fanotify_init": 262,
    "name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270,
    "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "bpf": 280, "execveat": 281, "userfaultfd": 282,
    "kexec_file_load": 294, "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "fchownat": 54, "fchown": 55,
}  # fmt: skip
_ARCHITECTURES = {
    "x86_64": _Architecture(0xC000003E, {**_COMMON, **_X86_64}),
    "aarch64": _Architecture(0xC00000B7, {**_COMMON, **_AARCH64}),
}

# Refused whatever the arguments are.
REFUSED = (
    # Keys belong to a user, not to a namespace.
    "add_key", "keyctl", "request_key",
    # Programs in the kernel, and ways to stop it in the middle of a call.
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
    # The memory and descriptors of other processes.
    "kcmp", "pidfd_getfd", "process_vm_readv", "process_vm_writev", "ptrace",
    # Mounts and namespaces.
    "chroot", "fsconfig", "fsmount", "fsopen", "fspick", "listmount", "mount", "mount_setattr", "move_mount", "open_tree",
    "open_tree_attr", "pivot_root", "setns", "statmount", "umount2",
    # Files by number instead of by path, and events of whole file systems.
    "fanotify_init", "lookup_dcookie", "name_to_handle_at", "open_by_handle_at",
    # The machine.
    "_sysctl", "acct", "adjtimex", "clock_adjtime", "clock_settime", "delete_module", "finit_module", "init_module", "ioperm",
    "iopl", "kexec_file_load", "kexec_load", "migrate_pages", "modify_ldt", "move_pages", "nfsservctl", "quotactl",
    "quotactl_fd", "reboot", "setdomainname", "sethostname", "settimeofday", "swapoff", "swapon", "sysfs", "syslog", "uselib",
    "ustat", "vhangup",
)  # fmt: skip
# Refused where Landlock is the boundary: programs, sockets, and changes of files that it does not cover. `fchmod` stays, for
# new files; no file action gives it another one.
_REFUSED_FOR_FILES = (
    "execve", "execveat", "socket", "chmod", "fchmodat", "fchmodat2", "chown", "fchown", "fchownat", "lchown", "setxattr",
    "lsetxattr", "fsetxattr",
)  # fmt: skip
# The position of the mode in calls that can set the set-user-id bit. Such a file in a mount of the host would lend the rights
# of its owner to every user of the machine.
_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
_OPENS = {"open": 1, "openat": 2}


def build_filter(machine: str | None = None, *, files_only: bool = False) -> bytes:
    """The filter as the array of instructions that the kernel takes.

    `files_only` (level c) also refuses programs and sockets; the process that gets it is our own, so it may use `openat2`.
    """
    machine = platform.machine() if machine is None else machine
    if machine not in _ARCHITECTURES:
        raise SandboxUnavailable(
            f"There is no filter of system calls for '{machine}'.", remedy="Use a machine with x86_64 or aarch64."
        )
    architecture = _ARCHITECTURES[machine]
    return b"".join((*_check_architecture(architecture), *_check_calls(architecture.numbers, files_only), _return(_ALLOW)))


def _check_architecture(architecture: _Architecture) -> Iterator[bytes]:
    """Refuse the calls of other instruction sets: they have other numbers."""
    yield _load(_ARCHITECTURE)
    yield _jump(_JUMP_EQUAL, architecture.audit, 1, 0)
    yield _return(_KILL)
    yield _load(_NUMBER)
    if architecture.audit == _ARCHITECTURES["x86_64"].audit:
        yield _jump(_JUMP_AT_LEAST, _X32, 0, 1)
        yield _return(_MISSING)


def _check_calls(numbers: Mapping[str, int], files_only: bool) -> Iterator[bytes]:
    refused = (*REFUSED, *(_REFUSED_FOR_FILES if files_only else ()))
    yield from _refuse((numbers[name] for name in refused if name in numbers), _REFUSE)
    # Their flags lie in memory, where a filter cannot read them. The C library falls back to `clone` and `openat`.
    missing = ("clone3",) if files_only else ("clone3", "openat2")
    yield from _refuse((numbers[name] for name in missing), _MISSING)
    for name in ("clone", "unshare"):
        yield from _when(numbers[name], [_load_argument(0), _jump(_JUMP_ANY_BIT, _NEW_NAMESPACES, 0, 1), _return(_REFUSE)])
    for name, position in _MODES.items():
        if name in numbers:
            yield from _when(numbers[name], _refuse_bits(position, _SET_ID_BITS))
    for name, position in _OPENS.items():
        if name in numbers:
            yield from _when(numbers[name], _refuse_set_id_file(position))
    yield from _when(numbers["ioctl"], [_load_argument(1), *_refuse(_IOCTLS, _REFUSE)])
    for name in ("socket", "socketpair"):
        yield from _when(numbers[name], _allow_families())


def _refuse_bits(position: int, bits: int) -> list[bytes]:
    return [_load_argument(position), _jump(_JUMP_ANY_BIT, bits, 0, 1), _return(_REFUSE)]


def _refuse_set_id_file(position: int) -> list[bytes]:
    """The mode of an opening call is meaningful only if it creates a file; else the register holds anything."""
    checked = _refuse_bits(position + 1, _SET_ID_BITS)
    return [_load_argument(position), _jump(_JUMP_ANY_BIT, _CREATE | _O_TMPFILE, 0, len(checked)), *checked]


def _allow_families() -> list[bytes]:
    count = len(_FAMILIES)
    jumps = [_jump(_JUMP_EQUAL, family, count - index, 0) for index, family in enumerate(_FAMILIES)]
    return [_load_argument(0), *jumps, _return(_REFUSE)]


# Without O_DIRECTORY, which it contains and which an ordinary opening may set.
_O_TMPFILE = 0o20000000


def _refuse(values: Iterable[int], answer: int) -> Iterator[bytes]:
    """Return `answer` if the loaded value is among these."""
    for value in values:
        yield _jump(_JUMP_EQUAL, value, 0, 1)
        yield _return(answer)


def _when(number: int, block: list[bytes]) -> list[bytes]:
    """Run the block for this call, and load the number again behind it."""
    return [_jump(_JUMP_EQUAL, number, 0, len(block) + 1), *block, _load(_NUMBER)]


def _load_argument(position: int) -> bytes:
    """The lower half: the kernel uses no more of flags, modes, commands and families."""
    return _load(_ARGUMENTS + 8 * position)


def _load(offset: int) -> bytes:
    return _instruction(_LOAD, offset)


def _return(answer: int) -> bytes:
    return _instruction(_RETURN, answer)


def _jump(code: int, value: int, when_true: int, when_false: int) -> bytes:
    return _instruction(code, value, when_true, when_false)


def _instruction(code: int, value: int, when_true: int = 0, when_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, when_true, when_false, value)
