"""Watchers come and go; what an agent does and says does not depend on them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from fidelio.errors import ExecutorFailure
from fidelio.orchestrator.executors.contract import Turn, process_options
from fidelio.processes.ending import wait_until_ended
from fidelio.processes.piped import spawn_piped
from fidelio.processes.spool import Spool
from fidelio.processes.spooled import AGENT, ProcessExit, adopt, find_marked, spawn
from fidelio.processes.table import ProcessIdentity, find_identity
from tests.orchestrator.executors.recording import SECONDS, RecordingReporter, make_turn
from tests.support import proves

# A watcher in a process of its own, which starts an agent, says so and is then killed.
WATCHER = """
import asyncio, sys
from pathlib import Path
from fidelio.orchestrator.executors.contract import process_options
from fidelio.processes.spooled import spawn
from tests.orchestrator.executors.recording import RecordingReporter, make_turn

async def main(directory, run, queue, *argv):
    turn, reporter = make_turn(Path(directory), run=run), RecordingReporter()
    async with await spawn(argv, process_options(turn, reporter), stdin=b"first\\n", queue=queue == "queue") as process:
        async for line in process.lines():
            print(line, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""
REPOSITORY = Path(__file__).parents[2]


def read_recorded_exit(spool: Path) -> ProcessExit | None:
    """The exit status that the shell around an agent has recorded."""
    recorded = Spool(spool / AGENT).exit("")
    return None if recorded.code is None else recorded


async def left_behind(turn: Turn, program: str, *, until: str, queue: bool = False) -> ProcessIdentity:
    """An agent whose watcher was killed as soon as the agent had said `until`."""
    arguments = [str(turn.directory.parent), turn.run, "queue" if queue else "file", "sh", "-c", program]
    watcher = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WATCHER, *arguments), cwd=REPOSITORY, stdout=subprocess.PIPE
    )
    assert watcher.stdout is not None
    async with asyncio.timeout(SECONDS):
        while (line := await watcher.stdout.readline()) != f"{until}\n".encode():
            assert line, "the watcher has ended"
        watcher.kill()
        await watcher.wait()
    return find_marked(turn.run)[0]


@proves("processes.adopt", "processes.marker")
async def test_an_agent_whose_watcher_was_killed_is_read_from_the_beginning_to_its_end(
    turn: Turn, reporter: RecordingReporter
) -> None:
    go = turn.directory / "go"
    program = f"cat; echo begun; while [ ! -e {go} ]; do sleep 0.01; done; echo done; exit 5"
    identity = await left_behind(turn, program, until="begun")

    async with asyncio.timeout(SECONDS), await adopt(identity, process_options(turn, reporter)) as process:
        assert process.is_running()
        go.touch()
        lines = [line async for line in process.lines()]
        exit_ = await process.wait_for_exit()

    assert lines == ["first", "begun", "done"]
    assert exit_ == ProcessExit(5)


@proves("processes.adopt", "processes.exit")
async def test_the_output_of_an_agent_that_ended_without_a_watcher_is_read(turn: Turn, reporter: RecordingReporter) -> None:
    go = turn.directory / "go"
    program = f"echo begun; while [ ! -e {go} ]; do sleep 0.01; done; echo done; kill -9 $$"
    identity = await left_behind(turn, program, until="begun")
    assert read_recorded_exit(turn.spool) is None
    go.touch()
    await wait_until_ended([identity], SECONDS)

    async with asyncio.timeout(SECONDS), await adopt(identity, process_options(turn, reporter)) as process:
        lines = [line async for line in process.lines()]
        exit_ = await process.wait_for_exit()

    assert lines == ["begun", "done"]
    assert exit_ == read_recorded_exit(turn.spool) == ProcessExit(128 + signal.SIGKILL)


@proves("processes.queue", "processes.adopt")
async def test_input_stays_open_when_the_watcher_goes_and_is_taken_from_the_next(
    turn: Turn, reporter: RecordingReporter
) -> None:
    program = "while read -r line; do echo got $line; done; echo end"
    identity = await left_behind(turn, program, until="got first", queue=True)

    lines = []
    async with asyncio.timeout(SECONDS), await adopt(identity, process_options(turn, reporter)) as process:
        await process.write(b"second\n")
        async for line in process.lines():
            lines.append(line)
            if line == "got second":
                await process.write(b"third\n")
                process.close_stdin()
        exit_ = await process.wait_for_exit()

    assert lines == ["got first", "got second", "got third", "end"]
    assert exit_ == ProcessExit(0)


@proves("processes.queue")
async def test_more_than_a_queue_holds_is_written_as_it_is_read(turn: Turn, reporter: RecordingReporter) -> None:
    async with asyncio.timeout(SECONDS):
        async with await spawn(["wc", "-c"], process_options(turn, reporter), stdin=b"x" * 1_000_000, queue=True) as process:
            await process.write(b"y" * 1_000_000)
            process.close_stdin()
            lines = [line async for line in process.lines()]

    assert lines == ["2000000"]


@proves("processes.queue")
async def test_writing_to_an_agent_that_has_ended_ends_too(turn: Turn, reporter: RecordingReporter) -> None:
    async with asyncio.timeout(SECONDS), await spawn(["true"], process_options(turn, reporter), queue=True) as process:
        assert await process.wait_for_exit() == ProcessExit(0)
        await process.write(b"x" * 1_000_000)


@proves("processes.queue")
@pytest.mark.parametrize("first", [b"", b"x" * 200_000])
async def test_an_end_that_comes_at_once_loses_nothing(turn: Turn, reporter: RecordingReporter, first: bytes) -> None:
    async with (
        asyncio.timeout(SECONDS),
        await spawn(["wc", "-c"], process_options(turn, reporter), stdin=first, queue=True) as process,
    ):
        process.close_stdin()
        lines = [line async for line in process.lines()]

    assert lines == [str(len(first))]


@proves("processes.queue", "processes.stop")
async def test_an_agent_that_never_reads_its_input_leaves_no_writing_process(turn: Turn, reporter: RecordingReporter) -> None:
    async with asyncio.timeout(SECONDS):
        process = await spawn(["true"], process_options(turn, reporter), stdin=b"x" * 1_000_000, queue=True)
        assert await process.wait_for_exit() == ProcessExit(0)
        await wait_until_ended(find_marked(turn.run))
        await process.stop()


@proves("processes.queue")
async def test_what_comes_first_is_read_first(turn: Turn, reporter: RecordingReporter) -> None:
    first = b"".join(b"%d\n" % number for number in range(50_000))
    async with (
        asyncio.timeout(SECONDS),
        await spawn(["cat"], process_options(turn, reporter), stdin=first, queue=True) as process,
    ):
        await process.write(b"second\n")
        process.close_stdin()
        lines = [line async for line in process.lines()]

    assert lines == [*(str(number) for number in range(50_000)), "second"]


async def killed_after(seconds: float, turn: Turn, queue: str) -> float:
    """Kills a watcher and waits until its agent, which needs nobody, has ended. How long the watcher lived."""
    program = "read x; echo $x; sleep 0.05; echo end"
    began = time.monotonic()
    watcher = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WATCHER, str(turn.directory.parent), turn.run, queue, "sh", "-c", program),
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
    )
    with suppress(TimeoutError):
        await asyncio.wait_for(watcher.wait(), seconds)
    with suppress(ProcessLookupError):
        watcher.kill()
    await watcher.wait()
    async with asyncio.timeout(SECONDS):
        await wait_until_ended(find_marked(turn.run))
    return time.monotonic() - began


@proves("processes.adopt", "processes.held", "processes.queue")
@pytest.mark.parametrize("queue", ["file", "queue"])
async def test_at_whatever_moment_a_watcher_is_killed_the_agent_never_began_or_is_whole(tmp_path: Path, queue: str) -> None:
    whole = await killed_after(SECONDS, make_turn(tmp_path), queue)
    for _ in range(8):
        turn, reporter, seconds = make_turn(tmp_path), RecordingReporter(), random.uniform(0.3, 1) * whole
        await killed_after(seconds, turn, queue)

        exit_ = read_recorded_exit(turn.spool)
        if exit_ is None:
            printed = turn.spool / "agent.stdout"
            assert not printed.exists() or printed.read_bytes() == b"", seconds
            continue
        async with (
            asyncio.timeout(SECONDS),
            await adopt(ProcessIdentity(1, "gone"), process_options(turn, reporter)) as process,
        ):
            lines = [line async for line in process.lines()]
        assert (exit_, lines) == (ProcessExit(0), ["first", "end"]), seconds


@proves("processes.adopt", "processes.identity")
async def test_a_process_of_another_run_is_not_adopted(turn: Turn, reporter: RecordingReporter) -> None:
    ourselves = find_identity(os.getpid())
    assert ourselves is not None

    with pytest.raises(ExecutorFailure) as caught:
        await adopt(ourselves, process_options(turn, reporter))

    assert caught.value.reason == "not-ours"


@proves("processes.adopt")
async def test_an_agent_whose_output_was_deleted_cannot_be_read(turn: Turn, reporter: RecordingReporter) -> None:
    process = await adopt(ProcessIdentity(2**22 - 1, "long ago:1"), process_options(turn, reporter))

    with pytest.raises(ExecutorFailure) as caught:
        await anext(process.lines())

    assert caught.value.reason == "spool"
    assert read_recorded_exit(turn.spool) is None


@proves("processes.leaving")
async def test_a_watcher_that_detaches_leaves_its_agent_alive(turn: Turn, reporter: RecordingReporter) -> None:
    began = asyncio.Event()

    async def watch() -> None:
        async with await spawn(
            ["sh", "-c", "echo begun; read -r x; echo $x"], process_options(turn, reporter), queue=True
        ) as process:
            assert await anext(process.lines()) == "begun"
            began.set()
            await asyncio.Event().wait()

    watching = asyncio.create_task(watch())
    async with asyncio.timeout(SECONDS):
        await began.wait()
        reporter.is_detaching = True
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching

        async with await adopt(reporter.processes[0], process_options(turn, RecordingReporter())) as process:
            assert process.is_running()
            await process.write(b"still here\n")
            assert [line async for line in process.lines()] == ["begun", "still here"]


@proves("processes.leaving", "processes.held")
async def test_an_agent_that_has_not_begun_ends_with_its_watcher(tmp_path: Path, reporter: RecordingReporter) -> None:
    turn = make_turn(tmp_path)
    reporter.is_detaching = True

    def cancel(_: ProcessIdentity) -> None:
        raise asyncio.CancelledError

    reporter.on_process = cancel
    with pytest.raises(asyncio.CancelledError):
        await spawn(["cat"], process_options(turn, reporter))

    assert find_marked(turn.run) == []


@proves("processes.pipes")
async def test_an_agent_on_pipes_is_talked_to_in_both_directions(turn: Turn, reporter: RecordingReporter) -> None:
    async with asyncio.timeout(SECONDS), await spawn_piped(["cat"], process_options(turn, reporter)) as process:
        process.writer.write(b"hello\n")
        await process.writer.drain()
        assert await process.reader.readline() == b"hello\n"
        assert reporter.processes == [process.identity]
        process.writer.close()
        assert await process.wait_for_exit() == ProcessExit(0)


@proves("processes.pipes", "processes.stop", "processes.failure")
async def test_an_agent_on_pipes_is_stopped_with_its_children(turn: Turn, reporter: RecordingReporter) -> None:
    program = "trap '' TERM; setsid sleep 600 & echo sorry >&2; echo begun; while :; do sleep 600; done"
    async with asyncio.timeout(SECONDS), await spawn_piped(["sh", "-c", program], process_options(turn, reporter)) as process:
        assert await process.reader.readline() == b"begun\n"
        await process.stop(grace=0.1)
        failure = process.failure(await process.wait_for_exit())

    assert str(failure) == "The agent was killed. It said: sorry"
    assert find_marked(turn.run) == []


@proves("processes.pipes")
async def test_an_agent_on_pipes_that_says_too_much_is_held_back_and_stopped(turn: Turn, reporter: RecordingReporter) -> None:
    async with asyncio.timeout(SECONDS), await spawn_piped(["cat", "/dev/zero"], process_options(turn, reporter)) as process:
        assert await process.reader.read(1) == b"\0"


@proves("processes.pipes")
async def test_an_agent_on_pipes_ends_with_its_watcher(turn: Turn) -> None:
    program = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from fidelio.orchestrator.executors.contract import process_options\n"
        "from fidelio.processes.piped import spawn_piped\n"
        "from tests.orchestrator.executors.recording import RecordingReporter, make_turn\n"
        "async def main(directory, run):\n"
        "    process = await spawn_piped(['cat'], process_options(make_turn(Path(directory), run=run), RecordingReporter()))\n"
        "    print(process.identity.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main(*sys.argv[1:]))\n"
    )
    watcher = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, str(turn.directory.parent), turn.run), cwd=REPOSITORY, stdout=subprocess.PIPE
    )
    assert watcher.stdout is not None
    async with asyncio.timeout(SECONDS):
        agent = find_identity(int(await watcher.stdout.readline()))
        assert agent is not None
        watcher.kill()
        await watcher.wait()
        await wait_until_ended([agent])

    assert read_recorded_exit(turn.spool) == ProcessExit(0)
