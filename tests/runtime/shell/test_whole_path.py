"""The tools of the shell with a real sandbox, bash and ledger: what stays, what ends, and what is told about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fidelio.clock import now_ms
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.sandbox.host.client import LocalSandboxes
from fidelio.sandbox.host.pool import LaunchedProcess, SandboxPool
from fidelio.sandbox.model import LevelReport, SandboxSpec
from fidelio.sandbox.process import SandboxProcess
from tests.runtime.support import ToolBench, open_context, start_session
from tests.sandbox.inside.launching import find_level, make_spec
from tests.support import proves

AWKWARD = "two\nlines 'quoted' \"twice\" $(id) `id` \\ ü !! \t end"


async def _start(spec: SandboxSpec, _: AsyncExitStack) -> LaunchedProcess:
    process = await SandboxProcess.start(spec, find_level())
    return LaunchedProcess(process, find_level().level, process.pid)


async def _read_level() -> LevelReport:
    return find_level()


@pytest.fixture
async def pool() -> AsyncIterator[SandboxPool]:
    find_level()
    opened = SandboxPool(_start)
    yield opened
    await opened.close()


@pytest.fixture
async def real(tmp_path: Path, pool: SandboxPool) -> AsyncIterator[RuntimeContext]:
    async with open_context(tmp_path, LocalSandboxes(pool, _read_level), clock=now_ms) as context:
        yield context


@pytest.fixture
async def bench(real: RuntimeContext, tmp_path: Path) -> ToolBench:
    bench = await start_session(real, tmp_path)
    bench.spec = replace(make_spec(tmp_path), session=bench.session)
    return bench


async def execute(bench: ToolBench, command: str, **more: Any) -> dict[str, Any]:
    output: dict[str, Any] = (await bench.use("shell_exec", command=command, **more))["output"]
    return output


async def end_sandbox(bench: ToolBench) -> None:
    assert await bench.context.sandboxes.stop(bench.session)


@proves("runtime.shell-durable")
async def test_directory_and_variables_survive_the_sandbox(bench: ToolBench) -> None:
    await execute(bench, "mkdir -p 'a dir' && cd 'a dir' && export COLOUR=blue && export TEMPORARY=1")
    await bench.use("shell_set_env", key="AWKWARD", value=AWKWARD)
    await execute(bench, "unset TEMPORARY")
    live = await execute(bench, 'pwd; printf %s "$AWKWARD"')
    await end_sandbox(bench)
    again = await execute(bench, 'pwd; echo $COLOUR ${TEMPORARY-unset}; printf %s "$AWKWARD"')
    one_shot = await bench.use("shell_run", command='pwd; printf %s "$AWKWARD"')

    assert live["stdout"] == one_shot["output"]["stdout"] == f"/workspace/a dir\n{AWKWARD}"
    assert again["stdout"] == f"/workspace/a dir\nblue unset\n{AWKWARD}"
    assert (await bench.record()).shell.variables.keys() == {"AWKWARD", "COLOUR"}


@proves("runtime.shell-variables")
async def test_a_refused_export_works_in_the_live_shell_and_nowhere_else(bench: ToolBench) -> None:
    result = await execute(bench, "export PATH=/evil:$PATH LD_PRELOAD= FINE=1")
    live = await execute(bench, "echo $PATH")
    one_shot = await bench.use("shell_run", command="echo $PATH")

    assert set(result["notKept"]) == {"LD_PRELOAD", "PATH"}
    assert live["stdout"].startswith("/evil:")
    assert "/evil" not in one_shot["output"]["stdout"]
    assert (await bench.record()).shell.variables.keys() == {"FINE"}


@proves("runtime.shell-variables")
async def test_a_variable_that_was_removed_by_a_call_is_gone_in_the_live_shell(bench: ToolBench) -> None:
    await execute(bench, "export COLOUR=blue")
    await bench.use("shell_unset_env", key="COLOUR")

    assert (await execute(bench, "echo ${COLOUR-unset}"))["stdout"] == "unset\n"


@proves("runtime.shell-running", "runtime.shell-busy")
async def test_a_command_goes_on_after_its_call_is_waited_for_and_blocks_others(bench: ToolBench) -> None:
    running = await bench.use("shell_exec", command="echo half; read line; echo $line; cd /tmp", timeoutMs=200)
    error = await bench.refuse("shell_exec", command="echo no")
    one_shot = await bench.use("shell_run", command="echo parallel")
    sent = await bench.use("shell_send_input", text="whole\n")
    done = await bench.use("shell_wait", timeoutMs=20_000)

    assert (running["status"], error["code"], one_shot["output"]["stdout"]) == ("running", "shell_busy", "parallel\n")
    assert sent["sent"] is True
    assert (await bench.use("shell_read_command", commandId=running["commandId"]))["command"]["stdout"] == "half\nwhole\n"
    assert (done["cwd"], done["busyPlan"]) == ("/tmp", None)


@proves("runtime.shell-control")
async def test_an_interrupt_ends_a_real_command_and_the_shell_goes_on(bench: ToolBench) -> None:
    await execute(bench, "kept=yes")
    await bench.use("shell_exec", command="echo begun; sleep 600", timeoutMs=300)
    result = await bench.use("shell_interrupt")

    assert (result["interrupted"], result["status"]) == (True, "completed")
    assert (await execute(bench, "echo $kept"))["stdout"] == "yes\n"


@proves("runtime.shell-truth")
@pytest.mark.parametrize("command", ["exit 3", "kill -9 $$", "exec true"])
async def test_a_shell_that_ends_itself_is_told_and_replaced(bench: ToolBench, command: str) -> None:
    await execute(bench, "cd /tmp; export COLOUR=blue")
    ended = await bench.use("shell_exec", command=command)
    described = await bench.use("shell_describe")
    after = await execute(bench, "pwd; echo $COLOUR")

    assert ended["status"] == "completed"
    assert described["persistentShell"]["status"] == "closed"
    assert described["recoveryPlan"]["tool"] == "shell_restart"
    assert after["stdout"] == "/tmp\nblue\n"


@proves("runtime.shell-truth")
async def test_a_shell_that_was_killed_between_calls_is_replaced_where_it_was(bench: ToolBench) -> None:
    await execute(bench, "cd /tmp; export COLOUR=blue; echo $$ > /workspace/pid")
    await bench.use("shell_run", command="kill -9 $(cat /workspace/pid)")
    after = await execute(bench, "pwd; echo $COLOUR")

    assert after["stdout"] == "/tmp\nblue\n"


@proves("runtime.shell-truth")
async def test_after_the_end_of_the_sandbox_the_truth_is_told_and_a_restart_repairs_it(bench: ToolBench) -> None:
    running = await bench.use("shell_exec", command="sleep 600", timeoutMs=100)
    await end_sandbox(bench)
    waited = await bench.use("shell_wait", commandId=running["commandId"])
    restarted = await bench.use("shell_restart")

    assert (waited["status"], waited["error"]["code"]) == ("error", "command_lost")
    assert waited["persistentShell"]["closedBecause"] == "sandbox_ended"
    assert restarted["persistentShell"]["status"] == "active"
    assert (await execute(bench, "echo back"))["stdout"] == "back\n"


@proves("runtime.shell-output")
async def test_a_megabyte_of_output_neither_blocks_nor_ends_the_shell(bench: ToolBench) -> None:
    shouted = await execute(bench, "head -c 3000000 /dev/zero | tr '\\0' x; echo; export AFTER=1")

    assert shouted["truncated"] is True
    assert len(shouted["stdout"]) <= 12_000
    assert (await execute(bench, "echo $AFTER"))["stdout"] == "1\n"


@proves("runtime.shell-output")
async def test_unfinished_syntax_and_binary_output_are_results_and_not_hangs(bench: ToolBench) -> None:
    unfinished = await execute(bench, "echo 'never closed")
    binary = await execute(bench, "printf 'a\\0b\\377c'")

    assert unfinished["exitCode"] != 0
    assert "unexpected EOF" in unfinished["stderr"]
    assert binary["stdout"].startswith("a")


@proves("runtime.shell-running")
async def test_the_time_limit_of_a_one_shot_ends_it_with_everything_in_it(bench: ToolBench) -> None:
    result = await bench.use("shell_run", command="(sleep 600 & setsid sleep 600 &); sleep 600", timeoutMs=300)

    assert (result["status"], result["output"]["timedOut"]) == ("completed", True)


@proves("runtime.shell-control")
async def test_a_shell_with_a_terminal_has_one(bench: ToolBench) -> None:
    opened = await bench.use("shell_open", pty=True)
    result = await execute(bench, "test -t 0 && test -t 1 && echo terminal")

    assert opened["persistentShell"]["pty"] is True
    assert "terminal" in result["stdout"]


@proves("runtime.shell-truth")
async def test_a_directory_that_was_removed_refuses_the_next_command(bench: ToolBench) -> None:
    await execute(bench, "mkdir gone; cd gone; rmdir ../gone")
    result = await bench.try_tool("shell_exec", command="echo no")

    assert result.output["error"]["code"] == "cwd_unavailable"
    await bench.use("shell_set_cwd", path="/workspace")
    assert (await execute(bench, "pwd"))["stdout"] == "/workspace\n"


@proves("runtime.shell-bash")
async def test_bash_reads_in_the_durable_directory(bench: ToolBench) -> None:
    await execute(bench, "mkdir src; echo hello > src/file; cd src")

    assert (await bench.use("bash", command="cat", args=["file"]))["output"]["stdout"] == "hello\n"
    assert (await bench.use("bash", command="pwd"))["output"]["stdout"] == "/workspace/src\n"
