"""Preparation of environments: once per version, continued by the next call, nothing left after a failure."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fidelio.errors import ChainBroken, EnvironmentProblem
from fidelio.ledger.audit import verify_all
from fidelio.runtime.environments import Environment, Environments, EnvironmentVersion
from fidelio.runtime.environments.preparation import MAX_MINUTES, MOUNT, find_prepared
from fidelio.sandbox.model import SandboxSpec
from tests.runtime.resources.support import Bench
from tests.support import proves


class FakeShell:
    """A persistent shell: runs the script of the setup on the host, with /environment as its directory.

    A command id is run once; while `is_slow` its result is withheld.
    """

    def __init__(self, bench: Bench) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.is_slow = False
        bench.sandboxes.replies["exec_persistent_shell"] = self.exec

    def exec(self, spec: SandboxSpec, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        command = arguments["commandId"]
        if command not in self.runs:
            sources = {mount.path: mount.source for mount in spec.mounts}
            script = Path(sources["/workspace"], "setup.sh")
            script.write_text(script.read_text().replace(MOUNT, sources[MOUNT]))
            environment = {"PATH": os.environ["PATH"], **arguments["setEnvironment"]}
            done = subprocess.run(
                ["bash", "-e", script],
                cwd=sources[MOUNT],
                env=environment,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            self.runs[command] = {"exitCode": done.returncode, "stderr": done.stderr, "stdout": done.stdout}
        status = "running" if self.is_slow else "completed"
        return {"commandId": command, "status": status, **self.runs[command]}


@pytest.fixture
def shell(bench: Bench) -> FakeShell:
    return FakeShell(bench)


async def define(bench: Bench, **fields: Any) -> EnvironmentVersion:
    return await Environments(bench.context).define("build", Environment(**fields), by="anna")


def leftovers(bench: Bench) -> list[Path]:
    """Directories of sandboxes below the home, without those of the sessions."""
    return [path for path in (bench.home.path / "sandboxes").iterdir() if path.name not in ("environments", "substrates")]


@proves("runtime.environment-setup")
async def test_a_setup_runs_once_and_every_session_of_the_version_sees_its_result(bench: Bench, shell: FakeShell) -> None:
    chosen = await define(bench, setup="mkdir bin; echo hi > bin/tool; chmod 700 bin/tool bin; ln -s /etc/passwd out")
    sessions = [await bench.start(name, environment="build", environment_version=1) for name in ("one", "two")]

    specs = [await bench.spec(session) for session in sessions]

    (first, second) = ([mount for mount in spec.mounts if mount.path == MOUNT] for spec in specs)
    assert first == second
    assert [(mount.access, mount.kind) for mount in first] == [("read_only", "toolchain")]
    result = Path(first[0].source)
    assert (result / "bin/tool").read_text() == "hi\n"
    assert (result / "bin/tool").stat().st_mode & 0o777 == 0o755
    assert (result / "bin").stat().st_mode & 0o777 == 0o755
    assert len(shell.runs) == 1
    assert await find_prepared(bench.context, chosen) == result
    (ran,) = {session for session, action in bench.sandboxes.calls if action == "exec_persistent_shell"}
    assert bench.sandboxes.stopped == [ran]
    assert len(leftovers(bench)) == len(sessions)


@proves("runtime.environment-setup")
async def test_a_new_version_is_set_up_again(bench: Bench, shell: FakeShell) -> None:
    one = await find_prepared(bench.context, await define(bench, setup="echo 1 > x"))
    two = await find_prepared(bench.context, await define(bench, setup="echo 2 > x"))
    assert one is not None
    assert two is not None
    assert ((one / "x").read_text(), (two / "x").read_text(), len(shell.runs)) == ("1\n", "2\n", 2)


@proves("runtime.environment-setup")
async def test_a_long_setup_is_continued_by_the_next_call(bench: Bench, shell: FakeShell) -> None:
    chosen = await define(bench, setup="echo 1 > x")
    shell.is_slow = True
    for _ in range(2):
        with pytest.raises(EnvironmentProblem, match="still being set up"):
            await find_prepared(bench.context, chosen)
    shell.is_slow = False
    assert await find_prepared(bench.context, chosen)
    assert len(shell.runs) == 1
    assert leftovers(bench) == []


@proves("runtime.environment-setup")
async def test_calls_at_once_run_one_setup(bench: Bench, shell: FakeShell) -> None:
    chosen = await define(bench, setup="echo 1 > x")
    found = await asyncio.gather(*(find_prepared(bench.context, chosen) for _ in range(4)), return_exceptions=True)
    assert len(shell.runs) == 1
    assert all(isinstance(each, Path | EnvironmentProblem) for each in found), found
    final = await find_prepared(bench.context, chosen)
    assert {each for each in found if isinstance(each, Path)} <= {final}
    assert leftovers(bench) == []


@proves("runtime.environment-setup")
async def test_a_missing_program_is_named(bench: Bench, shell: FakeShell) -> None:
    chosen = await define(bench, packages=("sh", "no-such-tool", "neither-this"), setup="exit 0")
    with pytest.raises(EnvironmentProblem, match="missing inside of the sandbox: no-such-tool, neither-this"):
        await find_prepared(bench.context, chosen)
    assert leftovers(bench) == []
    present = await Environments(bench.context).define("small", Environment(packages=("sh", "cat")), by="anna")
    assert await find_prepared(bench.context, present)


@proves("runtime.environment-setup")
async def test_a_failed_setup_says_why_and_leaves_nothing(bench: Bench, shell: FakeShell) -> None:
    chosen = await define(bench, setup="echo partial > x\necho 'no network' >&2\nfalse\necho never")
    for _ in range(2):
        with pytest.raises(EnvironmentProblem, match=r"build, version 1 .* exit code 1: no network"):
            await find_prepared(bench.context, chosen)
    assert len(shell.runs) == 2
    assert leftovers(bench) == []


@proves("runtime.environment-setup")
async def test_what_a_crash_left_is_set_up_again(bench: Bench, shell: FakeShell) -> None:
    chosen = await define(bench, setup="echo 1 > x")
    first = await find_prepared(bench.context, chosen)
    assert first is not None
    (first / "x").unlink()
    first.rmdir()
    second = await find_prepared(bench.context, chosen)
    assert second is not None
    assert second != first
    assert (second / "x").exists()


@proves("runtime.environment-setup")
async def test_a_setup_whose_sandbox_was_lost_begins_in_an_empty_directory(bench: Bench, shell: FakeShell) -> None:
    chosen = await define(bench, setup='[ -z "$(ls -A)" ]\nmkdir half\ntouch half/.hidden .also')
    shell.is_slow = True
    with pytest.raises(EnvironmentProblem, match="still being set up"):
        await find_prepared(bench.context, chosen)
    # Another sandbox does not know the command.
    shell.runs.clear()
    shell.is_slow = False
    result = await find_prepared(bench.context, chosen)
    assert result is not None
    assert (result / "half/.hidden").exists()


@proves("runtime.environment-setup")
async def test_a_setup_without_an_end_is_given_up(bench: Bench, shell: FakeShell) -> None:
    chosen = await define(bench, setup="echo 1 > x")
    shell.is_slow = True
    with pytest.raises(EnvironmentProblem):
        await find_prepared(bench.context, chosen)
    bench.clock.now += (MAX_MINUTES + 1) * 60_000
    shell.is_slow = False
    assert await find_prepared(bench.context, chosen)
    assert len(shell.runs) == 2
    assert leftovers(bench) == []


@proves("runtime.environment-setup")
async def test_a_setup_and_its_failure_are_events_so_that_the_store_verifies(bench: Bench, shell: FakeShell) -> None:
    environments = Environments(bench.context)
    for setup in ("exit 3", "echo hi > tool"):
        chosen = await environments.define("build", Environment(setup=setup), by="anna")
        with suppress(EnvironmentProblem):
            await find_prepared(bench.context, chosen)

    (verdict,) = [verdict async for verdict in verify_all(bench.ledger)]

    assert not isinstance(verdict, ChainBroken)
    assert verdict.holds, verdict.problems


@proves("runtime.environment-setup")
@pytest.mark.parametrize("setup", ["echo 1 > x", "echo broken >&2; exit 3"])
async def test_calls_at_once_agree_in_whichever_order_their_steps_run(
    bench: Bench, shell: FakeShell, monkeypatch: pytest.MonkeyPatch, setup: str
) -> None:
    random = Random(setup)

    async def pause() -> None:
        for _ in range(random.randrange(12)):
            await asyncio.sleep(0)

    async def run_here(function: Callable[..., Any], *arguments: Any) -> Any:
        await pause()
        result = function(*arguments)
        await pause()
        return result

    monkeypatch.setattr(asyncio, "to_thread", run_here)
    for version in range(40):
        shell.runs.clear()
        chosen = await define(bench, setup=f"{setup} # {version}")
        found = await asyncio.gather(*(find_prepared(bench.context, chosen) for _ in range(4)), return_exceptions=True)

        assert all(isinstance(each, Path | EnvironmentProblem) for each in found), found
        assert leftovers(bench) == []
        if "exit" in setup:
            assert all(isinstance(each, EnvironmentProblem) for each in found), found
        else:
            assert len(shell.runs) == 1
            assert all(each.retryable for each in found if isinstance(each, EnvironmentProblem)), found
            assert {each for each in found if isinstance(each, Path)} <= {await find_prepared(bench.context, chosen)}
