"""One-shot commands: what they get, how they end, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import secrets
import signal

import pytest

from tests.sandbox.inside.launching import ENVIRONMENT, Sandbox, eventually, find_processes
from tests.support import proves


@proves("sandbox.one-shot")
async def test_a_command_gets_only_the_variables_of_its_caller_and_of_the_sandbox(bare: Sandbox) -> None:
    found = await bare.call("run_command", argv=["/usr/bin/env", "-0"], environment={"A": "1\n2", "LANG": "C"})

    assert dict(line.split("=", 1) for line in found["stdout"].split("\0")[:-1]) == {**ENVIRONMENT, "A": "1\n2", "LANG": "C"}


@proves("sandbox.one-shot")
async def test_a_command_has_an_empty_input_and_no_other_descriptor(bare: Sandbox) -> None:
    found = await bare.run("cat; ls /proc/self/fd")

    # 3 is the directory that ls reads.
    assert found["stdout"].split() == ["0", "1", "2", "3"]


@proves("sandbox.one-shot")
async def test_a_command_is_the_leader_of_its_session_with_default_signals(bare: Sandbox) -> None:
    status = await bare.call("run_command", argv=["/bin/grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"])
    leader = await bare.run("set -- $(< /proc/$$/stat); [ $1 = $5 ] && [ $1 = $6 ]")
    blocked, ignored = (int(line.split()[1], 16) for line in status["stdout"].splitlines())

    assert leader["exitCode"] == 0
    assert blocked == 0
    assert not any(ignored >> number - 1 & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM))


@proves("sandbox.one-shot")
async def test_exit_code_and_signal_are_reported_as_the_kernel_saw_them(bare: Sandbox) -> None:
    exited, killed = await bare.run("exit 7"), await bare.run("kill -SEGV $$")

    assert (exited["exitCode"], exited["signal"], exited["timedOut"]) == (7, None, False)
    assert (killed["exitCode"], killed["signal"], killed["timedOut"]) == (139, "SIGSEGV", False)


@proves("sandbox.one-shot")
async def test_a_command_runs_in_the_directory_that_it_is_told_or_not_at_all(bare: Sandbox) -> None:
    (bare.workspace / "sub").mkdir()
    assert (await bare.run("pwd", cwd="sub"))["stdout"].strip() == str(bare.workspace / "sub")
    assert (await bare.run("pwd"))["stdout"].strip() == str(bare.workspace)

    assert await bare.refuse("run_shell", command="touch ran", cwd="missing") == "cwd_unavailable"
    assert not (bare.workspace / "ran").exists()


@proves("sandbox.one-shot", "sandbox.output")
async def test_an_argument_vector_is_no_shell_and_shows_the_beginning_of_its_output(bare: Sandbox) -> None:
    (bare.workspace / "file").write_text("".join(f"{number} ü\n" for number in range(10_000)))
    found = await bare.call("run_command", argv=["/bin/cat", "file"], maxOutputChars=9)
    echoed = await bare.call("run_command", argv=["/bin/echo", "$(id)", "; id", "*"])

    assert (found["stdout"], found["truncated"]) == ("0 ü\n1 ü\n2", {"stdout": True, "stderr": False})
    assert found["exitCode"] == 0
    assert echoed["stdout"] == "$(id) ; id *\n"


@proves("sandbox.one-shot")
async def test_a_program_that_cannot_be_executed_is_an_error_and_not_a_result(bare: Sandbox) -> None:
    (bare.workspace / "text").write_text("no program")

    assert await bare.refuse("run_command", argv=["/nowhere/program"]) == "command_unavailable"
    assert await bare.refuse("run_command", argv=[str(bare.workspace / "text")]) == "command_unavailable"
    assert await bare.refuse("run_command", argv=["ls"]) == "invalid_arguments"


@proves("sandbox.nothing-left")
@pytest.mark.parametrize(
    "leave",
    [
        "sleep 300 & disown",
        "(setsid sleep 300 &)",
        "setsid -f bash -c 'trap \"\" TERM HUP INT; sleep 300 & wait'",
        "env -i setsid -f sleep 300",
        "for i in $(seq 30); do (sleep 300 & sleep 300 &) ; done",
        "bash -c 'kill -STOP $$' & sleep 0.05",
    ],
)
async def test_what_a_command_leaves_behind_is_ended_with_it(bare: Sandbox, leave: str) -> None:
    mark = f"mark{secrets.token_hex(8)}"
    command = f"{leave}; exit 3".replace("sleep 300", f"bash -c 'exec -a {mark} sleep 300'")
    found = await bare.run(command, environment={"MARK": mark})

    assert found["exitCode"] == 3
    assert find_processes(mark) == []


@proves("sandbox.nothing-left")
async def test_the_time_limit_ends_a_command_and_everything_that_it_has_started(bare: Sandbox) -> None:
    mark = f"mark{secrets.token_hex(8)}"
    command = f"(setsid bash -c 'exec -a {mark} sleep 300' &); trap '' TERM; echo before; sleep 300"
    found = await bare.run(command, timeoutMs=500, environment={"MARK": mark})

    assert (found["timedOut"], found["signal"], found["stdout"]) == (True, "SIGKILL", "before\n")
    assert find_processes(mark) == []


@proves("sandbox.nothing-left")
async def test_a_command_that_forks_without_end_is_ended(isolated: Sandbox) -> None:
    found = await isolated.run("f() { f | f & }; f; sleep 300", timeoutMs=1000)
    left = await isolated.run("ls -d /proc/[0-9]* | wc -l")

    assert found["timedOut"]
    # pid 1, its supervisor, bash, ls and wc.
    assert int(left["stdout"]) <= 5


@proves("sandbox.nothing-left")
async def test_a_command_that_kills_its_supervisor_is_lost_and_still_leaves_nothing(bare: Sandbox) -> None:
    mark = f"mark{secrets.token_hex(8)}"
    found = await bare.run("setsid -f sleep 300; kill -9 $PPID; sleep 300", environment={"MARK": mark})

    assert (found["exitCode"], found["lost"]) == (None, True)
    await eventually(lambda: not find_processes(mark), "processes are left")


@proves("sandbox.nothing-left")
async def test_a_command_that_stops_its_supervisor_is_still_ended_by_its_time_limit(bare: Sandbox) -> None:
    mark = f"mark{secrets.token_hex(8)}"
    found = await bare.run("kill -STOP $PPID; sleep 300", timeoutMs=200, environment={"MARK": mark})

    assert found["lost"]
    await eventually(lambda: not find_processes(mark), "processes are left")


@proves("sandbox.command-once")
async def test_a_known_command_is_never_run_again(bare: Sandbox) -> None:
    command = "echo run >> log; sleep 0.3; cat log"
    first, second = await asyncio.gather(bare.run(command, commandId="one"), bare.run(command, commandId="one", waitMs=20_000))
    third = await bare.wait(commandId="one")

    assert first["stdout"] == second["stdout"] == third["stdout"] == "run\n"
    assert first["durationMs"] == third["durationMs"] >= 300


@proves("sandbox.command-once")
async def test_a_caller_need_not_wait_for_the_end_of_a_command(bare: Sandbox) -> None:
    running = await bare.run("echo begun; read -t 0.5 <> <(:); exit 4", commandId="slow", waitMs=0)
    ended = await bare.wait(commandId="slow")

    assert (running["status"], "exitCode" in running) == ("running", False)
    assert (ended["status"], ended["exitCode"], ended["stdout"]) == ("completed", 4, "begun\n")


@proves("sandbox.command-once")
async def test_the_last_32_results_stay(bare: Sandbox) -> None:
    for number in range(33):
        await bare.run(f"echo {number}", commandId=f"c{number}")

    assert (await bare.wait(commandId="c1"))["stdout"] == "1\n"
    assert (await bare.wait(commandId="c32"))["stdout"] == "32\n"
    assert await bare.refuse("wait_persistent_shell", commandId="c0") == "unknown_command"


@proves("sandbox.output")
async def test_a_megabyte_of_output_is_kept_and_read_in_parts(bare: Sandbox) -> None:
    found = await bare.run("seq 200000", commandId="many", maxOutputChars=14)
    expected = "".join(f"{number}\n" for number in range(1, 200_001))
    oldest, offset, text = len(expected) - (1 << 20), 0, ""
    while True:
        page = await bare.call("read_output", commandId="many", stream="stdout", offset=offset, maxBytes=100_000)
        text, offset = text + page["text"], page["nextOffset"]
        if page["eof"]:
            break

    assert found["stdout"] == expected[-14:]
    assert (found["stdoutOffset"], found["truncated"]["stdout"]) == (len(expected) - 14, True)
    assert (page["oldestOffset"], page["endOffset"]) == (oldest, len(expected))
    assert text == expected[oldest:]


@proves("sandbox.flood")
async def test_a_flood_delays_nothing_and_ends_in_time(bare: Sandbox) -> None:
    floods = [asyncio.create_task(bare.run("yes & yes >&2", timeoutMs=2000)) for _ in range(2)]
    answered = 0
    while not any(flood.done() for flood in floods):
        await bare.call("stat", path=".")
        answered += 1
    ended = await asyncio.gather(*floods)

    assert answered > 100
    assert all(flood["timedOut"] and flood["stdout"].endswith("y\ny\n") for flood in ended)
