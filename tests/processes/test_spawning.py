"""Agents as processes: started once, read to the end, and known by how they ended."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import ExecutorFailure, LimitReached
from fidelio.orchestrator.executors.contract import Turn, process_options
from fidelio.processes.spool import OutputLineSplitter, read_chunks
from fidelio.processes.spooled import ProcessExit, spawn
from fidelio.processes.table import ProcessIdentity
from tests.orchestrator.executors.recording import SECONDS, RecordingReporter, make_turn
from tests.support import proves

PRINT_ENVIRONMENT = "import os, json; print(json.dumps(dict(os.environ)))"


async def output(argv: list[str], turn: Turn, reporter: RecordingReporter, stdin: bytes = b"") -> tuple[list[str], ProcessExit]:
    async with asyncio.timeout(SECONDS), await spawn(argv, process_options(turn, reporter), stdin=stdin) as process:
        return [line async for line in process.lines()], await process.wait_for_exit()


async def run_python(program: str, turn: Turn, reporter: RecordingReporter) -> tuple[list[str], ProcessExit]:
    return await output([sys.executable, "-c", program], turn, reporter)


@proves("processes.output", "processes.exit")
async def test_what_goes_in_comes_out_line_by_line(turn: Turn, reporter: RecordingReporter) -> None:
    lines, exit_ = await output(["cat"], turn, reporter, b"one\n\nthree\n")

    assert lines == ["one", "", "three"]
    assert exit_ == ProcessExit(0)


@proves("processes.output")
async def test_a_last_line_without_an_end_and_bytes_that_are_no_text_are_read(turn: Turn, reporter: RecordingReporter) -> None:
    lines, _ = await output(["cat"], turn, reporter, b"caf\xc3\xa9\r\n\xff\xfe\nlast")

    assert lines == ["café", "\ufffd\ufffd", "last"]


@proves("processes.output")
async def test_a_line_is_read_while_the_agent_still_works(turn: Turn, reporter: RecordingReporter) -> None:
    async with (
        asyncio.timeout(SECONDS),
        await spawn(["sh", "-c", "echo first; sleep 600"], process_options(turn, reporter)) as process,
    ):
        assert await anext(process.lines()) == "first"
        assert process.is_running()


@proves("processes.output")
async def test_a_long_line_is_whole_and_the_next_is_too(turn: Turn, reporter: RecordingReporter) -> None:
    program = "import sys; sys.stdout.write('x' * 50_000_000); print(); print('after')"

    lines, _ = await run_python(program, turn, reporter)

    assert [len(line) for line in lines] == [50_000_000, 5]
    assert reporter.bytes == 50_000_007


@proves("processes.output", "processes.counted")
async def test_a_hundred_megabytes_are_read_without_being_kept(turn: Turn, reporter: RecordingReporter) -> None:
    program = "import sys\nfor _ in range(1000): sys.stdout.write(('y' * 999 + '\\n') * 100)"
    count = 0
    async with (
        asyncio.timeout(SECONDS),
        await spawn([sys.executable, "-c", program], process_options(turn, reporter)) as process,
    ):
        async for line in process.lines():
            assert len(line) == 999
            count += 1

    assert (count, reporter.bytes) == (100_000, 100_000_000)


@proves("processes.counted")
@pytest.mark.parametrize("stream", [1, 2], ids=["printed", "complained"])
async def test_an_agent_that_never_stops_talking_is_ended_at_its_limit(turn: Turn, stream: int) -> None:
    reporter = RecordingReporter(most_bytes=1_000_000)

    with pytest.raises(LimitReached):
        await output(["sh", "-c", f"exec cat /dev/zero >&{stream}"], turn, reporter)


@proves("processes.output")
@given(st.lists(st.binary(max_size=12)))
def test_lines_are_the_same_however_they_arrive(pieces: list[bytes]) -> None:
    lines = OutputLineSplitter()
    got = [line for piece in pieces for line in lines.feed(piece)] + lines.flush()

    whole = b"".join(pieces).split(b"\n")
    expected = whole if whole[-1] else whole[:-1]
    assert got == [part.decode("utf-8", "replace").removesuffix("\r") for part in expected]


@proves("processes.output")
async def test_what_is_written_just_before_the_end_is_read(tmp_path: Path) -> None:
    growing = tmp_path / "output"
    growing.touch()

    def writes_and_ends() -> bool:
        growing.write_bytes(b"last words")
        return True

    with growing.open("rb") as file:
        assert b"".join([chunk async for chunk in read_chunks(file, writes_and_ends)]) == b"last words"


@proves("processes.exit", "processes.failure")
@pytest.mark.parametrize(
    ("program", "code", "reason"),
    [
        ("exit 3", 3, "exit.3"),
        ("kill -9 $$", 137, "signal.SIGKILL"),
        ("kill -SEGV $$", 139, "signal.SIGSEGV"),
        ("kill -TERM $$", 143, "signal.SIGTERM"),
        ("exit 250", 250, "exit.250"),
    ],
)
async def test_how_an_agent_ended_is_recorded(
    turn: Turn, reporter: RecordingReporter, program: str, code: int, reason: str
) -> None:
    _, exit_ = await output(["sh", "-c", program], turn, reporter)

    assert (exit_, exit_.reason, exit_.ok) == (ProcessExit(code), reason, False)


@proves("processes.exit")
async def test_an_agent_killed_together_with_its_shell_has_vanished(turn: Turn, reporter: RecordingReporter) -> None:
    _, exit_ = await output(["sh", "-c", "kill -9 $PPID; sleep 600"], turn, reporter)

    assert (exit_, exit_.reason) == (ProcessExit(None), "vanished")


@proves("processes.failure")
async def test_a_failure_carries_the_end_of_what_the_agent_complained_about(turn: Turn, reporter: RecordingReporter) -> None:
    program = "i=0; while [ $i -lt 500 ]; do echo noise $i >&2; i=$((i+1)); done; echo 'no key' >&2; exit 4"
    async with asyncio.timeout(SECONDS), await spawn(["sh", "-c", program], process_options(turn, reporter)) as process:
        failure = process.failure(await process.wait_for_exit(), partial="half")

    assert failure.sentence.startswith("The agent ended with exit 4. It said: ")
    assert failure.sentence.endswith("noise 499\nno key")
    assert "noise 100" not in failure.sentence
    assert (failure.reason, failure.partial) == ("exit.4", "half")


@proves("processes.environment")
async def test_an_agent_gets_the_environment_of_its_turn_and_the_mark(
    turn: Turn, reporter: RecordingReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "hush")

    lines, _ = await run_python(PRINT_ENVIRONMENT, turn, reporter)

    assert "hush" not in lines[0]
    assert f'"FIDELIO_AGENT": "{turn.run}"' in lines[0]
    assert '"LANG": "C.UTF-8"' in lines[0]


@proves("processes.environment")
async def test_a_turn_cannot_pretend_to_be_another_run(tmp_path: Path, reporter: RecordingReporter) -> None:
    turn = make_turn(tmp_path, environment={"PATH": os.defpath, "FIDELIO_AGENT": "other"})

    lines, _ = await run_python("import os; print(os.environ['FIDELIO_AGENT'])", turn, reporter)

    assert lines == [turn.run]


@proves("processes.held")
async def test_an_agent_begins_only_when_its_identity_is_recorded(turn: Turn, reporter: RecordingReporter) -> None:
    began = turn.directory / "began"
    seen: list[bool] = []
    reporter.on_process = lambda _: seen.append(began.exists())

    await output(["touch", str(began)], turn, reporter)

    assert (seen, began.exists()) == ([False], True)


@proves("processes.held", "processes.stop")
async def test_an_agent_whose_identity_could_not_be_recorded_never_begins(turn: Turn, reporter: RecordingReporter) -> None:
    began = turn.directory / "began"

    def refuse(_: ProcessIdentity) -> None:
        raise OSError("the disk is full")

    reporter.on_process = refuse
    with pytest.raises(OSError, match="disk is full"):
        await spawn(["touch", str(began)], process_options(turn, reporter))

    assert not began.exists()


@proves("processes.held")
async def test_an_agent_that_was_killed_before_it_began_has_vanished(turn: Turn, reporter: RecordingReporter) -> None:
    reporter.on_process = lambda identity: os.kill(identity.pid, signal.SIGKILL)

    lines, exit_ = await output(["echo", "hello"], turn, reporter)

    assert (lines, exit_) == ([], ProcessExit(None))


@proves("processes.start")
@pytest.mark.parametrize(
    ("command", "reason", "words"),
    [
        ("no-such-program", "command-not-found", "No program called no-such-program"),
        ("./no-such-program", "command-not-found", "There is no program"),
        ("./plain", "not-executable", "may not be executed"),
        (".", "command-not-found", "No program called ."),
    ],
)
async def test_a_program_that_cannot_be_run_is_named(
    turn: Turn, reporter: RecordingReporter, command: str, reason: str, words: str
) -> None:
    (turn.directory / "plain").write_text("#!/bin/sh\n", "utf-8")

    with pytest.raises(ExecutorFailure, match=words) as caught:
        await spawn([command], process_options(turn, reporter))

    assert (caught.value.reason, reporter.processes) == (reason, [])


@proves("processes.start")
async def test_a_program_that_is_no_program_fails_with_a_status(turn: Turn, reporter: RecordingReporter) -> None:
    program = turn.directory / "broken"
    program.write_text("#!/no/such/interpreter\n", "utf-8")
    program.chmod(0o755)

    _, exit_ = await output(["./broken"], turn, reporter)

    assert exit_.code in {126, 127}


@proves("processes.start")
async def test_a_deleted_directory_is_a_failure(turn: Turn, reporter: RecordingReporter) -> None:
    turn.directory.rmdir()

    with pytest.raises(ExecutorFailure) as caught:
        await spawn(["cat"], process_options(turn, reporter))

    assert caught.value.reason == "no-directory"


@proves("processes.start")
async def test_a_spool_that_cannot_be_made_is_a_failure(turn: Turn, reporter: RecordingReporter) -> None:
    turn.spool.parent.parent.joinpath("spool").write_text("a file is in the way", "utf-8")

    with pytest.raises(ExecutorFailure) as caught:
        await spawn(["cat"], process_options(turn, reporter))

    assert caught.value.reason == "spawn"


@proves("processes.start")
async def test_too_many_arguments_are_a_failure(turn: Turn, reporter: RecordingReporter) -> None:
    with pytest.raises(ExecutorFailure, match="could not be started") as caught:
        await spawn(["echo", "x" * 10_000_000], process_options(turn, reporter))

    assert caught.value.reason == "spawn"


@proves("processes.once")
async def test_what_was_started_once_in_a_run_is_not_started_again(turn: Turn, reporter: RecordingReporter) -> None:
    await output(["cat"], turn, reporter, b"first")

    with pytest.raises(ExecutorFailure) as caught:
        await spawn(["cat"], process_options(turn, reporter), stdin=b"second")

    assert caught.value.reason == "already-started"
    assert (turn.spool / "agent.stdin").read_bytes() == b"first"


@proves("processes.start", "processes.output")
async def test_a_spool_that_vanishes_meanwhile_costs_nothing(turn: Turn, reporter: RecordingReporter) -> None:
    program = f"echo before; rm -r {turn.spool}; echo after"

    lines, exit_ = await output(["sh", "-c", program], turn, reporter)

    assert lines == ["before", "after"]
    assert exit_ == ProcessExit(0)


@proves("processes.output")
async def test_other_users_cannot_read_the_prompt(turn: Turn, reporter: RecordingReporter) -> None:
    await output(["cat"], turn, reporter, b"a secret")

    assert turn.spool.stat().st_mode & 0o077 == 0
