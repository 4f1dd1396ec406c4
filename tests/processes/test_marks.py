"""The mark that a process cannot lose: it finds whoever hides, and nobody who is not of the run."""

from __future__ import annotations

import asyncio
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.orchestrator.executors.contract import Turn, process_options
from fidelio.processes.piped import spawn_piped
from fidelio.processes.spooled import belongs_to, end_run_processes, find_marked, is_alive, spawn
from fidelio.processes.table import (
    ProcessIdentity,
    compute_mark,
    find_identity,
    find_run_processes,
    put_mark,
    read_mark,
    send_signal,
)
from tests.orchestrator.executors.recording import SECONDS, RecordingReporter
from tests.support import proves

DAEMON = "(env -i setsid sh -c 'echo $$; exec sleep 600' &) ; cat"
NOT_DUMPABLE = 4
SECRETIVE = (
    "import ctypes, os, time\n"
    "ready, begun = os.pipe()\n"
    "if os.fork(): os._exit(len(os.read(ready, 1)) - 1)\n"
    "os.setsid()\n"
    f"ctypes.CDLL(None).prctl({NOT_DUMPABLE}, 0)\n"
    "print(os.getpid(), flush=True)\n"
    "os.write(begun, b'!')\n"
    "time.sleep(600)\n"
)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that nobody has marked yet, and that shows no environment."""
    with subprocess.Popen(["sleep", "600"], env={}) as process:
        yield process
        process.kill()


def identity(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    found = find_identity(process.pid)
    assert found is not None
    return found


@proves("processes.mark", "processes.pipes")
async def test_a_daemon_of_an_agent_on_pipes_is_stopped(turn: Turn, reporter: RecordingReporter) -> None:
    async with asyncio.timeout(SECONDS), await spawn_piped(["sh", "-c", DAEMON], process_options(turn, reporter)) as process:
        daemon = find_identity(int(await process.reader.readline()))
        assert daemon is not None
        assert belongs_to(daemon, turn.run)

    assert not is_alive(daemon)


@proves("processes.mark")
async def test_a_daemon_whose_watcher_and_shell_have_ended_is_found(turn: Turn, reporter: RecordingReporter) -> None:
    program = "(env -i setsid sh -c 'echo $$; >up; exec sleep 600' &) ; until [ -e up ]; do sleep 0.01; done; kill -9 $PPID"
    async with asyncio.timeout(SECONDS), await spawn(["sh", "-c", program], process_options(turn, reporter)) as process:
        daemon = find_identity(int(await anext(process.lines())))
        await process.wait_for_exit()

        assert daemon is not None
        assert daemon in find_marked(turn.run)
        assert await end_run_processes(turn.run)

    assert not is_alive(daemon)


@proves("processes.mark")
async def test_a_program_that_hides_its_environment_is_stopped(turn: Turn, reporter: RecordingReporter) -> None:
    argv = [sys.executable, "-c", SECRETIVE]
    async with asyncio.timeout(SECONDS), await spawn(argv, process_options(turn, reporter)) as process:
        secretive = find_identity(int(await anext(process.lines())))
        assert secretive is not None

    assert not is_alive(secretive)


@proves("processes.mark", "processes.spare")
def test_a_process_with_the_mark_of_another_run_is_not_ended(turn: Turn, stranger: subprocess.Popen[bytes]) -> None:
    put_mark(stranger.pid, "r_another")
    leader = find_identity(stranger.pid)

    assert find_marked("r_another") == [leader]
    assert find_run_processes(turn.run) == []


@proves("processes.mark")
def test_a_run_of_a_run_has_a_mark_of_its_own(stranger: subprocess.Popen[bytes]) -> None:
    put_mark(stranger.pid, "r_outer")
    put_mark(stranger.pid, "r_inner")

    assert not belongs_to(identity(stranger), "r_outer")
    assert belongs_to(identity(stranger), "r_inner")


@proves("processes.mark", "processes.spare")
@pytest.mark.parametrize("limits", [(200_000, resource.RLIM_INFINITY), (200_000, 200_000), (1 << 60, resource.RLIM_INFINITY)])
def test_a_limit_of_another_program_stays_and_is_no_mark(stranger: subprocess.Popen[bytes], limits: tuple[int, int]) -> None:
    resource.prlimit(stranger.pid, resource.RLIMIT_RTTIME, limits)

    put_mark(stranger.pid, "r_any")

    assert resource.prlimit(stranger.pid, resource.RLIMIT_RTTIME) == limits
    assert not belongs_to(identity(stranger), "r_any")


@proves("processes.mark", "processes.spare")
async def test_a_worker_that_an_agent_has_started_outlives_the_agent(turn: Turn, reporter: RecordingReporter) -> None:
    program = (
        "from pathlib import Path; from fidelio.home import Home\n"
        "from fidelio.orchestrator.runs.host_process import spawn_worker\n"
        f"print(spawn_worker(Home(Path({str(turn.directory)!r}))))"
    )
    async with (
        asyncio.timeout(SECONDS),
        await spawn([sys.executable, "-c", program], process_options(turn, reporter)) as process,
    ):
        worker = find_identity(int(await anext(process.lines())))
        assert worker is not None
        await process.wait_for_exit()

    assert send_signal(worker, signal.SIGKILL)


@proves("processes.mark")
def test_a_process_that_may_not_be_marked_stays_without(stranger: subprocess.Popen[bytes]) -> None:
    stranger.kill()
    stranger.wait(SECONDS)

    put_mark(stranger.pid, "r_any")

    assert read_mark(stranger.pid) is None


@proves("processes.mark")
@given(st.text())
def test_every_run_has_a_mark_that_limits_nothing(run: str) -> None:
    a_year = 365 * 24 * 3600 * 1_000_000

    assert 100 * a_year < compute_mark(run) < resource.RLIM_INFINITY % (1 << 64)
    assert compute_mark(run) == compute_mark(run) != compute_mark(run + "'")
