"""The persistent shell: what it keeps, how commands reach it, and how it ends."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal

import pytest

from tests.sandbox.inside.launching import Sandbox, eventually, find_children, find_processes
from tests.support import proves


@proves("sandbox.shell-state")
async def test_directory_variables_and_functions_stay(bare: Sandbox) -> None:
    (bare.workspace / "sub").mkdir()
    first = await bare.execute("cd sub; export KEPT='a b'; local=1; greet() { echo hi $1; }; unset USER; exec 7>log; (exit 5)")
    second = await bare.execute("pwd; echo $KEPT $local; greet you; echo logged >&7; cat log")

    assert (first["exitCode"], first["cwd"]) == (5, str(bare.workspace / "sub"))
    assert (first["environment"], first["unset"]) == ({"KEPT": "a b"}, ["USER"])
    assert second["stdout"] == f"{bare.workspace}/sub\na b 1\nhi you\nlogged\n"
    assert second["shell"]["commandCount"] == 2
    assert first["shell"]["shellId"] == second["shell"]["shellId"]


@proves("sandbox.shell-state")
async def test_changes_apply_before_the_command_also_in_a_live_shell(bare: Sandbox) -> None:
    (bare.workspace / "it's here").mkdir()
    await bare.execute("export OLD=1")
    changes = {"setCwd": "it's here", "setEnvironment": {"NEW": "a'b\n$(id)!"}, "unsetEnvironment": ["OLD"]}
    found = await bare.execute('printf "%s|%s|%s" "$PWD" "$NEW" "${OLD-unset}"', **changes)

    assert found["stdout"] == f"{bare.workspace}/it's here|a'b\n$(id)!|unset"
    assert found["environment"] == {"NEW": "a'b\n$(id)!"}
    assert await bare.refuse("exec_persistent_shell", command="touch ran", setCwd="missing") == "cwd_unavailable"


@proves("sandbox.shell-state")
async def test_the_directory_is_the_one_that_the_kernel_knows(bare: Sandbox) -> None:
    (bare.workspace / "real").mkdir()
    (bare.workspace / "link").symlink_to("real")
    linked = await bare.execute("cd link; PWD=/lie")
    removed = await bare.execute("rmdir ../real")

    assert linked["cwd"] == removed["cwd"] == str(bare.workspace / "real")


@proves("sandbox.shell-state")
async def test_output_that_looks_like_a_report_is_only_output(bare: Sandbox) -> None:
    forged = r"printf '\0\0S1\0000\0declare -x FORGED=\"1\"\n\0\0E'"
    found = await bare.execute(f"{forged}; export REAL=1; (exit 3)")

    assert (found["exitCode"], found["environment"]) == (3, {"REAL": "1"})


_UNFINISHED = """
if true; then
echo 'abc
echo "abc
echo $(id
for i in 1 2
{ echo a
( echo
case x in
echo `id
a=(1
)
""".strip().splitlines()


@proves("sandbox.shell-text")
async def test_unfinished_syntax_is_an_error_at_once_and_swallows_nothing(bare: Sandbox) -> None:
    for text in _UNFINISHED:
        found = await bare.execute(text)
        assert (found["status"], found["exitCode"]) == ("completed", 2) or found["exitCode"] == 1, text
        assert "syntax error" in found["stderr"] or "unexpected EOF" in found["stderr"], text
        assert (await bare.execute("echo next"))["stdout"] == "next\n", text


@proves("sandbox.shell-text")
async def test_the_text_is_a_script_of_its_own(bare: Sandbox) -> None:
    script = "cat <<'END'\n$HOME \\ !! 'x'\nEND\nfor i in 1 2; do\n  echo $i # comment\ndone\nbreak; return 4"
    found = await bare.execute(script)

    assert found["stdout"] == "$HOME \\ !! 'x'\n1\n2\n"
    assert "only meaningful in a `for'" in found["stderr"]
    assert (await bare.execute("set -H; echo a!b 'c!d'; set +H"))["stdout"] == "a!b c!d\n"
    assert (await bare.execute("x=" + "y" * 300_000 + "; echo ${#x}"))["stdout"] == "300000\n"


@proves("sandbox.shell-text")
async def test_errors_that_would_end_a_script_do_not_end_the_shell(bare: Sandbox) -> None:
    errors = ("set -u; echo $missing", "echo ${missing:?}", "readonly r=1; r=2", "echo $((1/0))")
    for command in errors:
        found = await bare.execute(f"set +u; {command}; echo not")
        assert (found["exitCode"], found["stdout"]) == (1, ""), command

    assert (await bare.execute("echo alive"))["shell"]["commandCount"] == 5


@proves("sandbox.shell-state")
async def test_commands_inherit_no_descriptor_of_the_shell(bare: Sandbox) -> None:
    found = await bare.execute("ls /proc/self/fd; ( ls /proc/self/fd ) | cat")

    assert found["stdout"].split() == ["0", "1", "2", "3"] * 2


@proves("sandbox.shell-waiting")
async def test_waiting_is_limited_and_the_command_lives_on(bare: Sandbox) -> None:
    running = await bare.execute("echo begun; read line; echo $line; (exit 9)", waitMs=100, commandId="w")
    assert await bare.refuse("exec_persistent_shell", command="touch ran") == "shell_busy"
    state = await bare.call("inspect_persistent_shell")
    page = await bare.call("read_output", commandId="w", stream="stdout", offset=0, maxBytes=100)
    same = await bare.execute("anything else", commandId="w", waitMs=0)
    # By its id: the input may reach the command before the question about it does.
    waiting = asyncio.create_task(bare.wait(commandId="w"))
    await bare.call("send_input", text="go on\n")
    ended, again = await waiting, await bare.wait(commandId="w")

    assert (running["status"], running["stdout"], running["shell"]["busy"]) == ("running", "begun\n", True)
    assert (state["currentCommand"]["commandId"], state["currentCommand"]["stdoutPreview"]) == ("w", "begun\n")
    assert (page["text"], page["eof"], page["nextOffset"]) == ("begun\n", False, 6)
    assert (same["status"], same["commandId"]) == ("running", "w")
    assert (ended["exitCode"], ended["stdout"]) == (again["exitCode"], again["stdout"]) == (9, "begun\ngo on\n")
    assert (await bare.wait())["status"] == "idle"
    assert not (bare.workspace / "ran").exists()


@proves("sandbox.shell-waiting", "sandbox.output", "sandbox.flood")
async def test_a_megabyte_of_output_neither_blocks_nor_kills(bare: Sandbox) -> None:
    found = await bare.execute("seq 500000; seq 500000 >&2; echo last", maxOutputChars=12)
    flood = await bare.execute("yes", waitMs=200, commandId="flood")
    await bare.call("interrupt_persistent_shell")
    ended = await bare.wait(commandId="flood")

    assert (found["exitCode"], found["stdout"], found["stderr"]) == (0, "500000\nlast\n"[-12:], "9999\n500000\n"[-12:])
    assert (flood["status"], ended["exitCode"]) == ("running", 130)
    assert (await bare.execute("echo alive"))["stdout"] == "alive\n"


@proves("sandbox.shell-end")
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit 3", 3),
        ("kill -9 $$", 137),
        ("exec bash -c 'exit 4'", 4),
        ("set -e; false", 1),
    ],
)
async def test_a_shell_that_ends_says_how_and_the_next_command_gets_a_new_one(bare: Sandbox, command: str, code: int) -> None:
    await bare.execute("cd /")
    ended = await bare.execute(f"echo out; {command}")
    state = await bare.call("inspect_persistent_shell")
    after = await bare.execute("pwd")

    assert (ended["status"], ended["exitCode"], ended["stdout"]) == ("completed", code, "out\n")
    assert (ended["shell"]["alive"], state["alive"], state["exitCode"], state["cwd"]) == (False, False, code, "/")
    assert after["shell"]["alive"]
    assert after["shell"]["shellId"] != state["shellId"]
    assert after["stdout"].strip() == str(bare.workspace)


@proves("sandbox.shell-end")
async def test_a_shell_that_has_lost_its_control_descriptors_is_ended(bare: Sandbox) -> None:
    # Nothing can be saved or restored with so few descriptors.
    await bare.execute("ulimit -n 10", waitMs=0)
    state = await bare.call("open_persistent_shell", restart=True)

    assert (await bare.execute("echo alive"))["stdout"] == "alive\n"
    assert (await bare.call("inspect_persistent_shell"))["shellId"] == state["shellId"]


@proves("sandbox.shell-end", "sandbox.nothing-left")
@pytest.mark.parametrize("how", ["close_persistent_shell", "open_persistent_shell"])
async def test_closing_or_restarting_ends_everything_that_the_shell_has_started(bare: Sandbox, how: str) -> None:
    mark = f"mark{secrets.token_hex(8)}"
    await bare.call("open_persistent_shell", environment={"MARK": mark})
    await bare.execute("setsid -f sleep 300; sleep 300 & disown")
    running = asyncio.create_task(bare.execute("trap '' INT TERM HUP; sleep 300; sleep 300"))
    await eventually(lambda: len(find_processes(mark)) >= 4, "the commands have not started")
    closed = await bare.call(how, **({"restart": True} if how.startswith("open") else {}))
    ended = await running

    assert (ended["status"], ended["exitCode"], ended["shell"]["alive"]) == ("completed", 137, False)
    assert closed["alive"] == how.startswith("open")
    assert find_processes(mark) == []


@proves("sandbox.shell-end", "sandbox.nothing-left")
@pytest.mark.parametrize("victim", ["$PPID", "$$", "-- -1"])
async def test_killing_shell_or_supervisor_from_inside_is_told_and_leaves_nothing(isolated: Sandbox, victim: str) -> None:
    await isolated.execute("setsid -f sleep 300; sleep 300 &")
    ended = await isolated.execute(f"kill -9 {victim}; sleep 300")
    # A sweep may still be at work; a process of the next command is not its business.
    after = await isolated.execute("ls -d /proc/[0-9]* | wc -l")

    assert (ended["status"], ended["shell"]["alive"]) == ("completed", False)
    assert ended["exitCode"] in (137, None)
    assert after["exitCode"] == 0
    await isolated.call("close_persistent_shell")
    left = await isolated.run("ls -d /proc/[0-9]*; cat /proc/*/comm")
    assert "sleep" not in left["stdout"]


@proves("sandbox.shell-end", "sandbox.nothing-left")
@pytest.mark.parametrize("seed", range(8))
async def test_killing_shell_or_supervisor_at_any_moment_is_told_and_leaves_nothing(bare: Sandbox, seed: int) -> None:
    moment, mark = random.Random(seed), f"mark{secrets.token_hex(8)}"
    await bare.call("open_persistent_shell", environment={"MARK": mark})
    (supervisor,) = find_children(bare.process.pid)
    shell = int((await bare.execute("setsid -f sleep 300; echo $$"))["stdout"])
    running = asyncio.create_task(bare.execute("for i in $(seq 100); do sleep 0.01 | cat; done; echo x; sleep 300"))
    await asyncio.wait([running], timeout=moment.random() / 5)
    os.kill(moment.choice([shell, supervisor]), signal.SIGKILL)
    ended = await running
    after = await bare.execute("echo new")

    assert (ended["status"], ended["shell"]["alive"]) == ("completed", False)
    assert ended["exitCode"] == 137 or ended["lost"]
    assert after["stdout"] == "new\n"
    await eventually(lambda: not find_processes(mark), "processes are left")
