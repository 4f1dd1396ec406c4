"""Spawning and adopting agent processes that can outlive their watcher.

An agent runs in a process session of its own, with the id of its run in its environment and with a mark. Its input, output and
exit status are files in the spool of the run, so that a later watcher reads exactly what the first would have read. It is held
until its identity is durable; only then does it begin.

    async with await spawn(argv, options, stdin=prompt) as process:  # or `adopt(identity, ...)`
        async for line in process.lines():
            ...
        exit = await process.ended()
        if not exit.ok:
            raise process.failure(exit, partial=...)

Leaving the block ends every process of the run, except when only the watcher itself is shut down (`is_leaving`).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from fidelio.errors import ExecutorFailure
from fidelio.processes.ending import GRACE_SECONDS, end_run_processes, wait_until_ended
from fidelio.processes.spool import (
    FROM_FILE,
    FROM_QUEUE,
    OutputLineSplitter,
    ProcessExit,
    Spool,
    digest_proof,
    exit_from_code,
    make_proof,
    read_chunks,
)
from fidelio.processes.table import (
    AGENT_MARKER,
    ProcessIdentity,
    belongs_to,
    find_identity,
    find_marked,
    is_alive,
    missing_support,
    put_mark,
    require_process_table,
)

__all__ = [
    "AgentProcess",
    "ProcessExit",
    "ProcessOptions",
    "adopt",
    "belongs_to",
    "end_run_processes",
    "find_marked",
    "is_alive",
    "missing_support",
    "spawn",
]

OnProcess = Callable[[ProcessIdentity, str], Awaitable[None]]
OnOutput = Callable[[int], Awaitable[None]]

AGENT = "agent"
_POLL_SECONDS = 0.01
# Children that this process started and no longer watches. They are polled, or they would stay zombies after their end.
_DETACHED: list[subprocess.Popen[bytes]] = []


class ProcessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the process of an agent runs, and callbacks about it.

    `run` is the id of the run that the process is marked with. `spool` is a directory of this run alone. `environment` is
    complete: nothing else is passed on. `on_process` gets the identity and the digest of the secret with which the process
    proves its exit status, and returns once both are durable; until then the process is held. `proof` is that digest, for a
    process that is adopted.
    `on_output` receives the number of bytes that were printed, and may raise when there are too many. `is_leaving` is called
    when the watcher is cancelled: True means that only the watcher ends, and the process lives on to be adopted.
    """

    run: str
    directory: Path
    spool: Path
    environment: Mapping[str, str]
    output_bytes: int
    on_process: OnProcess
    on_output: OnOutput
    is_leaving: Callable[[], bool]
    proof: str = ""


class ProcessHandle:
    """A process of an agent. `identity` is that of the shell around the agent, the leader of its process session."""

    def __init__(self, identity: ProcessIdentity, spool: Spool, options: ProcessOptions) -> None:
        self.identity = identity
        self._spool, self._options = spool, options

    async def __aenter__(self) -> Self:
        return self

    def is_running(self) -> bool:
        return is_alive(self.identity)

    def stderr_tail(self) -> str:
        return self._spool.stderr_tail()

    def failure(self, exit_: ProcessExit, *, partial: str = "") -> ExecutorFailure:
        """The error for an agent that ended without its result."""
        how = "was killed" if exit_.code is None else f"ended with {exit_.reason.replace('.', ' ')}"
        said = self.stderr_tail()
        complaint = f" It said: {said}" if said else " It said nothing about why."
        return ExecutorFailure(f"The agent {how}.{complaint}", reason=exit_.reason, partial=partial)


class AgentProcess(ProcessHandle):
    """A process of an agent, started by this process or adopted; both behave alike."""

    def __init__(self, identity: ProcessIdentity, spool: Spool, options: ProcessOptions) -> None:
        super().__init__(identity, spool, options)
        self._child: subprocess.Popen[bytes] | None = None
        self._stdout: BinaryIO | None = None
        self._stderr_size = 0
        self._input: int | None = None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, asyncio.CancelledError) and self._options.is_leaving():
            self._detach()
            return
        # After an orderly end only processes that the agent left running are ended; a short grace period is enough for them.
        await self.stop(GRACE_SECONDS if self.is_running() else 1.0)

    async def lines(self) -> AsyncIterator[str]:
        """Yield what the agent prints, from the beginning, until it has ended.

        Every byte counts against the limit of the run before it is buffered. So no line is cut: it is whole, or the run ends.
        """
        lines = OutputLineSplitter()
        async for chunk in self._chunks():
            for line in lines.feed(chunk):
                yield line
        for line in lines.flush():
            yield line

    async def text(self) -> str:
        """Everything the agent prints, once it has ended."""
        output = [chunk async for chunk in self._chunks()]
        return b"".join(output).decode("utf-8", "replace")

    def read_output(self) -> str:
        """The output of an agent that was ended, limited to what its run may print."""
        with self._open_output() as file:
            return file.read(self._options.output_bytes).decode("utf-8", "replace")

    async def write(self, data: bytes) -> None:
        """Write more input; only for a process that was spawned with `queue`. Returns early when the agent has ended."""
        if self._input is None:
            self._input = self._open_queue(self._spool.stdin)
        remaining = memoryview(data)
        while remaining and self.is_running():
            size = 0 if self._spool.first.exists() else _write_some(self._input, remaining)
            remaining = remaining[size:]
            if not size:
                # The FIFO is full: the agent reads when it wants to, and asyncio cannot watch a FIFO that has no reader yet.
                await asyncio.sleep(_POLL_SECONDS)

    def close_stdin(self) -> None:
        """Close the input: the agent reads what is queued, and then end of file."""
        self._close_input()
        # Kept open until the process has ended: a FIFO discards unread data when its last descriptor is closed.
        self._input = self._open_queue(self._spool.hold)
        os.write(self._input, b"\n")

    async def wait_for_exit(self) -> ProcessExit:
        await wait_until_ended([self.identity])
        self._reap()
        # Only the parent learns the status from the system.
        code = None if self._child is None else self._child.returncode
        return self._spool.exit(self._options.proof) if code is None else exit_from_code(code)

    async def stop(self, grace: float = GRACE_SECONDS) -> bool:
        """End the agent and everything it started: SIGTERM, `grace` seconds, SIGKILL. False: a process is left."""
        try:
            return await end_run_processes(self._options.run, self.identity, grace=grace)
        finally:
            self._reap()
            self._close()

    async def _chunks(self) -> AsyncIterator[bytes]:
        if self._stdout is None:
            self._stdout = self._open_output()
        self._stdout.seek(0)
        async for chunk in read_chunks(self._stdout, lambda: not self.is_running()):
            if size := len(chunk) + self._count_new_stderr():
                await self._options.on_output(size)
            yield chunk

    def _open_output(self) -> BinaryIO:
        try:
            return self._spool.stdout.open("rb")
        except OSError as error:
            raise ExecutorFailure(
                f"What the agent printed cannot be read: {error.strerror}.", reason="spool", remedy="Resume the session."
            ) from error

    def _count_new_stderr(self) -> int:
        try:
            size = self._spool.stderr.stat().st_size
        except OSError:
            return 0
        more, self._stderr_size = max(0, size - self._stderr_size), size
        return more

    def _open_queue(self, file: Path) -> int:
        try:
            return os.open(file, os.O_RDWR | os.O_NONBLOCK)
        except OSError as error:
            raise ExecutorFailure(f"The agent cannot be given anything: {error.strerror}.", reason="spool") from error

    def _set_child(self, child: subprocess.Popen[bytes]) -> None:
        """Remember the child, which only its parent can reap, and open its output before the agent could delete the file."""
        self._child = child
        self._stdout = self._open_output()

    def _reap(self) -> None:
        """Reap the child if it has ended, so that it does not stay a zombie."""
        if self._child is not None:
            self._child.poll()

    def _detach(self) -> None:
        self._close()
        if self._child is not None:
            _DETACHED.append(self._child)

    def _close(self) -> None:
        if self._stdout is not None:
            self._stdout.close()
        self._close_input()

    def _close_input(self) -> None:
        if self._input is not None:
            os.close(self._input)
            self._input = None


async def spawn(
    argv: Sequence[str],
    options: ProcessOptions,
    *,
    stdin: bytes = b"",
    queue: bool = False,
    environment: Mapping[str, str] | None = None,
    label: str = AGENT,
) -> AgentProcess:
    """Start an agent, once `options.on_process` has recorded its identity.

    `stdin` is all it reads, and with `queue` the first it reads: `write` and `close_stdin` then follow. `environment` is added
    to that of the options. A second process in the same run needs another `label`.
    """
    require_process_table()
    _DETACHED[:] = [child for child in _DETACHED if child.poll() is None]
    command = [find_program(argv[0], options.directory, options.environment), *argv[1:]]
    spool = Spool(options.spool / label)
    child = _start(command, spool, options, stdin, queue=queue, environment=environment or {})
    put_mark(child.pid, options.run)
    identity, proof = find_identity(child.pid), make_proof()
    assert identity is not None, "a held child that is not reaped yet is in the process table"
    process = AgentProcess(identity, spool, options)
    try:
        process._set_child(child)  # noqa: SLF001  # the only place that starts one
        await options.on_process(identity, digest_proof(proof))
        _release(child, proof)
    except BaseException:
        # Also on cancellation: the process is held, and no record names it yet, so no other code could end it.
        _abandon(child)
        await process.stop(0)
        raise
    return process


async def adopt(identity: ProcessIdentity, options: ProcessOptions, *, label: str = AGENT) -> AgentProcess:
    """Watch a process that another watcher started. The output of a process that has ended is read to its end."""
    process = AgentProcess(identity, Spool(options.spool / label), options)
    if process.is_running() and not belongs_to(identity, options.run):
        raise ExecutorFailure(f"Process {identity.pid} was not started for this run.", reason="not-ours")
    return process


def find_program(name: str, directory: Path, environment: Mapping[str, str]) -> str:
    """Find a program on the PATH of the agent. Raises also if the working directory is missing."""
    if not directory.is_dir():
        raise ExecutorFailure(f"The directory {directory} is not there any more.", reason="no-directory")
    return find_executable(name, directory, environment)


def find_executable(name: str, directory: Path, environment: Mapping[str, str]) -> str:
    """Find a program by its path, relative to `directory`, or by its name on the PATH."""
    if "/" in name:
        return _require_executable(directory / name)
    found = shutil.which(name, path=environment.get("PATH", os.defpath))
    if found is None:
        raise ExecutorFailure(
            f"No program called {name} can be run from the PATH of the agent.",
            reason="command-not-found",
            remedy="Install it, or write its whole path.",
        )
    return found


def _require_executable(program: Path) -> str:
    if not program.is_file():
        raise ExecutorFailure(f"There is no program {program}.", reason="command-not-found", remedy="Write its whole path.")
    if not os.access(program, os.X_OK):
        raise ExecutorFailure(f"{program} may not be executed.", reason="not-executable", remedy=f"Run: chmod +x {program}")
    return str(program)


def _write_some(queue: int, data: memoryview) -> int:
    try:
        return os.write(queue, data)
    except BlockingIOError:
        return 0


def _start(
    command: Sequence[str], spool: Spool, options: ProcessOptions, stdin: bytes, *, queue: bool, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    try:
        with spool.create(spool.stdout) as stdout, spool.create(spool.stderr) as stderr:
            spool.prepare(stdin, queue=queue)
            return subprocess.Popen(  # noqa: S603  # the command is passed as arguments, so no shell parses it
                ["/bin/sh", "-c", FROM_QUEUE if queue else FROM_FILE, "fidelio-agent", str(spool.prefix), *command],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                cwd=options.directory,
                env={**options.environment, **environment, AGENT_MARKER: options.run},
                start_new_session=True,
            )
    except OSError as error:
        raise ExecutorFailure(f"The agent could not be started: {error}.", reason="spawn") from error


def _release(child: subprocess.Popen[bytes], proof: str) -> None:
    assert child.stdin is not None
    with suppress(BrokenPipeError):  # it was killed already; reading its output will report that
        child.stdin.write(f"{proof}\n".encode())
        child.stdin.close()


def _abandon(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    with suppress(BrokenPipeError):
        child.stdin.close()
