"""Commands through the tools: what is committed when, what stays, and what happens when something else happens."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest

from fidelio.errors import SandboxLost, SandboxUnavailable
from fidelio.runtime import events as e
from fidelio.sandbox.model import ActionResult
from tests.runtime.shell.double import ShellDouble
from tests.runtime.support import ToolBench, fail, open_context, start_session
from tests.support import proves


async def count_commits(bench: ToolBench, tool: str, **arguments: Any) -> int:
    ledger = bench.context.ledger
    with patch.object(ledger, "commit", AsyncMock(side_effect=ledger.commit)) as commit:
        await bench.use(tool, **arguments)
    return commit.await_count


@proves("runtime.shell-intent-first")
async def test_the_command_is_on_record_before_the_sandbox_gets_it(bench: ToolBench, sandbox: ShellDouble) -> None:
    seen: list[str] = []
    execute = sandbox.replies["exec_persistent_shell"]

    def look(arguments: dict[str, Any]) -> Any:
        seen.append(arguments["commandId"])
        return execute(arguments)

    sandbox.replies["exec_persistent_shell"] = look
    result = await bench.use("shell_exec", command="print hello")
    started, ended = await bench.events(e.COMMAND_STARTED, e.COMMAND_ENDED)

    assert seen == [started.body["command_id"]] == [ended.body["command_id"]] == [result["commandId"]]
    assert started.body["command"] == "print hello"
    assert ended.body["stdout"]["text"] == result["output"]["stdout"] == "hello"
    assert [each.type for each in await bench.events()].index(e.TOOL_USE) < started.seq


@proves("runtime.shell-cheap")
async def test_a_command_in_an_open_shell_is_two_commits_and_one_action(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_exec", command="print one")
    sandbox.calls.clear()

    assert await count_commits(bench, "shell_exec", command="print two") == 2
    assert sandbox.actions == ["exec_persistent_shell"]


@proves("runtime.shell-cheap")
@pytest.mark.parametrize(("tool", "arguments"), [("shell_run", {"command": "print one"}), ("bash", {"command": "pwd"})])
async def test_other_commands_need_one_action_too(
    bench: ToolBench, sandbox: ShellDouble, tool: str, arguments: dict[str, Any]
) -> None:
    await bench.use("shell_exec", command="print one")
    sandbox.calls.clear()

    assert await count_commits(bench, tool, **arguments) <= 2
    assert len(sandbox.actions) == 1


@proves("runtime.shell-durable")
async def test_cd_and_export_stay_for_every_later_command(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_exec", command="cd /workspace/src; export COLOUR=blue")

    one_shot = await bench.use("shell_run", command="pwd; env")
    sandbox.crash(bench.session)
    after = await bench.use("shell_exec", command="pwd; env")

    assert "/workspace/src\n" in one_shot["output"]["stdout"]
    assert "COLOUR=blue" in one_shot["output"]["stdout"]
    assert "/workspace/src\n" in after["output"]["stdout"]
    assert "COLOUR=blue" in after["output"]["stdout"]


@proves("runtime.shell-durable")
async def test_a_shell_that_died_between_calls_is_replaced_where_it_was(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_exec", command="cd /workspace/src; export COLOUR=blue")
    sandbox.kill_shell()
    sandbox.calls.clear()

    result = await bench.use("shell_exec", command="pwd; env")
    closed, opened = (await bench.events(e.SHELL_CLOSED, e.SHELL_OPEN))[-2:]

    assert result["output"]["stdout"].startswith("COLOUR=blue") or "COLOUR=blue" in result["output"]["stdout"]
    assert "/workspace/src\n" in result["output"]["stdout"]
    assert sandbox.actions == ["exec_persistent_shell"]
    assert (closed.body["reason"], closed.body["shell_id"]) == ("shell_exited", "shell_1")
    assert opened.body["shell_id"] == "shell_2"


@proves("runtime.shell-running")
async def test_a_long_command_returns_running_and_is_waited_for(bench: ToolBench, sandbox: ShellDouble) -> None:
    running = await bench.use("shell_exec", command="print part; sleep")
    waiting = await bench.use("shell_wait", timeoutMs=5)
    sandbox.finish(" rest", then="cd /tmp; export COLOUR=red")
    done = await bench.use("shell_wait", commandId=running["commandId"])
    again = await bench.use("shell_wait", commandId=running["commandId"])

    assert running["status"] == waiting["status"] == "running"
    assert running["nextStep"]["args"]["commandId"] == waiting["busyPlan"]["args"]["commandId"] == running["commandId"]
    assert waiting["result"]["stdout"] == "part"
    assert done["status"] == again["status"] == "completed"
    assert done["result"]["stdout"] == again["result"]["stdout"] == "part rest"
    assert done["cwd"] == "/tmp"
    assert (await bench.record()).shell.variables.keys() == {"COLOUR"}
    assert len(await bench.events(e.COMMAND_ENDED)) == 1


@proves("runtime.shell-running")
async def test_a_long_one_shot_is_waited_for_by_its_id(bench: ToolBench, sandbox: ShellDouble) -> None:
    running = await bench.use("shell_run", command="sleep", timeoutMs=60_000)
    sandbox.finish("done", 3)
    done = await bench.use("shell_wait", commandId=running["commandId"])

    assert running["status"] == "running"
    assert (done["status"], done["result"]["exitCode"], done["result"]["stdout"]) == ("completed", 3, "done")


@proves("runtime.shell-busy")
async def test_a_busy_shell_refuses_a_second_command_before_anybody_is_asked(bench: ToolBench, sandbox: ShellDouble) -> None:
    running = await bench.use("shell_exec", command="sleep")
    error = await bench.refuse("shell_exec", command="print two")

    assert (error["code"], error["retryable"]) == ("shell_busy", True)
    assert running["commandId"] in error["message"]
    assert sandbox.runs == ["sleep"]
    assert len(await bench.events(e.COMMAND_STARTED)) == 1


@proves("runtime.shell-busy")
async def test_of_two_callers_at_once_one_runs_and_the_other_gets_the_plan(bench: ToolBench, sandbox: ShellDouble) -> None:
    first, second = await bench.prepare("shell_exec", command="sleep"), await bench.prepare("shell_exec", command="sleep")
    await first.commit_intent()
    await second.commit_intent()
    ran = await first.commit(await first.run())
    refused = await second.commit(await second.run())
    record = await bench.record()

    assert (ran.is_error, refused.is_error) == (False, True)
    assert refused.output["error"]["code"] == "shell_busy"
    assert refused.output["busyPlan"]["args"]["commandId"] == ran.output["commandId"]
    assert len(sandbox.runs) == 1
    assert [command.state for command in record.shell.commands] == ["refused", "running"]
    assert record.shell.running is not None


@proves("runtime.shell-busy")
async def test_many_callers_at_once_never_run_two_commands_in_one_shell(bench: ToolBench, sandbox: ShellDouble) -> None:
    results = await asyncio.gather(*(bench.try_tool("shell_exec", command="sleep") for _ in range(8)))

    assert [result.is_error for result in results].count(False) == 1
    assert len(sandbox.runs) == 1


@proves("runtime.shell-busy")
async def test_a_command_that_ended_meanwhile_does_not_block_the_next(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_exec", command="sleep")
    sandbox.finish("late", then="cd /tmp")
    after = await bench.use("shell_exec", command="pwd")
    record = await bench.record()

    assert after["output"]["stdout"] == "/tmp\n"
    assert [command.stdout for command in record.shell.commands] == ["/tmp\n", "late"]


@proves("runtime.shell-once")
async def test_a_call_that_was_cut_off_is_found_again_and_not_repeated(bench: ToolBench, sandbox: ShellDouble) -> None:
    cut_off = await bench.prepare("shell_exec", command="cd /tmp; print once")
    await cut_off.commit_intent()
    await cut_off.run()

    found = await bench.use("shell_read_last_output")

    assert sandbox.runs == ["cd /tmp; print once"]
    assert found["lastCommand"]["stdout"] == "once"
    assert found["cwd"] == "/tmp"
    assert (await bench.record()).shell.running is None


@proves("runtime.shell-truth")
async def test_a_command_whose_sandbox_was_lost_is_lost_on_record(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_exec", command="cd /tmp")
    execute = sandbox.replies["exec_persistent_shell"]

    def crash(arguments: dict[str, Any]) -> Any:
        execute(arguments)
        sandbox.crash(bench.session)
        raise SandboxLost("The sandbox ended.")

    sandbox.replies["exec_persistent_shell"] = crash
    error = await bench.refuse("shell_exec", command="print unknown")
    described = await bench.use("shell_describe")

    assert error["code"] == "sandbox.lost"
    assert described["shellState"]["recentCommands"][0]["status"] == "lost"
    assert described["persistentShell"]["status"] == "closed"
    assert described["persistentShell"]["closedBecause"] == "sandbox_ended"
    assert described["recoveryPlan"]["tool"] == "shell_restart"
    assert described["cwd"] == "/tmp"


@proves("runtime.shell-truth")
async def test_a_command_that_never_ran_says_so(bench: ToolBench, sandbox: ShellDouble) -> None:
    def refuse(_: dict[str, Any]) -> ActionResult:
        raise SandboxUnavailable("No sandbox can be started.")

    sandbox.replies["run_shell"] = refuse
    await bench.refuse("shell_run", command="print x")

    assert (await bench.record()).shell.commands[0].state == "refused"
    assert (await bench.use("shell_read_last_output"))["lastCommand"] is None


@proves("runtime.shell-truth")
@pytest.mark.parametrize("tool", ["shell_exec", "shell_run"])
async def test_a_missing_directory_refuses_the_command_and_says_what_to_do(
    bench: ToolBench, sandbox: ShellDouble, tool: str
) -> None:
    await bench.use("shell_exec", command="cd /workspace/src")
    sandbox.directories.remove("/workspace/src")
    result = await bench.try_tool(tool, command="print x")

    assert result.is_error
    assert result.output["error"]["code"] == "cwd_unavailable"
    assert result.output["nextStep"]["tool"] == "shell_set_cwd"
    assert "print x" not in sandbox.runs
    await bench.use("shell_set_cwd", path="/workspace")
    assert (await bench.use(tool, command="pwd"))["output"]["stdout"] == "/workspace\n"


@proves("runtime.shell-truth")
async def test_exit_ends_the_shell_and_the_record_says_so(bench: ToolBench) -> None:
    await bench.use("shell_exec", command="cd /tmp; export COLOUR=blue")
    result = await bench.use("shell_exec", command="exit 3")
    shell = (await bench.record()).shell

    assert (result["status"], result["output"]["exitCode"]) == ("completed", 3)
    assert result["output"]["shellState"]["persistentShell"]["status"] == "closed"
    assert (shell.is_open, shell.closed_because, shell.cwd) == (False, "shell_exited", "/tmp")
    assert shell.variables.keys() == {"COLOUR"}


@proves("runtime.shell-truth")
async def test_a_restart_ends_the_running_command_and_runs_the_new_one(bench: ToolBench, sandbox: ShellDouble) -> None:
    running = await bench.use("shell_exec", command="sleep")
    result = await bench.use("shell_exec", command="print two", restart=True)
    first = await bench.use("shell_read_command", commandId=running["commandId"])

    assert result["output"]["stdout"] == "two"
    assert first["command"]["status"] == "lost"
    assert (await bench.record()).shell.shell_id == "shell_2"


@proves("runtime.shell-output")
async def test_a_large_output_is_stored_whole_and_previewed_in_the_record(bench: ToolBench, sandbox: ShellDouble) -> None:
    text = "é" * 40_000
    result = await bench.use("shell_exec", command=f"print {text}", maxOutputChars=40_000)
    read = await bench.use("shell_read_command", commandId=result["commandId"])
    listed = await bench.use("shell_history")
    record = await bench.record()

    assert read["command"]["stdout"] == text
    assert read["command"]["command"] == f"print {text}"
    assert len(listed["commands"][0]["stdoutPreview"]) == 400
    assert len(record.shell.commands[0].stdout) == len(record.shell.commands[0].command) == 400


@proves("runtime.shell-output")
@pytest.mark.parametrize("text", ["nul \0 inside", "half \ud800 of a character", "bell \a and \x1b[31mred"])
async def test_output_that_no_database_takes_is_made_valid(bench: ToolBench, sandbox: ShellDouble, text: str) -> None:
    execute: Any = sandbox.replies["exec_persistent_shell"]
    sandbox.replies["exec_persistent_shell"] = lambda arguments: {**execute(arguments), "stdout": text}

    result = await bench.use("shell_exec", command="print x")
    read = await bench.use("shell_read_command", commandId=result["commandId"])

    assert read["command"]["stdout"].startswith(text[:4])
    assert (await bench.use("shell_history"))["count"] == 1


@proves("runtime.shell-output")
@pytest.mark.parametrize(
    "reply",
    [{"status": "sideways"}, {"stdout": 3}, {"environment": ["x"]}, {"exitCode": "0"}, {"shell": {"alive": "yes"}}],
)
async def test_a_reply_of_another_form_is_an_error_and_not_a_crash(
    bench: ToolBench, sandbox: ShellDouble, reply: dict[str, Any]
) -> None:
    sandbox.replies["exec_persistent_shell"] = lambda _: reply

    assert (await bench.refuse("shell_exec", command="print x"))["code"] == "bad_reply"
    assert (await bench.record()).shell.running is not None


@proves("runtime.shell-bash")
async def test_bash_is_in_the_history_and_never_moves_the_shell(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_set_cwd", path="/workspace/src")
    result = await bench.use("bash", command="ls", args=["-l"], cwd="/tmp")
    (listed,) = (await bench.use("shell_history"))["commands"]

    assert result["output"]["stdout"] == "done\n"
    assert (listed["tool"], listed["command"], listed["args"], listed["cwd"]) == ("bash", "ls", ["-l"], "/tmp")
    assert (await bench.record()).shell.cwd == "/workspace/src"
    assert dict(sandbox.calls)["run_command"]["argv"] == ["/usr/bin/ls", "-l"]


@proves("runtime.shell-bash")
@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "rm", "args": ["-rf", "/"]},
        {"command": "wc", "args": ["--files0-from=/etc/passwd"]},
        {"command": "find", "args": [".", "-exec", "sh", "{}", ";"]},
        {"command": "tail", "args": ["-f", "x"]},
        {"command": "ls; id"},
    ],
)
async def test_bash_refuses_everything_else_without_a_sandbox(
    bench: ToolBench, sandbox: ShellDouble, arguments: dict[str, Any]
) -> None:
    await bench.refuse("bash", **arguments)

    assert sandbox.starts == []


@proves("runtime.shell-level")
@pytest.mark.parametrize("tool", ["shell_exec", "shell_run", "bash", "shell_open"])
async def test_a_level_without_commands_refuses_them_before_anybody_is_asked(tmp_path: Path, tool: str) -> None:
    arguments = {} if tool == "shell_open" else {"command": "pwd"}
    async with open_context(tmp_path, ShellDouble(level="landlock")) as context:
        bench = await start_session(context, tmp_path)

        error = await bench.refuse(tool, **arguments)

        assert error["code"] == "commands_not_offered"
        assert "Install bubblewrap." in error["message"]
        assert await bench.events(e.COMMAND_STARTED) == ()


@proves("runtime.shell-truth")
async def test_an_unknown_failure_of_the_sandbox_is_passed_on(bench: ToolBench, sandbox: ShellDouble) -> None:
    sandbox.replies["exec_persistent_shell"] = lambda _: fail("internal_error", "It broke.")

    assert (await bench.refuse("shell_exec", command="print x"))["code"] == "internal_error"
    assert (await bench.record()).shell.commands[0].state == "refused"
