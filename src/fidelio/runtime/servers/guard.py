"""Guard of an MCP server: the program between a worker and the server, which ends the server when the worker has ended.

A server may ignore the end of its input, start others, and leave its process group and its parent. The guard is the reaper of
all its descendants and holds the other end of a pipe of the worker: when the worker closes it, or is killed, the guard ends
whatever is left. Standard library only, because it is started for every server: 40 ms.

    guard.py CONTROL PROGRAM ARGUMENT...

CONTROL is the descriptor of the pipe. The server is started when a byte arrives in it: the worker marks this process before.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress

GRACE_MS = 1_000
_KILL_SECONDS = 5.0
_PAUSE_SECONDS = 0.01
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Python ignores these; a program expects their default.
_RESET = (*_IGNORED, signal.SIGPIPE, signal.SIGXFSZ)
_NOT_STARTED = 127


def main(arguments: list[str]) -> int:
    control, command = int(arguments[0]), arguments[1:]
    os.set_inheritable(control, False)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if not os.read(control, 1):
        return 0
    server = _start(command)
    _release_streams()
    _wait(control, server)
    end_descendants()
    return 0


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(ctypes.c_int(option), ctypes.c_ulong(value), 0, 0, 0)


def _start(command: list[str]) -> int:
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            os.execv(command[0], command)  # noqa: S606  # the program that the person has named
    except OSError as error:
        os.write(2, f"The server could not be started: {error.strerror}.\n".encode())
    finally:
        os._exit(_NOT_STARTED)


def _release_streams() -> None:
    """Close our copies of the server's streams: the worker has to see their end when the server ends."""
    empty = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(empty, stream)


def _wait(control: int, server: int) -> None:
    """Wait until the server has ended, or the worker has closed the pipe; then the server gets a moment to end by itself."""
    handle = os.pidfd_open(server)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(handle, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if handle in ready:
            return
        if not os.read(control, 1):
            poll.unregister(control)
            poll.poll(GRACE_MS)
            return


def end_descendants() -> None:
    """Kill everything below this process. What a killed process had started is then below this process directly."""
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:
        for pid in _list_descendants():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not _reap():
            return
        time.sleep(_PAUSE_SECONDS)


def _reap() -> bool:
    """Collect what has ended; whether anything is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _list_descendants() -> list[int]:
    parents = dict(filter(None, map(_read_parent, os.listdir("/proc"))))  # noqa: PTH208  # pathlib starts slowly
    found: set[int] = {os.getpid()}
    while new := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= new
    return sorted(found - {os.getpid()})


def _read_parent(name: str) -> tuple[int, int] | None:
    if not name.isdigit():
        return None
    try:
        with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123  # pathlib starts slowly
            # The program name may have spaces and brackets.
            return int(name), int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
