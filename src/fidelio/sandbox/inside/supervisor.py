"""Supervisor: the process between pid 1 and a command, which ends everything that the command has started.

It is a fork of pid 1 and the reaper of its descendants, so a process that forks twice or leaves its session is still found. It
runs one command after the other, because the fork of an interpreter costs more than most commands. A command can kill its
supervisor, because both have the same user; then pid 1 ends what is left (`fidelio.sandbox.inside.supervision`).
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from fidelio.sandbox.inside.launch_system import PR_SET_PDEATHSIG, close_other_descriptors, prctl

PR_SET_CHILD_SUBREAPER = 36
# Nothing below the standard streams and the descriptors of the shell is used while descriptors are moved.
_FIRST_FREE = 64
_MAX_DESCRIPTORS = 32
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM)
# Python ignores these; a program expects their default.
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)
_END_SECONDS = 3.0
_FREEZE_ROUNDS = 64


class Start(NamedTuple):
    """A program to start. `descriptors` maps its descriptors to ours; `terminal` becomes its controlling terminal."""

    argv: tuple[str, ...]
    cwd: str
    environment: Mapping[str, str]
    descriptors: Mapping[int, int]
    terminal: str = ""
    timeout: float | None = None


class Ending(NamedTuple):
    """How a supervised command ended. All is unknown if its supervisor was killed."""

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    error: int = 0


def send_start(connection: socket.socket, start: Start) -> None:
    """Send a program to a supervisor. Never waits for it; raises OSError if that is not possible."""
    content = os.memfd_create("start")
    try:
        # By a file: arguments and variables may be larger than a message.
        with open(content, "wb", closefd=False) as file:
            file.write(json.dumps({**start._asdict(), "descriptors": list(start.descriptors)}).encode("ascii"))
        passed = array.array("i", [content, *start.descriptors.values()])
        connection.sendmsg([b"start"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)], socket.MSG_DONTWAIT)
    finally:
        os.close(content)


def serve(connection: socket.socket) -> None:
    """Run the programs that pid 1 sends, in order. Runs in a process of its own.

    The id of the program and its ending are sent back as messages of JSON.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    close_other_descriptors((connection.fileno(),))
    is_clean = True
    while is_clean:
        descriptors = _receive_descriptors(connection)
        if not descriptors:
            return
        is_clean = _supervise(_receive_start(descriptors), connection)
        os.chdir("/")


def _receive_descriptors(connection: socket.socket) -> list[int]:
    # `socket.recv_fds` ignores flags before Python 3.12, and without this one programs would inherit the descriptors.
    size = socket.CMSG_LEN(_MAX_DESCRIPTORS * array.array("i").itemsize)
    ancillary = connection.recvmsg(64, size, socket.MSG_CMSG_CLOEXEC)[1]
    received = array.array("i")
    for _, _, data in ancillary:
        received.frombytes(data)
    return received.tolist()


def _receive_start(descriptors: list[int]) -> Start:
    with open(descriptors[0], "rb") as file:  # noqa: PTH123  # a descriptor
        file.seek(0)
        fields = json.loads(file.read())
    return Start(**{**fields, "descriptors": dict(zip(fields["descriptors"], descriptors[1:]))})  # noqa: B905  # Python 3.9


def _supervise(start: Start, connection: socket.socket) -> bool:
    """Run a program as a child, wait for its end, end its descendants. False if some of them did not end."""
    # A signal that another command has sent meanwhile is not meant for this one.
    while signal.sigtimedwait(_SIGNALS, 0) is not None:
        pass
    try:
        pid = _spawn(start)
    except OSError as error:
        _send(connection, Ending(error=error.errno or 0)._asdict())
        return True
    finally:
        # Kept open here, a pipe would never end.
        close_other_descriptors((connection.fileno(),))
    _send(connection, {"pid": pid})
    status, timed_out = _wait(pid, start.timeout)
    statuses = {} if status is None else {pid: status}
    is_clean = end_children(statuses)
    _send(connection, _describe(statuses.get(pid), timed_out)._asdict())
    return is_clean


def end_children(statuses: dict[int, int] | None = None, seconds: float = _END_SECONDS) -> bool:
    """End all descendants of this process, which must be their reaper. False if some did not end in time."""
    deadline = time.monotonic() + seconds
    while _reap({} if statuses is None else statuses):
        if time.monotonic() > deadline:
            return False
        kill_all(lambda: find_descendants((os.getpid(),)))
        signal.sigtimedwait((signal.SIGCHLD,), 0.05)
    return True


def kill_all(find: Callable[[], Collection[int]]) -> int:
    """Stop all these processes, then kill them; returns their number.

    Stopped ones still count against the limit of processes, so that one which forks as fast as it can cannot escape.
    """
    stopped: set[int] = set()
    for _ in range(_FREEZE_ROUNDS):
        found = set(find())
        if found <= stopped:
            break
        _signal_all(found - stopped, signal.SIGSTOP)
        stopped |= found
    _signal_all(stopped, signal.SIGKILL)
    return len(stopped)


def find_descendants(roots: Collection[int]) -> set[int]:
    """All living processes below these, without them."""
    children: dict[int, list[int]] = {}
    for pid, parent in read_parents():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    pending = list(roots)
    while pending:
        for pid in children.get(pending.pop(), ()):
            if pid not in found:
                found.add(pid)
                pending.append(pid)
    return found


def _spawn(start: Start) -> int:
    os.chdir(start.cwd)
    actions: list[Any] = []
    if start.terminal:
        # The first terminal that the leader of a session opens becomes its controlling terminal.
        actions.append((os.POSIX_SPAWN_OPEN, 0, start.terminal, os.O_RDWR, 0))
        actions.append((os.POSIX_SPAWN_CLOSE, 0))
    for target, source in start.descriptors.items():
        # Moved out of the way first: a source may have the number of another target.
        moved = fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
        actions.append((os.POSIX_SPAWN_DUP2, moved, target))
    return os.posix_spawn(
        start.argv[0],
        list(start.argv),
        dict(start.environment),
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=_RESET,
    )


def _wait(pid: int, timeout: float | None) -> tuple[int | None, bool]:
    """Wait for the end of the program, or for a request to end it. Returns its status and whether its time was up."""
    deadline = None if timeout is None else time.monotonic() + timeout
    statuses: dict[int, int] = {}
    while True:
        _reap(statuses)
        if pid in statuses:
            return statuses[pid], False
        if deadline is None:
            if signal.sigwaitinfo(_SIGNALS).si_signo == signal.SIGTERM:
                return None, False
            continue
        remaining = deadline - time.monotonic()
        found = signal.sigtimedwait(_SIGNALS, remaining) if remaining > 0 else None
        if found is None and time.monotonic() >= deadline:
            return None, True
        if found is not None and found.si_signo == signal.SIGTERM:
            return None, False


def _reap(statuses: dict[int, int]) -> bool:
    """Reap children that have ended. False if there are no children."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        statuses[pid] = status


def _describe(status: int | None, timed_out: bool) -> Ending:
    if status is None:
        return Ending(timed_out=timed_out)
    if os.WIFSIGNALED(status):
        return Ending(signal=os.WTERMSIG(status), timed_out=timed_out)
    return Ending(exit_code=os.WEXITSTATUS(status), timed_out=timed_out)


def read_parents() -> list[tuple[int, int]]:
    """Each process and its parent. Ended ones that nobody has reaped are left out."""
    found: list[tuple[int, int]] = []
    for name in os.listdir("/proc"):  # noqa: PTH208  # names only
        if name.isdigit():
            fields = read_stat(int(name))
            if fields and fields[0] != "Z":
                found.append((int(name), int(fields[1])))
    return found


def read_stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on: state, parent, process group, session, …; empty if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  # this runs for every process
            # The second field is the name, which can contain anything.
            return file.read().rpartition(b")")[2].decode("ascii").split()
    except (OSError, UnicodeDecodeError):
        return []


def _signal_all(pids: Collection[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _send(connection: socket.socket, entry: Mapping[str, Any]) -> None:
    connection.send(json.dumps(entry).encode("ascii"))
