"""Spawning agent processes that communicate over pipes.

Such an agent does not outlive its watcher: its input ends with the watcher, and the agent with its input. In all other
respects it is a process like the others: same mark, same identity, same end, its stderr in the spool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import BinaryIO

from fidelio.errors import ExecutorFailure
from fidelio.processes.ending import GRACE_SECONDS, end_run_processes
from fidelio.processes.spool import FROM_PIPE, ProcessExit, Spool, digest_proof, exit_from_code, make_proof
from fidelio.processes.spooled import AGENT, ProcessHandle, ProcessOptions, find_program
from fidelio.processes.table import AGENT_MARKER, ProcessIdentity, find_identity, put_mark, require_process_table

_DRAIN_SECONDS = 1.0
_DRAIN_BYTES = 1 << 20


class PipedProcess(ProcessHandle):
    """A process with its two streams. `reader` applies backpressure to an agent that prints more than is read.

    `longest` is the longest line that the reader returns: an agent that prints a longer line has exceeded the limit of its run.
    """

    def __init__(
        self, child: asyncio.subprocess.Process, identity: ProcessIdentity, spool: Spool, options: ProcessOptions
    ) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        super().__init__(identity, spool, options)
        self.reader, self.writer = child.stdout, child.stdin
        self.longest = options.output_bytes
        self._child = child

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def wait_for_exit(self) -> ProcessExit:
        return exit_from_code(await self._child.wait())

    async def stop(self, grace: float = GRACE_SECONDS) -> bool:
        """Close the input, at which most agents exit, and end what is left of the run."""
        self.writer.close()
        try:
            return await end_run_processes(self._options.run, self.identity, grace=grace)
        finally:
            with suppress(BrokenPipeError, ConnectionResetError):
                await self.writer.wait_closed()
            await self._child.wait()
            await self._drain()

    async def _drain(self) -> None:
        """Read the rest of the output: the transport closes its pipe only after end of file."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while await self.reader.read(_DRAIN_BYTES):
                    pass


async def spawn_piped(
    argv: Sequence[str],
    options: ProcessOptions,
    *,
    environment: Mapping[str, str] | None = None,
    label: str = AGENT,
) -> PipedProcess:
    """Start an agent, once `options.on_process` has recorded its identity."""
    require_process_table()
    command = [find_program(argv[0], options.directory, options.environment), *argv[1:]]
    spool = Spool(options.spool / label)
    with spool.create(spool.stderr) as stderr:
        child = await _start(command, spool, options, stderr, environment or {})
    put_mark(child.pid, options.run)
    identity = find_identity(child.pid)
    process = PipedProcess(child, identity or ProcessIdentity(child.pid, "ended"), spool, options)
    try:
        proof = make_proof()
        await options.on_process(process.identity, digest_proof(proof))
        process.writer.write(f"{proof}\n".encode())
    except BaseException:
        # Also on cancellation: no record names this process yet, so no other code could end it.
        await process.stop(0)
        raise
    return process


async def _start(
    command: Sequence[str], spool: Spool, options: ProcessOptions, stderr: BinaryIO, environment: Mapping[str, str]
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", FROM_PIPE, "fidelio-agent", str(spool.prefix), *command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            cwd=options.directory,
            env={**options.environment, **environment, AGENT_MARKER: options.run},
            start_new_session=True,
            limit=options.output_bytes,
        )
    except OSError as error:
        raise ExecutorFailure(f"The agent could not be started: {error}.", reason="spawn") from error
