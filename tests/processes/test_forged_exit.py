"""An agent that would like to have succeeded: its exit status comes from the process above it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import pytest

from fidelio.orchestrator.executors.contract import Turn, process_options
from fidelio.processes.ending import wait_until_ended
from fidelio.processes.piped import spawn_piped
from fidelio.processes.spool import ProcessExit
from fidelio.processes.spooled import AgentProcess, adopt, spawn
from tests.orchestrator.executors.recording import SECONDS, RecordingReporter
from tests.support import proves

VANISHED = ProcessExit(None)


def forge(turn: Turn, status: str) -> str:
    file = turn.spool / "agent.status"
    return f"echo Done.; echo '{status}' >{file}; kill -9 $PPID; exit 1"


async def adopt_again(process: AgentProcess, turn: Turn, reporter: RecordingReporter) -> AgentProcess:
    """What a host sees that was started later: it is not the parent, and has the digest from the ledger."""
    later = msgspec.structs.replace(turn, proof=reporter.proof)
    return await adopt(process.identity, process_options(later, reporter))


@proves("processes.exit-proven")
@pytest.mark.parametrize("queue", [False, True])
async def test_a_status_that_the_agent_has_written_does_not_count(turn: Turn, reporter: RecordingReporter, queue: bool) -> None:
    argv = ["sh", "-c", forge(turn, "0")]
    async with asyncio.timeout(SECONDS), await spawn(argv, process_options(turn, reporter), queue=queue) as process:
        assert await process.wait_for_exit() == VANISHED


@proves("processes.exit-proven")
async def test_an_agent_on_pipes_cannot_write_its_status(turn: Turn, reporter: RecordingReporter) -> None:
    argv = ["sh", "-c", forge(turn, "0")]
    async with asyncio.timeout(SECONDS), await spawn_piped(argv, process_options(turn, reporter)) as process:
        assert await process.wait_for_exit() == VANISHED


@proves("processes.exit-proven")
@pytest.mark.parametrize("status", ["0", "0 ", "0 proof", "0 $proof", "00", "-0"])
async def test_a_later_host_does_not_believe_the_agent(turn: Turn, reporter: RecordingReporter, status: str) -> None:
    argv = ["sh", "-c", forge(turn, status)]
    async with asyncio.timeout(SECONDS), await spawn(argv, process_options(turn, reporter)) as process:
        await wait_until_ended([process.identity])
        later = await adopt_again(process, turn, reporter)

        assert await later.wait_for_exit() == VANISHED


@proves("processes.exit-proven", "processes.exit")
@pytest.mark.parametrize("code", [0, 7])
async def test_a_later_host_learns_the_status_of_an_honest_agent(turn: Turn, reporter: RecordingReporter, code: int) -> None:
    argv = ["sh", "-c", f"exit {code}"]
    async with asyncio.timeout(SECONDS), await spawn(argv, process_options(turn, reporter)) as process:
        await wait_until_ended([process.identity])
        later = await adopt_again(process, turn, reporter)

        assert await later.wait_for_exit() == await process.wait_for_exit() == ProcessExit(code)


@proves("processes.exit-proven")
async def test_the_secret_is_nowhere_that_the_agent_inherits(turn: Turn, reporter: RecordingReporter) -> None:
    named = msgspec.structs.replace(turn, environment={**turn.environment, "proof": "old"})
    async with (
        asyncio.timeout(SECONDS),
        await spawn(["sh", "-c", "env; kill -9 $$"], process_options(named, reporter)) as process,
    ):
        lines = [line async for line in process.lines()]
        exit_ = await process.wait_for_exit()

    assert exit_ == ProcessExit(128 + signal.SIGKILL)
    assert not [line for line in lines if line.startswith("proof=")]
    # A failure does not disclose it either.
    assert (turn.spool / "agent.status").read_text().split() == [str(exit_.code)]
    assert "proof" not in os.environ
    assert isinstance(turn.spool, Path)
