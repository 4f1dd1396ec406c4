"""Stopping: everything that belongs to a run goes, and nothing else does."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fidelio.errors import ExecutorUnavailable
from fidelio.orchestrator.executors.contract import Turn, process_options
from fidelio.processes import table as processes_table
from fidelio.processes.ending import wait_until_ended
from fidelio.processes.spooled import AgentProcess, belongs_to, end_run_processes, find_marked, is_alive, spawn
from fidelio.processes.table import AGENT_MARKER, ProcessIdentity, find_identity, find_run_processes, send_signal
from tests.orchestrator.executors.recording import SECONDS, RecordingReporter, make_turn
from tests.support import proves

DEAF = "trap '' TERM HUP INT; "
FAMILIES = {
    "one": "echo $$; exec sleep 600",
    "a child": "sleep 600 & echo $!; wait",
    "deaf": DEAF + "echo $$; while :; do sleep 600; done",
    "detached": "setsid sh -c 'echo $$; exec sleep 600' & wait",
    "detached and deaf": f'setsid sh -c "{DEAF} echo \\$\\$; while :; do sleep 600; done" & wait',
    "orphaned": "(setsid sh -c 'echo $$; exec sleep 600' &) ; exec sleep 600",
    "without the mark": "env -i sh -c 'echo $$; exec sleep 600' & wait",
    "detached without the mark": "env -i setsid sh -c 'echo $$; exec sleep 600' & wait",
    "a daemon": "(env -i setsid sh -c 'echo $$; exec sleep 600' &) ; exec sleep 600",
    "a deaf daemon": f'(env -i setsid sh -c "{DEAF} echo \\$\\$; while :; do sleep 600; done" &) ; exec sleep 600',
    "a daemon that survives": "(env -i setsid sh -c 'echo $$; >up; exec sleep 600' &) ; until [ -e up ]; do sleep 0.01; done",
    "survives its parent": "(setsid sh -c 'echo $$; >up; exec sleep 600' &) ; until [ -e up ]; do sleep 0.01; done",
}


@asynccontextmanager
async def family(program: str, turn: Turn, reporter: RecordingReporter) -> AsyncIterator[tuple[AgentProcess, ProcessIdentity]]:
    """An agent, and the process of it that has printed its number."""
    async with asyncio.timeout(SECONDS), await spawn(["sh", "-c", program], process_options(turn, reporter)) as process:
        child = find_identity(int(await anext(process.lines())))
        assert child is not None
        yield process, child


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same user that has nothing to do with any run."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@proves("processes.stop", "processes.marker")
@pytest.mark.parametrize("kind", FAMILIES)
async def test_no_descendant_of_the_agent_is_left(turn: Turn, reporter: RecordingReporter, kind: str) -> None:
    async with family(FAMILIES[kind], turn, reporter) as (process, child):
        assert is_alive(child)

        assert await process.stop(grace=0.2)

        assert not is_alive(child)
        assert not process.is_running()
        assert find_marked(turn.run) == []


@proves("processes.stop")
@pytest.mark.parametrize("kind", ["survives its parent", "detached", "a daemon that survives"])
async def test_leaving_the_block_ends_what_is_left(turn: Turn, reporter: RecordingReporter, kind: str) -> None:
    async with family(FAMILIES[kind], turn, reporter) as (_, child):
        pass

    assert not is_alive(child)


@proves("processes.stop")
async def test_an_agent_gets_sigterm_before_it_is_killed(turn: Turn, reporter: RecordingReporter) -> None:
    goodbye = turn.directory / "goodbye"
    program = f"trap 'touch {goodbye}; exit 7' TERM; echo $$; while :; do sleep 0.01; done"

    async with family(program, turn, reporter) as (process, _):
        await process.stop(grace=SECONDS)
        exit_ = await process.wait_for_exit()

    assert goodbye.exists()
    assert exit_.code == 7


@proves("processes.stop")
async def test_a_process_that_is_started_during_the_grace_period_gets_sigterm_too(
    turn: Turn, reporter: RecordingReporter
) -> None:
    goodbye, late = turn.directory / "goodbye", turn.directory / "late.sh"
    late.write_text(f"trap 'touch {goodbye}; exit' TERM\nwhile :; do sleep 0.01; done", "utf-8")
    program = f"trap 'sh {late} & wait; wait; exit' TERM; echo $$; while :; do sleep 0.01; done"

    async with family(program, turn, reporter) as (process, _):
        await process.stop(grace=SECONDS)

    assert goodbye.exists()


@proves("processes.stop")
async def test_an_agent_that_shows_no_mark_yet_is_stopped_all_the_same(
    turn: Turn, reporter: RecordingReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with family(FAMILIES["a child"], turn, reporter) as (process, child):
        monkeypatch.setattr(processes_table, "read_marker", lambda _: None)
        await process.stop(grace=0.2)

        assert not process.is_running()
        assert not is_alive(child)


@proves("processes.stop")
async def test_a_cancelled_stop_leaves_no_process(turn: Turn, reporter: RecordingReporter) -> None:
    async with family(FAMILIES["deaf"], turn, reporter) as (process, child):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await process.stop(grace=SECONDS)
        await wait_until_ended([process.identity, child], SECONDS)

        assert not is_alive(child)


@proves("processes.stop")
async def test_a_cancelled_executor_leaves_no_process(turn: Turn, reporter: RecordingReporter) -> None:
    began = asyncio.Event()
    children: list[ProcessIdentity] = []

    async def watch() -> None:
        async with family(FAMILIES["detached"], turn, reporter) as (_, child):
            children.append(child)
            began.set()
            await asyncio.Event().wait()

    watching = asyncio.create_task(watch())
    async with asyncio.timeout(SECONDS):
        await began.wait()
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching

    assert not is_alive(children[0])


@proves("processes.stop")
async def test_stopping_twice_and_stopping_nothing_are_fine(turn: Turn, reporter: RecordingReporter) -> None:
    async with family(FAMILIES["one"], turn, reporter) as (process, _):
        assert await process.stop()
        assert await process.stop()

    assert await end_run_processes("r_never_started")


@proves("processes.spare")
async def test_a_run_that_another_run_started_is_not_ended(tmp_path: Path, turn: Turn, reporter: RecordingReporter) -> None:
    # An agent that serves as a host starts agents of its own; those belong to their own runs.
    other = make_turn(tmp_path, run=f"{turn.run}_other")
    program = f"{AGENT_MARKER}={other.run} setsid sh -c 'echo $$; exec sleep 600' & wait"

    async with family(program, turn, reporter) as (process, child):
        await process.stop(grace=0.2)
        assert find_marked(other.run) == [child]

    assert await end_run_processes(other.run)
    assert not is_alive(child)


@proves("processes.spare", "processes.identity")
async def test_an_unrelated_process_is_never_ended(
    turn: Turn, reporter: RecordingReporter, bystander: subprocess.Popen[bytes]
) -> None:
    async with family(FAMILIES["without the mark"], turn, reporter) as (process, child):
        found = {one.pid for one in find_run_processes(turn.run)}

        assert child.pid in found
        assert not found & {bystander.pid, os.getpid(), os.getppid()}
        await process.stop(grace=0.2)

    assert bystander.poll() is None


@proves("processes.spare")
async def test_a_process_that_stops_its_own_run_is_not_ended(turn: Turn) -> None:
    program = (
        "import asyncio, os, sys; from fidelio.processes.spooled import end_run_processes\n"
        f"print(asyncio.run(end_run_processes('{turn.run}', grace=0.1)))"
    )
    environment = {"PATH": os.defpath, AGENT_MARKER: turn.run}
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=SECONDS
    )

    assert done.stdout == "True\n"


@proves("processes.identity")
def test_another_process_with_the_same_number_is_not_touched(bystander: subprocess.Popen[bytes]) -> None:
    real = find_identity(bystander.pid)
    assert real is not None
    boot, _, ticks = real.started.partition(":")
    strangers = [
        ProcessIdentity(bystander.pid, f"{boot}:{int(ticks) - 1}"),
        ProcessIdentity(bystander.pid, f"another-boot:{ticks}"),
        ProcessIdentity(bystander.pid, ""),
    ]

    assert [is_alive(one) for one in strangers] == [False, False, False]
    assert [send_signal(one, signal.SIGKILL) for one in strangers] == [False, False, False]
    assert bystander.poll() is None
    assert is_alive(real)
    assert not belongs_to(real, "r_any")


@proves("processes.identity")
def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        identity = find_identity(process.pid)
        assert identity is not None
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert not is_alive(identity)
        assert not send_signal(identity, signal.SIGTERM)


@proves("processes.identity")
def test_the_name_of_a_program_cannot_forge_its_identity(tmp_path: Path) -> None:
    program = tmp_path / "a) Z 1 1 1 (b"
    program.symlink_to("/bin/sleep")

    with subprocess.Popen([program, "600"]) as process:
        identity = find_identity(process.pid)
        assert identity is not None
        assert is_alive(identity)
        process.kill()


@proves("processes.start")
async def test_where_processes_cannot_be_told_apart_none_is_started(
    turn: Turn, reporter: RecordingReporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes_table, "_PROC", tmp_path)
    processes_table.missing_support.cache_clear()
    try:
        with pytest.raises(ExecutorUnavailable, match="/proc"):
            await spawn(["cat"], process_options(turn, reporter))
    finally:
        processes_table.missing_support.cache_clear()
        monkeypatch.undo()
