"""The executor `command`: any program as an agent."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import ExecutorFailure, LimitReached
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint, Limits
from fidelio.orchestrator.executors.command import CommandExecutor
from fidelio.orchestrator.executors.contract import Turn, TurnResult
from fidelio.processes.spooled import find_marked
from tests.orchestrator.executors.recording import SECONDS, RecordingReporter, make_turn
from tests.support import proves


def commanded(*command: str, resume: tuple[str, ...] = (), **more: Any) -> Blueprint:
    options = {"command": list(command), **({"resume_command": list(resume)} if resume else {})}
    return Blueprint(name="a", description="", executor="command", options=options, **more)


async def carry_out(turn: Turn, reporter: RecordingReporter) -> TurnResult:
    async with asyncio.timeout(SECONDS):
        finished = await CommandExecutor().carry_out(turn, reporter)
    assert find_marked(turn.run) == []
    return finished


@proves("command.turn")
async def test_the_prompt_goes_in_and_the_result_comes_out(tmp_path: Path, reporter: RecordingReporter) -> None:
    turn = make_turn(tmp_path, "hello; $(rm -rf /) é\n", blueprint=commanded("tr", "a-z", "A-Z"))

    assert await carry_out(turn, reporter) == TurnResult(text="HELLO; $(RM -RF /) é")
    assert reporter.bytes == len("HELLO; $(RM -RF /) é\n".encode())
    assert reporter.conversations == [turn.fresh]


@proves("command.turn")
async def test_no_shell_reads_the_arguments(tmp_path: Path, reporter: RecordingReporter) -> None:
    turn = make_turn(tmp_path, blueprint=commanded("echo", "$HOME", "; ls", "*", "a  b", ""))

    assert (await carry_out(turn, reporter)).text == "$HOME ; ls * a  b "


@proves("command.turn")
async def test_the_system_prompt_comes_before_the_prompt(tmp_path: Path, reporter: RecordingReporter) -> None:
    turn = make_turn(tmp_path, blueprint=commanded("cat", system_prompt="You are brief."))

    assert (await carry_out(turn, reporter)).text == "You are brief.\n\nHello"


@proves("command.turn")
async def test_a_prompt_of_ten_megabytes_is_fine(tmp_path: Path, reporter: RecordingReporter) -> None:
    turn = make_turn(tmp_path, "x" * 10_000_000, blueprint=commanded("wc", "-c"))

    assert (await carry_out(turn, reporter)).text == "10000000"


@proves("command.turn")
async def test_a_program_that_does_not_read_its_prompt_is_fine(tmp_path: Path, reporter: RecordingReporter) -> None:
    turn = make_turn(tmp_path, "x" * 1_000_000, blueprint=commanded("echo", "done"))

    assert (await carry_out(turn, reporter)).text == "done"


@proves("command.failure")
async def test_a_program_that_fails_is_quoted(tmp_path: Path, reporter: RecordingReporter) -> None:
    turn = make_turn(tmp_path, blueprint=commanded("sh", "-c", "echo half; echo 'no key' >&2; exit 2"))

    with pytest.raises(ExecutorFailure) as caught:
        await carry_out(turn, reporter)

    assert caught.value.sentence == "The agent ended with exit 2. It said: no key"
    assert (caught.value.reason, caught.value.partial) == ("exit.2", "half\n")


@proves("command.failure")
async def test_a_missing_program_is_named(tmp_path: Path, reporter: RecordingReporter) -> None:
    with pytest.raises(ExecutorFailure, match="No program called no-such-agent") as caught:
        await carry_out(make_turn(tmp_path, blueprint=commanded("no-such-agent")), reporter)

    assert caught.value.reason == "command-not-found"


@proves("command.failure", "processes.counted")
async def test_a_program_that_prints_too_much_is_ended(tmp_path: Path) -> None:
    turn = make_turn(tmp_path, blueprint=commanded("yes"))

    with pytest.raises(LimitReached):
        await carry_out(turn, RecordingReporter(most_bytes=100_000))

    assert find_marked(turn.run) == []


@proves("command.resume")
async def test_a_conversation_goes_on_with_its_id(tmp_path: Path, reporter: RecordingReporter) -> None:
    blueprint = commanded("echo", "new", "{conversation}", resume=("echo", "again", "--id={conversation}"))
    first = make_turn(tmp_path, blueprint=blueprint)
    assert (await carry_out(first, reporter)).text == f"new {first.fresh}"

    second = make_turn(tmp_path, blueprint=blueprint, conversation=reporter.conversations[-1])

    assert (await carry_out(second, reporter)).text == f"again --id={first.fresh}"
    assert reporter.conversations == [first.fresh, first.fresh]


@proves("command.resume")
async def test_without_a_resume_command_each_turn_stands_alone(tmp_path: Path, reporter: RecordingReporter) -> None:
    turn = make_turn(tmp_path, "second", blueprint=commanded("cat"), conversation="kept")

    assert (await carry_out(turn, reporter)).text == "second"
    assert reporter.conversations == ["kept"]


@proves("command.adopt")
async def test_a_program_that_outlived_its_watcher_is_adopted(tmp_path: Path) -> None:
    go = tmp_path / "go"
    program = f"echo begun; while [ ! -e {go} ]; do sleep 0.01; done; echo done"
    turn = make_turn(tmp_path, blueprint=commanded("sh", "-c", program))
    reporter = RecordingReporter()
    watching = asyncio.create_task(CommandExecutor().carry_out(turn, reporter))
    async with asyncio.timeout(SECONDS):
        await reporter.until(lambda: reporter.bytes)
        reporter.is_detaching = True
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
        adopting = asyncio.create_task(CommandExecutor().adopt(turn, reporter.processes[0], RecordingReporter()))
        go.touch()

        assert await adopting == TurnResult(text="begun\ndone")


@proves("command.turn")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "missing required field `command`"),
        ({"command": "ls -l"}, "Expected `array`, got `str`"),
        ({"command": ["ls"], "shell": True}, "unknown field `shell`"),
        ({"command": []}, "has no name"),
        ({"command": [""]}, "has no name"),
    ],
)
def test_options_that_are_not_right_are_refused(options: dict[str, Any], words: str) -> None:
    (problem,) = CommandExecutor().problems(Blueprint(name="a", description="", options=options))

    assert words in problem


@proves("command.turn")
def test_servers_that_the_program_would_never_see_are_refused() -> None:
    blueprint = commanded("cat", mcp_servers={"x": McpServer(command="x")})

    assert CommandExecutor().problems(commanded("cat")) == ()
    assert CommandExecutor().problems(blueprint)[0].startswith("The executor command cannot give MCP servers")


@proves("command.turn")
async def test_a_python_program_is_an_agent(tmp_path: Path, reporter: RecordingReporter) -> None:
    program = "import json, sys; print(json.dumps({'said': sys.stdin.read()[::-1]}))"
    turn = make_turn(tmp_path, "abc", blueprint=commanded(sys.executable, "-c", program))

    assert json.loads((await carry_out(turn, reporter)).text) == {"said": "cba"}
    assert (await CommandExecutor().availability()).works


@proves("orchestrator.result-error")
async def test_printed_output_is_recorded_when_a_program_is_stopped(tmp_path: Path, reporter: RecordingReporter) -> None:
    program = "trap 'echo the end; exit 1' TERM; echo half; while :; do sleep 0.01; done"
    working = asyncio.create_task(
        CommandExecutor().carry_out(make_turn(tmp_path, blueprint=commanded("sh", "-c", program)), reporter)
    )
    async with asyncio.timeout(SECONDS):
        await reporter.until(lambda: reporter.bytes)
        working.cancel()
        await asyncio.wait({working})

    assert working.cancelled()
    assert reporter.texts == ["half\nthe end\n"]


@proves("orchestrator.result-error")
async def test_printed_output_is_recorded_when_it_exceeds_the_limit(tmp_path: Path) -> None:
    blueprint, reporter = commanded("yes", limits=Limits(output_bytes=1_000)), RecordingReporter(most_bytes=1_000)

    with pytest.raises(LimitReached):
        await carry_out(make_turn(tmp_path, blueprint=blueprint), reporter)

    assert reporter.texts == ["y\n" * 500]


@proves("orchestrator.checked-start")
@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("no-such-agent", "No program called no-such-agent"),
        ("/no/such/agent", "There is no program /no/such/agent"),
        ("/dev/null", "There is no program /dev/null"),
    ],
)
def test_a_missing_program_is_reported_before_a_session_begins(program: str, problem: str) -> None:
    (first,) = CommandExecutor().problems(commanded(program))
    (again,) = CommandExecutor().problems(commanded("cat", resume=(program,)))

    assert first.startswith(problem)
    assert again.startswith(problem)


@proves("orchestrator.checked-start")
def test_a_program_is_looked_for_on_the_path_of_the_blueprint(tmp_path: Path) -> None:
    program = tmp_path / "my-agent"
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)

    assert CommandExecutor().problems(commanded("my-agent", environment={"PATH": str(tmp_path)})) == ()
    assert len(CommandExecutor().problems(commanded("my-agent"))) == 1
    assert CommandExecutor().problems(commanded("./in-the-project")) == ()
