"""The process table: who a process is, which run it belongs to, and which agent it runs below.

A process names its run in its environment, and carries a mark of it whatever it does with that environment. The mark is a
resource limit that limits nothing: how long a real-time task may compute without a pause. It is unlimited unless somebody sets
it, and we set it to more than a hundred years. Like every limit it goes on from a process to those it starts, through every
change of program, parent, group and session, and it can be read of processes that hide their environment.

Only the lower of the two limits is set, so an agent that is itself a host can mark agents of its own.
"""

from __future__ import annotations

import hashlib
import os
import resource
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from fidelio.errors import ExecutorUnavailable

# Fidelio sets this for the agents it starts, to the id of their run; a process below one of them must not play the person.
AGENT_MARKER = "FIDELIO_AGENT"
# There is no such limit on other systems than Linux, and agents do not run as processes there.
_LIMIT: int | None = getattr(resource, "RLIMIT_RTTIME", None)
_LOWEST = 1 << 52
_BYTES = 6


def compute_mark(run: str) -> int:
    return _LOWEST + int.from_bytes(hashlib.sha256(run.encode("utf-8", "replace")).digest()[:_BYTES])


def put_mark(pid: int, run: str) -> None:
    """Marks a child that is held, so that whatever it starts later is marked as well.

    Where this limit is in use for what it is meant for, or may not be set, the child is known by its environment alone.
    """
    _set_mark(pid, compute_mark(run))


def remove_mark(pid: int) -> None:
    """For a child that is to outlive the run below which it was started."""
    _set_mark(pid, resource.RLIM_INFINITY)


def read_mark(pid: int) -> int | None:
    """None for a process that has none, is gone, or is not ours to look at."""
    if _LIMIT is None:
        return None
    try:
        lower, _ = resource.prlimit(pid, _LIMIT)
    except OSError:
        return None
    return lower if _is_mark(lower) else None


def _set_mark(pid: int, mark: int) -> None:
    if _LIMIT is None:
        return
    with suppress(OSError, ValueError):
        lower, upper = resource.prlimit(pid, _LIMIT)
        if lower == resource.RLIM_INFINITY or _is_mark(lower):
            resource.prlimit(pid, _LIMIT, (mark, upper))


def _is_mark(limit: int) -> bool:
    return _LOWEST <= limit < _LOWEST + (1 << 8 * _BYTES)


_PROC = Path("/proc")
_ENDED_STATES = frozenset("ZXx")


class ProcessIdentity(msgspec.Struct, frozen=True):
    """Which process it is. A number alone is given to another process later; with its start time it is not."""

    pid: int
    started: str


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """One line of the process table. `run` is the run that its environment names; where that names none, there is `mark`."""

    identity: ProcessIdentity
    parent: int
    session: int
    run: str | None
    mark: int | None

    def belongs_to_run(self, run: str) -> bool:
        return self.run == run if self.run is not None else self.mark == compute_mark(run)

    @property
    def is_unmarked(self) -> bool:
        return self.run is None and self.mark is None


def agent_above() -> str:
    """The run of the agent that this process runs below, by its marker; empty where there is none."""
    # A child can clear its own environment; that of the agent above it stays as it was started.
    return os.environ.get(AGENT_MARKER) or next(filter(None, map(_read_marker, _ancestors())), "")


def _ancestors() -> Iterator[int]:
    """The processes above this one, the nearest first, as far as the system shows them."""
    pid = os.getppid()
    while pid > 1:
        yield pid
        fields = _read_stat(pid)
        if fields is None:
            return
        pid = int(fields[1])


def require_process_table() -> None:
    """Raises where agents cannot be told from other people's processes, and so could not be stopped safely."""
    if problem := missing_support():
        raise ExecutorUnavailable(problem, remedy="Use the executor `scripted`, or run Fidelio on Linux 5.3 or newer.")


@cache
def missing_support() -> str:
    """Empty where agent processes can be supervised; else the sentence that says why not."""
    if not (_PROC / "self" / "stat").exists():
        return "Agents run as processes only where /proc shows who they are, which this system does not have."
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return "Agents run as processes only where a process can be held by a file descriptor, which this kernel cannot do."
    return ""


def find_identity(pid: int) -> ProcessIdentity | None:
    """Who has this number now, or None when nobody is alive under it."""
    fields = _read_stat(pid)
    return None if fields is None else ProcessIdentity(pid, _start_time(fields))


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether this very process runs; one that has ended and only waits to be collected does not."""
    return find_identity(identity.pid) == identity


def belongs_to(identity: ProcessIdentity, run: str) -> bool:
    """Whether this very process is alive and was started for the run."""
    entry = _read_entry(identity.pid)
    return entry is not None and entry.identity == identity and entry.belongs_to_run(run)


def find_marked(run: str) -> list[ProcessIdentity]:
    """Every living process that was started for the run, however it has moved since; the oldest first."""
    found = [entry.identity for entry in iterate_processes() if entry.belongs_to_run(run)]
    return sorted(found, key=lambda identity: (int(identity.started.rpartition(":")[2]), identity.pid))


def find_run_processes(run: str, leader: ProcessIdentity | None = None) -> list[ProcessIdentity]:
    """Everybody who has to go when the run is stopped, except the process that asks.

    Those with the mark of the run; those in a session that one of them leads, because a program may start others with an
    environment of its own choice; and their descendants. Who carries the mark of another run is spared. `leader` is known to
    be ours: for a moment after its start a process shows no environment.
    """
    table = list(iterate_processes())
    ours = {entry.identity.pid for entry in table if entry.belongs_to_run(run) or entry.identity == leader}
    others = [entry for entry in table if entry.is_unmarked]
    ours |= {entry.identity.pid for entry in others if entry.session in ours}
    _add_descendants(ours, others)
    return [entry.identity for entry in table if entry.identity.pid in ours - {os.getpid()}]


def send_signal(identity: ProcessIdentity, number: signal.Signals) -> bool:
    """Signals this very process. False: it is gone or not ours to signal, and nobody else was touched."""
    try:
        handle = os.pidfd_open(identity.pid)
    except OSError:
        return False
    try:
        # The descriptor holds the process, so what is true of it now stays true until the signal has been sent.
        if not is_alive(identity):
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def iterate_processes() -> Iterator[ProcessEntry]:
    """The living processes. What ends while we look is left out; who has neither name nor mark that we may read is nobody's."""
    for directory in os.scandir(_PROC):
        if directory.name.isdigit() and (entry := _read_entry(int(directory.name))) is not None:
            yield entry


def _read_entry(pid: int) -> ProcessEntry | None:
    run = _read_marker(pid)
    mark = read_mark(pid) if run is None else None
    fields = _read_stat(pid)
    if fields is None:
        return None
    return ProcessEntry(ProcessIdentity(pid, _start_time(fields)), int(fields[1]), int(fields[3]), run, mark)


def _add_descendants(ours: set[int], others: Iterable[ProcessEntry]) -> None:
    remaining = list(others)
    while found := {entry.identity.pid for entry in remaining if entry.parent in ours}:
        ours |= found
        remaining = [entry for entry in remaining if entry.identity.pid not in found]


def _read_stat(pid: int) -> list[str] | None:
    """The fields from the state on, None when the process is gone. A program's name may hold spaces and brackets."""
    fields = _read_file(pid, "stat").decode("utf-8", "replace").rpartition(")")[2].split()
    return None if not fields or fields[0] in _ENDED_STATES else fields


def _start_time(fields: list[str]) -> str:
    return f"{_boot_id()}:{fields[19]}"


@cache
def _boot_id() -> str:
    """Start times count from the start of the machine, so they mean something only together with it."""
    return (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text("ascii").strip()


def _read_marker(pid: int) -> str | None:
    environment = b"\0" + _read_file(pid, "environ")
    _, found, rest = environment.partition(f"\0{AGENT_MARKER}=".encode())
    return rest.partition(b"\0")[0].decode("utf-8", "replace") if found else None


def _read_file(pid: int, name: str) -> bytes:
    """Empty when the process is gone or is not ours to look at. Every process of the machine is read, so this is kept cheap."""
    try:
        handle = os.open(f"{_PROC}/{pid}/{name}", os.O_RDONLY)
    except OSError:
        return b""
    parts = []
    try:
        while part := os.read(handle, 1 << 16):
            parts.append(part)
    except OSError:
        return b""
    finally:
        os.close(handle)
    return b"".join(parts)
