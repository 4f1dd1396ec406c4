"""Files without namespaces (level c): Landlock and seccomp around our own process, for file actions only.

The directories of the sandbox are opened first and reach the program as descriptors, because there are no mounts: the program
gets `--beneath` and a table `[[path, descriptor, writable], ...]` as its last arguments and opens everything beneath them. The
program is Python code that runs in this very process, so that no program at all can be executed afterwards. Commands, shells
and networks are refused before this is reached.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import struct
import sys

from fidelio.sandbox.inside.launch_system import (
    PR_SET_NO_NEW_PRIVS,
    become_user,
    close_other_descriptors,
    die_with_parent,
    install_filter,
    prctl,
    read_all,
    syscall,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _PATH_BENEATH = 1, 1
# Version 3 is the first that covers truncation: without it, a file that can only be read can be emptied.
OLDEST_VERSION = 3
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_CHAR, _MAKE_DIR, _MAKE_REG = 1 << 4, 1 << 5, 1 << 6, 1 << 7, 1 << 8
_MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM, _REFER, _TRUNCATE = 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14
_ALL = (1 << 15) - 1
_IOCTL_DEVICES = 1 << 15
_READ = _READ_FILE | _READ_DIR
_WRITE = _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SYM | _REFER | _TRUNCATE
_TCP, _SCOPES = 3, 3
# What the interpreter itself still opens.
_SYSTEM = {
    os.path.dirname(os.__file__): _READ,  # noqa: PTH120  # text in, text out
    "/dev/null": _READ_FILE | _WRITE_FILE | _TRUNCATE,
    "/dev/urandom": _READ_FILE,
}


def run(task: dict[str, Any]) -> int:
    """Run the Python code of the task with no access but to its directories. Returns when the code has ended."""
    table = [[path, os.open(source, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), can] for path, source, can in task["mounts"]]
    content = read_all(task["filter"])
    # Neither the files of Fidelio nor those of its interpreter need to be readable for the user of the sandbox.
    for name in task["modules"]:
        importlib.import_module(name)
    if task["uid"] is not None:
        become_user(task["uid"])
        die_with_parent(task["parent"])
    if os.getsid(0) != os.getpid():
        os.setsid()
    os.umask(0o022)
    close_other_descriptors([*task["keep"], *(descriptor for _, descriptor, _ in table)])
    _set_limits(task["limits"])
    restrict_files([(descriptor, _WRITE if can else _READ) for _, descriptor, can in table])
    install_filter(content)
    return _run_code(task["code"], [*task["arguments"], "--beneath", json.dumps(table)])


def _run_code(code: str, arguments: list[str]) -> int:
    """Run code as `python -c` does, and return its exit status."""
    os.environ.clear()
    sys.argv = ["-c", *arguments]
    try:
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102  # the code of our own server
    except OSError:
        # An error of the program, not of its start.
        sys.excepthook(*sys.exc_info())
        return 1
    sys.stdout.flush()
    return 0


def _set_limits(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        capped = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (capped, capped))


def find_version() -> int:
    """The version of Landlock in this kernel; 0 if it has none or does not use it."""
    try:
        return syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_ASK_VERSION))
    except OSError:
        return 0


def restrict_files(rules: list[tuple[int, int]]) -> None:
    """Restrict this process to files beneath these descriptors and to the standard library."""
    version = find_version()
    if version < OLDEST_VERSION:
        raise OSError(0, f"the kernel has version {version} of Landlock, and {OLDEST_VERSION} is needed")
    ruleset = _create_ruleset(version)
    for descriptor, access in rules:
        _add_rule(ruleset, descriptor, access)
    for path, access in _SYSTEM.items():
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        _add_rule(ruleset, descriptor, access)
        os.close(descriptor)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
    os.close(ruleset)


def _create_ruleset(version: int) -> int:
    """All that the kernel can handle: files; TCP since version 4; devices since 5; signals and abstract sockets since 6."""
    files = _ALL | (_IOCTL_DEVICES if version >= 5 else 0)
    fields = [files, *([_TCP] if version >= 4 else []), *([_SCOPES] if version >= 6 else [])]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    return syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))


def _add_rule(ruleset: int, descriptor: int, access: int) -> None:
    rule = struct.pack("=Qi", access, descriptor)
    syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint(0))
