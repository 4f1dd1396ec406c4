"""Attempts against processes and limits: tracing, signals, memory of process 1, fork bomb, memory, files."""

# The system calls are what is tried.
# ruff: noqa: PTH108, PTH208
from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import struct
from functools import partial
from typing import Any

from tests.sandbox.isolation.attempts.harness import attempt, call, first_success, read

Context = dict[str, Any]


@attempt("tracing process 1 or a child (ptrace)", without_commands=True)
def trace(context: Context) -> object:
    attach, seize = 16, 0x4206
    number = context["calls"]["ptrace"]
    tries = ((attach, 1), (seize, 1), (attach, os.getppid()), (0, 0))
    return first_success(
        *(partial(call, number, ctypes.c_long(request), ctypes.c_long(process), None, None) for request, process in tries)
    )


@attempt("the memory of process 1 in `/proc`", without_commands=True)
def memory_of_process_one(_: Context) -> object:
    names = ("/proc/1/mem", f"/proc/{os.getppid()}/mem", "/proc/1/maps", "/proc/1/environ", "/proc/1/fd/0")
    return first_success(*(partial(os.open, name, os.O_RDONLY) for name in names))


@attempt("reading and writing the memory of other processes by a call", without_commands=True)
def process_memory_calls(context: Context) -> object:
    calls = context["calls"]
    buffer = ctypes.create_string_buffer(8)
    vector = struct.pack("=QQ", ctypes.addressof(buffer), 8)
    one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
    tries = [(name, process) for name in ("process_vm_readv", "process_vm_writev") for process in (1, os.getpid())]
    return first_success(*(partial(call, calls[name], process, vector, one, vector, one, none) for name, process in tries))


@attempt("a descriptor of process 1 by pidfd_getfd", without_commands=True)
def take_descriptor(context: Context) -> object:
    pidfd_open, number = 434, context["calls"]["pidfd_getfd"]
    return first_success(
        *(lambda process=process: call(number, call(pidfd_open, process, 0), 0, 0) for process in (1, os.getpid()))
    )


@attempt("a signal to a process of the host")
def signal_host(context: Context) -> object:
    os.kill(context["process"], signal.SIGTERM)
    # The number may be that of a process in here; the host looks whether its own has ended.
    return None


@attempt("ending process 1 with a signal")
def signal_process_one(_: Context) -> object:
    # It runs all attempts: if it ended, none would be reported.
    for number in (signal.SIGKILL, signal.SIGSTOP):
        os.kill(1, number)
    return None


@attempt("seeing processes of the host")
def see_processes(context: Context) -> object:
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    names = [number for number in numbers if context["mark"] in _command_line(number)]
    return names or (len(numbers) > 50 and f"{len(numbers)} processes") or None


def _command_line(number: int) -> str:
    try:
        return read(f"/proc/{number}/cmdline")
    except OSError:
        return ""


@attempt("a fork bomb")
def fork_bomb(context: Context) -> object:
    limit = context["processes"]
    children: list[int] = []
    try:
        while len(children) <= limit + 10:
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
    except OSError:
        pass
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return len(children) > limit and f"{len(children)} processes"


@attempt("raising the own limits", without_commands=True)
def raise_limits(context: Context) -> object:
    tries = (
        (resource.RLIMIT_NPROC, context["processes"]),
        (resource.RLIMIT_FSIZE, context["file_bytes"]),
        (resource.RLIMIT_CORE, 0),
    )
    for number, expected in tries:
        soft, hard = resource.getrlimit(number)
        if number == resource.RLIMIT_NPROC and not context["commands"]:
            continue
        if hard == resource.RLIM_INFINITY or hard > expected:
            return f"limit {number} is {soft}, {hard}"
        try:
            resource.setrlimit(number, (hard + 1, hard + 1))
        except (OSError, ValueError):
            continue
        return f"limit {number} was raised"
    return None


@attempt("more memory than a process may have", without_commands=True)
def fill_memory(context: Context) -> object:
    try:
        mmap.mmap(-1, context["memory_bytes"] + (1 << 20), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError):
        return None
    return "allocated"


@attempt("a file larger than a file may be", without_commands=True)
def fill_file(context: Context) -> object:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    descriptor = os.open(f"{context['workspace']}/large-{os.getpid()}", os.O_CREAT | os.O_RDWR)
    os.ftruncate(descriptor, context["file_bytes"] + 1)
    return "written"


@attempt("filling the memory by `/dev/shm`")
def fill_shared_memory(context: Context) -> object:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    written = 0
    try:
        for number in range(10):
            descriptor = os.open(f"/dev/shm/{os.getpid()}-{number}", os.O_CREAT | os.O_RDWR)
            for _ in range(64):
                written += os.write(descriptor, bytes(1 << 20))
    except OSError:
        return written > context["shared_memory_bytes"] and f"{written} bytes"
    finally:
        for name in os.listdir("/dev/shm"):
            os.unlink(f"/dev/shm/{name}")
    return f"{written} bytes"


@attempt("more open files than a process may have", without_commands=True)
def fill_descriptors(context: Context) -> object:
    opened: list[int] = []
    try:
        while len(opened) <= context["open_files"]:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return None
    return f"{len(opened)} descriptors"


@attempt("a core dump with the memory of a process")
def core_dump(_: Context) -> object:
    child = os.fork()
    if child == 0:
        os.abort()
    status = os.waitpid(child, 0)[1]
    return os.WCOREDUMP(status) and "dumped"


@attempt("a process that left the group, the session and its parent and outlives the sandbox")
def daemon(context: Context) -> object:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", [context["survivor"], "300"], {})
        os._exit(0)
    os.wait()
    # The host looks for it once the sandbox has ended.
    return None
