"""The process table: identity of a process, the run that it belongs to, and the agent that it runs below.

A process has the id of its run in its environment, and also carries a mark that does not depend on the environment. The mark is
a value of the resource limit RLIMIT_RTTIME, which bounds how long a real-time task may compute without a pause. The limit is
normally unlimited; the mark sets it to more than a hundred years, so it has no effect. Like every resource limit it is
inherited through fork, exec and changes of parent, group and session, and it can be read of processes that hide their
environment.

The soft limit is the mark of the run, and the hard limit is the top of the range. An agent can therefore change its mark, and a
host below an agent can mark agents of its own, but without privileges no process can set it back to unlimited. A process that
lowers both limits below the range on purpose shows no mark: other programs use such values. A host below an agent has the
neutral mark, which belongs to no run.
"""

from __future__ import annotations

import hashlib
import os
import resource
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

from fidelio.errors import ExecutorUnavailable

# Set for agents to the id of their run. A process below an agent must not answer as a person.
AGENT_MARKER = "FIDELIO_AGENT"
# Only Linux has this limit, and agents run as processes only there.
_LIMIT: int | None = getattr(resource, "RLIMIT_RTTIME", None)
_LOWEST = 1 << 52
_BYTES = 6
# The top of the range, above the marks of all runs.
NEUTRAL_MARK = _LOWEST + (1 << 8 * _BYTES)


def compute_mark(run: str) -> int:
    return _LOWEST + int.from_bytes(hashlib.sha256(run.encode("utf-8", "replace")).digest()[:_BYTES])


def put_mark(pid: int, run: str) -> None:
    """Mark a child that is held, so that everything it starts later inherits the mark.

    Where the limit is used for its normal purpose, or may not be set, only the environment identifies the child.
    """
    _set_mark(pid, compute_mark(run))


def neutralize_mark(pid: int) -> None:
    """Replace the mark of a child that is to outlive the run above it by the mark that belongs to no run."""
    if read_mark(pid) is not None:
        _set_mark(pid, NEUTRAL_MARK)


def read_mark(pid: int) -> int | None:
    """The mark of a process; None if it has no mark, has ended, or must not be inspected.

    A process that has moved its soft limit out of the range has the neutral mark, by its hard limit.
    """
    if _LIMIT is None:
        return None
    try:
        lower, upper = resource.prlimit(pid, _LIMIT)
    except OSError:
        return None
    return lower if _is_mark(lower) else NEUTRAL_MARK if _is_mark(upper) else None


def _set_mark(pid: int, mark: int) -> None:
    if _LIMIT is None:
        return
    with suppress(OSError, ValueError):
        lower, upper = resource.prlimit(pid, _LIMIT)
        if lower == resource.RLIM_INFINITY or _is_mark(lower):
            top = NEUTRAL_MARK if upper == resource.RLIM_INFINITY else upper
            resource.prlimit(pid, _LIMIT, (mark, top))


def _is_mark(limit: int) -> bool:
    return _LOWEST <= limit <= NEUTRAL_MARK


_PROC = Path("/proc")
_ENDED_STATES = frozenset("ZXx")


class ProcessIdentity(msgspec.Struct, frozen=True):
    """Process id and start time. The id alone may be reused for another process."""

    pid: int
    started: str


class ProcessEntry(msgspec.Struct, frozen=True):
    """A row of the process table. `run` is the run in its environment; without it, `mark` may identify the run."""

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


def find_parent(pid: int) -> int:
    """The parent of a process; 0 if the process has ended or must not be inspected."""
    fields = _read_stat(pid)
    return 0 if fields is None else int(fields[1])


def find_process_session(pid: int) -> int:
    """The id of the process session, which is the process id of its leader; 0 if the process has ended."""
    fields = _read_stat(pid)
    return 0 if fields is None else int(fields[3])


def require_process_table() -> None:
    """Raise if this system cannot identify the processes of agents, so that they could not be stopped safely."""
    if problem := missing_support():
        raise ExecutorUnavailable(problem, remedy="Use the executor `scripted`, or run Fidelio on Linux 5.3 or newer.")


@cache
def missing_support() -> str:
    """Why agent processes cannot be supervised on this system; empty if they can."""
    if not (_PROC / "self" / "stat").exists():
        return "Agents run as processes only where /proc shows who they are, which this system does not have."
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return "Agents run as processes only where a process can be held by a file descriptor, which this kernel cannot do."
    return ""


def find_identity(pid: int) -> ProcessIdentity | None:
    """The identity of the living process with this id, or None."""
    fields = _read_stat(pid)
    return None if fields is None else ProcessIdentity(pid, _start_time(fields))


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether this very process runs; a zombie does not."""
    return find_identity(identity.pid) == identity


def belongs_to(identity: ProcessIdentity, run: str) -> bool:
    """Whether this very process is alive and was started for the run."""
    entry = _read_entry(identity.pid)
    return entry is not None and entry.identity == identity and entry.belongs_to_run(run)


def find_marked(run: str) -> list[ProcessIdentity]:
    """Every living process that was started for the run, whatever its parent, group or session; the oldest first."""
    found = [entry.identity for entry in iterate_processes() if entry.belongs_to_run(run)]
    return sorted(found, key=lambda identity: (int(identity.started.rpartition(":")[2]), identity.pid))


def find_run_processes(run: str, leader: ProcessIdentity | None = None) -> list[ProcessIdentity]:
    """Every process that has to end when the run is stopped, except the calling process.

    These are the processes with the mark of the run, those in a process session that one of them leads (a program may start
    others with another environment), and their descendants; but no process with the mark of another run. `leader` is known to
    belong to the run: for a moment after its start a process shows no environment.
    """
    table = list(iterate_processes())
    ours = {entry.identity.pid for entry in table if entry.belongs_to_run(run) or entry.identity == leader}
    others = [entry for entry in table if entry.is_unmarked]
    ours |= {entry.identity.pid for entry in others if entry.session in ours}
    _add_descendants(ours, others)
    return [entry.identity for entry in table if entry.identity.pid in ours - {os.getpid()}]


def send_signal(identity: ProcessIdentity, number: signal.Signals) -> bool:
    """Signal this very process. False: it has ended or must not be signalled; no other process was signalled."""
    try:
        handle = os.pidfd_open(identity.pid)
    except OSError:
        return False
    try:
        # The descriptor refers to the process, so its id cannot be reused between this check and the signal.
        if not is_alive(identity):
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def iterate_processes() -> Iterator[ProcessEntry]:
    """The living processes. A process that ends during the scan is left out."""
    for directory in os.scandir(_PROC):
        if directory.name.isdigit() and (entry := _read_entry(int(directory.name))) is not None:
            yield entry


def _read_entry(pid: int) -> ProcessEntry | None:
    run = read_marker(pid)
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
    """The fields of /proc/PID/stat after the program name (which may hold spaces and brackets); None if it has ended."""
    fields = _read_file(pid, "stat").decode("utf-8", "replace").rpartition(")")[2].split()
    return None if not fields or fields[0] in _ENDED_STATES else fields


def _start_time(fields: list[str]) -> str:
    return f"{_boot_id()}:{fields[19]}"


@cache
def _boot_id() -> str:
    """The boot id: start times count from boot, so they are unique only together with it."""
    return (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text("ascii").strip()


def read_marker(pid: int) -> str | None:
    """The run in the environment of a process; None if there is none, or it must not be inspected."""
    environment = b"\0" + _read_file(pid, "environ")
    _, found, rest = environment.partition(f"\0{AGENT_MARKER}=".encode())
    return rest.partition(b"\0")[0].decode("utf-8", "replace") if found else None


def _read_file(pid: int, name: str) -> bytes:
    """Read a file of /proc/PID; empty if the process has ended or must not be inspected. Called for every process."""
    try:
        handle = os.open(f"{_PROC}/{pid}/{name}", os.O_RDONLY)
    except OSError:
        return b""
    content = []
    try:
        while chunk := os.read(handle, 1 << 16):
            content.append(chunk)
    except OSError:
        return b""
    finally:
        os.close(handle)
    return b"".join(content)
