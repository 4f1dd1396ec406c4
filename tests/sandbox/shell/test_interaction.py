"""Interrupts, input and terminals of the persistent shell."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.sandbox.inside.launching import LaunchOutput, Sandbox
from tests.support import proves

# Prints a line when it has begun, so that nobody has to guess.
_BEGIN = "echo begun; "


async def start(sandbox: Sandbox, command: str, command_id: str = "it") -> None:
    """Start a command in the shell, and return when it has begun."""
    found = await sandbox.execute(_BEGIN + command, commandId=command_id, waitMs=0)
    while "begun" not in found["stdout"]:
        found = await sandbox.wait(commandId=command_id, timeoutMs=20)
        assert found["status"] == "running", found


async def interrupt(sandbox: Sandbox, command_id: str) -> LaunchOutput:
    """Interrupt until the command ends: it may not have started all of its processes, and a person would press again, too."""
    for _ in range(20):
        await sandbox.process.call("interrupt_persistent_shell", {})
        found = await sandbox.wait(commandId=command_id, timeoutMs=500)
        if found["status"] == "completed":
            return found
    raise AssertionError("the command still runs")


@proves("sandbox.shell-interrupt")
@pytest.mark.parametrize(
    "command",
    [
        "sleep 300",
        "while :; do :; done",
        "for i in 1 2 3; do sleep 300; done",
        # The status is that of the last program. Behind `sleep`, cat might see the end of its input first, and succeed.
        "cat | sleep 300",
        "cat",
        "read line",
        "f() { sleep 300; }; f",
        "(sleep 300; sleep 300)",
        "timeout 300 sleep 300",
        "x=$(sleep 300)",
        "bash -c 'sleep 300; sleep 300'",
        "sleep 300 & wait",
    ],
)
async def test_an_interrupt_ends_the_command_and_not_the_shell(bare: Sandbox, command: str) -> None:
    await bare.execute("kept=1")
    await start(bare, f"{command}; echo after\necho next line")
    ended = await interrupt(bare, "it")
    after = await bare.execute("echo kept=$kept")

    assert ended["exitCode"] != 0
    assert "after" not in ended["stdout"]
    assert after["stdout"] == "kept=1\n"
    assert after["shell"]["shellId"] == ended["shell"]["shellId"]


@proves("sandbox.shell-interrupt")
async def test_a_background_process_is_not_interrupted(bare: Sandbox) -> None:
    background = await bare.execute("sleep 300 & echo $!")
    await start(bare, "sleep 300")
    await bare.call("interrupt_persistent_shell")
    await bare.wait(commandId="it")

    assert (await bare.execute(f"kill -0 {background['stdout']}"))["exitCode"] == 0


@proves("sandbox.shell-interrupt")
async def test_a_hook_that_hangs_before_a_command_can_be_interrupted(bare: Sandbox) -> None:
    await bare.execute("PROMPT_COMMAND='unset PROMPT_COMMAND; sleep 300'")
    await bare.execute("echo ran", commandId="it", waitMs=0)
    await interrupt(bare, "it")

    assert (await bare.execute("echo alive"))["stdout"] == "alive\n"


@proves("sandbox.shell-interrupt")
@pytest.mark.parametrize("seed", range(3))
async def test_an_interrupt_at_any_moment_loses_no_result(bare: Sandbox, seed: int) -> None:
    moments = random.Random(seed)
    for number in range(60):
        running = asyncio.create_task(bare.execute(f"export N={number}; echo {number}", commandId=f"c{seed}.{number}"))
        for _ in range(moments.randrange(4)):
            await bare.process.call("interrupt_persistent_shell", {})
        ended = await running
        assert (ended["status"], ended["shell"]["alive"]) == ("completed", True)
        assert (ended["exitCode"], ended["stdout"]) == (0, f"{number}\n") or ended["exitCode"] == 130

    assert (await bare.execute("echo alive"))["stdout"] == "alive\n"


@proves("sandbox.shell-interrupt", "sandbox.shell-input")
async def test_an_idle_shell_is_neither_interrupted_nor_fed(bare: Sandbox) -> None:
    await bare.execute("true")

    assert await bare.refuse("interrupt_persistent_shell") == "shell_idle"
    assert await bare.refuse("send_input", text="x") == "shell_idle"


@proves("sandbox.shell-input")
async def test_input_and_its_end_reach_the_running_command_only(bare: Sandbox) -> None:
    await start(bare, "cat; echo end", "first")
    await bare.call("send_input", text="ünö\n")
    await bare.call("send_input", text="last", eof=True)
    first = await bare.wait(commandId="first")
    await start(bare, "head -c 2 >/dev/null", "second")
    await bare.call("send_input", text="xyz: never read\n")
    await bare.wait(commandId="second")
    await start(bare, 'read line; echo "<$line>"', "third")
    await bare.call("send_input", text="fresh\n")
    third = await bare.wait(commandId="third")

    assert first["stdout"] == "begun\nünö\nlastend\n"
    assert third["stdout"] == "begun\n<fresh>\n"


@proves("sandbox.shell-input")
async def test_more_input_than_a_pipe_holds_arrives_and_too_much_is_refused(bare: Sandbox) -> None:
    await start(bare, "read go; wc -c")
    await bare.call("send_input", text="go\n")
    for _ in range(4):
        await bare.call("send_input", text="x" * 200_000)
    await bare.call("send_input", eof=True)
    assert (await bare.wait(commandId="it"))["stdout"] == "begun\n800000\n"

    await start(bare, "sleep 300", "lazy")
    await bare.call("send_input", text="x" * (1 << 20))
    assert await bare.refuse("send_input", text="x" * (1 << 20)) == "input_full"


@proves("sandbox.shell-input")
async def test_a_command_that_changes_its_streams_spoils_nothing(bare: Sandbox) -> None:
    spoil = "import os; [os.set_blocking(number, False) for number in range(3)]"
    await bare.execute(f"python3 -c '{spoil}'; exec 0<&- 1>&- 2>&-")
    await start(bare, "seq 200000 | tail -n 1; cat")
    await bare.call("send_input", text="fed\n", eof=True)

    assert (await bare.wait(commandId="it"))["stdout"] == "begun\n200000\nfed\n"


@proves("sandbox.shell-terminal")
async def test_commands_have_a_terminal_if_the_shell_was_opened_with_one(isolated: Sandbox) -> None:
    state = await isolated.call("open_persistent_shell", pty=True, columns=100, lines=30)
    found = await isolated.execute("test -t 0 && test -t 1 && test -t 2 && stty size </dev/tty; echo error >&2")
    many = await isolated.execute("seq 50000; echo last", maxOutputChars=13)

    assert state["pty"]
    assert (found["exitCode"], found["stdout"], found["stderr"]) == (0, "30 100\r\nerror\r\n", "")
    assert many["stdout"] == "50000\r\nlast\r\n"


@proves("sandbox.shell-terminal", "sandbox.shell-input", "sandbox.shell-interrupt")
async def test_a_terminal_takes_input_its_end_and_interrupts(isolated: Sandbox) -> None:
    await isolated.call("open_persistent_shell", pty=True)
    await start(isolated, "stty -echo; cat; echo end", "first")
    await isolated.call("send_input", text="line\n", eof=True)
    first = await isolated.wait(commandId="first")
    await start(isolated, "bash --norc -i -c 'sleep 300'; sleep 300", "second")
    ended = await interrupt(isolated, "second")

    assert first["stdout"] == "begun\r\nline\r\nend\r\n"
    assert ended["exitCode"] == 130
    assert (await isolated.execute("echo alive"))["stdout"].endswith("alive\r\n")


@proves("sandbox.shell-terminal")
async def test_a_command_that_stops_its_terminal_does_not_stop_the_sandbox(isolated: Sandbox) -> None:
    await isolated.call("open_persistent_shell", pty=True)
    found = await isolated.execute("python3 -c 'import termios; termios.tcflow(0, termios.TCOOFF)'")
    state = await isolated.call("open_persistent_shell", restart=True)

    assert found["status"] == "completed"
    assert state["alive"]
