"""Opening, moving, closing, interrupting the shell, and sending it input."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.runtime import events as e
from tests.runtime.shell.double import ShellDouble
from tests.runtime.support import RefusedPreparation, ToolBench, fail
from tests.support import proves


@proves("runtime.shell-control")
async def test_a_directory_is_set_relative_to_the_durable_one_and_must_exist(bench: ToolBench) -> None:
    moved = await bench.use("shell_set_cwd", path="src")
    back = await bench.use("shell_set_cwd", path="..//./src/..")
    error = await bench.refuse("shell_set_cwd", path="missing")

    assert (moved["cwd"], back["cwd"]) == ("/workspace/src", "/workspace")
    assert error["code"] == "not_found"
    assert (await bench.record()).shell.cwd == "/workspace"


@proves("runtime.shell-control")
@pytest.mark.parametrize("path", ["/nul\0", "/half\ud800", "//etc", "/" + "x/" * 2_000])
async def test_a_directory_that_cannot_be_named_is_refused(bench: ToolBench, path: str) -> None:
    await bench.refuse("shell_set_cwd", path=path)

    assert (await bench.record()).shell.cwd == "/workspace"


@proves("runtime.shell-control")
async def test_the_set_directory_moves_the_live_shell_with_its_next_command(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_exec", command="cd /workspace/src")
    await bench.use("shell_set_cwd", path="/tmp")

    assert (await bench.use("shell_exec", command="pwd"))["output"]["stdout"] == "/tmp\n"


@proves("runtime.shell-control")
async def test_open_starts_a_shell_once_and_uses_it_again(bench: ToolBench) -> None:
    first = await bench.use("shell_open", cwd="/tmp", pty=True)
    again = await bench.use("shell_open")

    assert (first["reused"], again["reused"]) == (False, True)
    assert first["persistentShell"]["shellId"] == again["persistentShell"]["shellId"] == "shell_1"
    assert again["persistentShell"]["pty"] is True
    assert again["cwd"] == "/tmp"
    assert len(await bench.events(e.SHELL_OPEN)) == 1


@proves("runtime.shell-control")
@pytest.mark.parametrize(("tool", "arguments"), [("shell_restart", {}), ("shell_open", {"restart": True})])
async def test_a_restart_ends_what_runs_and_keeps_directory_and_variables(
    bench: ToolBench, tool: str, arguments: dict[str, Any]
) -> None:
    await bench.use("shell_exec", command="cd /tmp; export COLOUR=blue")
    running = await bench.use("shell_exec", command="sleep")
    result = await bench.use(tool, **arguments)
    command = await bench.use("shell_read_command", commandId=running["commandId"])
    after = await bench.use("shell_exec", command="pwd; env")

    assert (result["persistentShell"]["shellId"], result["busyPlan"], result["cwd"]) == ("shell_2", None, "/tmp")
    assert command["command"]["status"] == "lost"
    assert after["output"]["stdout"].startswith("/tmp\nCOLOUR=blue\n")
    assert [each.body["reason"] for each in await bench.events(e.SHELL_CLOSED)] == ["restarted"]


@proves("runtime.shell-control")
async def test_open_in_a_missing_directory_is_refused_and_changes_nothing(bench: ToolBench) -> None:
    for tool in ("shell_open", "shell_restart"):
        await bench.refuse(tool, cwd="/missing")

    shell = (await bench.record()).shell
    assert (shell.cwd, shell.shell_id) == ("/workspace", "")


@proves("runtime.shell-control")
async def test_close_ends_the_shell_and_a_second_close_has_nothing_to_do(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_exec", command="sleep")
    closed = await bench.use("shell_close")
    again = await bench.use("shell_close")
    record = await bench.record()

    assert (closed["closed"], closed["shellId"], again["closed"]) == (True, "shell_1", False)
    assert [command.state for command in record.shell.commands] == ["lost"]
    assert sandbox.actions.count("close_persistent_shell") == 1


@proves("runtime.shell-control")
async def test_an_interrupt_ends_the_command_and_not_the_shell(bench: ToolBench) -> None:
    idle = await bench.use("shell_interrupt")
    running = await bench.use("shell_exec", command="print half; sleep")
    result = await bench.use("shell_interrupt")
    shell = (await bench.record()).shell

    assert (idle["interrupted"], idle["commandId"]) == (False, None)
    assert (result["interrupted"], result["commandId"], result["status"]) == (True, running["commandId"], "completed")
    assert result["result"]["stdout"] == "half"
    assert (shell.is_open, shell.running) == (True, None)
    assert shell.commands[0].exit_code == 130


@proves("runtime.shell-input")
async def test_input_reaches_the_running_command(bench: ToolBench, sandbox: ShellDouble) -> None:
    running = await bench.use("shell_exec", command="sleep")
    result = await bench.use("shell_send_input", text="yes\n", eof=True)

    assert sandbox.inputs == [{"commandId": running["commandId"], "text": "yes\n", "eof": True}]
    assert (result["sent"], result["status"], result["result"]["stdout"]) == (True, "running", "read yes\n")


@proves("runtime.shell-input")
async def test_without_a_running_command_nobody_is_asked(bench: ToolBench) -> None:
    assert (await bench.refuse("shell_send_input", text="x"))["code"] == "shell_idle"
    assert (await bench.refuse("shell_send_input"))["code"] == "empty_input"


@proves("runtime.shell-input")
async def test_what_was_allowed_for_one_command_does_not_reach_another(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_exec", command="sleep")
    allowed = await bench.prepare("shell_send_input", text="rm -rf .\n")
    sandbox.finish()
    await bench.use("shell_wait")
    other = await bench.use("shell_exec", command="sleep")
    second = await bench.prepare("shell_send_input", text="rm -rf .\n")
    await allowed.commit_intent()

    assert allowed.preparation.bound != second.preparation.bound == {"commandId": other["commandId"]}
    assert (await allowed.run()).output["error"]["code"] == "shell_idle"
    assert sandbox.inputs == []


@proves("runtime.shell-input")
async def test_input_that_nobody_reads_is_passed_on_as_a_refusal(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_exec", command="sleep")
    sandbox.replies["send_input"] = lambda _: fail("input_full", "Too much input waits.", retryable=True)

    assert await bench.refuse("shell_send_input", text="x") == {
        "code": "input_full",
        "message": "Too much input waits.",
        "retryable": True,
    }


@proves("runtime.shell-control")
async def test_an_approval_is_bound_to_the_effective_directory(bench: ToolBench) -> None:
    relative = await bench.prepare("shell_run", command="make", cwd="src")
    await bench.use("shell_set_cwd", path="/tmp")
    moved = await bench.prepare("shell_run", command="make", cwd="src")

    assert relative.preparation.bound == {"cwd": "/workspace/src"}
    assert moved.preparation.bound == {"cwd": "/tmp/src"}
    assert relative.preparation.command == "make"


@proves("runtime.shell-control")
async def test_a_person_sees_which_variables_a_command_gets(bench: ToolBench) -> None:
    await bench.use("shell_set_env", key="TOKEN", value="hunter2")
    prepared = await bench.prepare("shell_exec", command="make")

    assert prepared.preparation.about == ("Variables: TOKEN",)
    with pytest.raises(RefusedPreparation):
        await bench.prepare("shell_send_input", text="x")
