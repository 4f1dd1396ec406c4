"""Snapshots, restores and forks with a real sandbox, whose user and mounts are its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path

import pytest

from fidelio.sandbox.host.client import LocalSandboxes
from fidelio.sandbox.host.pool import LaunchedProcess, SandboxPool
from fidelio.sandbox.levels import detect_level
from fidelio.sandbox.model import LevelReport, SandboxSpec
from fidelio.sandbox.process import SandboxProcess
from tests.runtime.servers.test_servers import result_text
from tests.runtime.snapshots.support import find_workspace
from tests.runtime.wakes.support import Runtime, open_runtime, replies, say, use
from tests.support import proves
from tests.support.parts import require_part

BY = "person:test"
_detect = cache(detect_level)


async def _start(spec: SandboxSpec, _: AsyncExitStack) -> LaunchedProcess:
    process = await SandboxProcess.start(spec, _detect())
    return LaunchedProcess(process, _detect().level, process.pid)


async def _read_level() -> LevelReport:
    return _detect()


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    report = _detect()
    if not report.runs_commands:
        require_part("Isolation for commands", f"{report.reason} {report.remedy}")
    pool = SandboxPool(_start)
    async with open_runtime(tmp_path, sandboxes=LocalSandboxes(pool, _read_level)) as opened:
        yield opened
        await pool.close()


async def run(runtime: Runtime, session: str, command: str) -> str:
    """A wake that runs a command; what it prints."""
    runtime.script(replies(use(("shell_run", {"command": command})), say("Done.")))
    await runtime.tell(session, "Run it.")
    await runtime.work()
    return result_text(runtime.requests[-1])


@proves("runtime.snapshot-restore", "runtime.fork-workspace")
async def test_a_sandbox_works_in_what_was_restored_and_in_a_fork(runtime: Runtime, tmp_path: Path) -> None:
    project = tmp_path / "mine"
    project.mkdir()
    (project / "code.py").write_text("original")
    await runtime.define(tools={"policies": {"shell_run": "always_allow"}})
    session = await runtime.start(mount=f"{project}:copy")
    await run(runtime, session, "echo one > a.txt; echo one > project/code.py; mkdir d; echo x > d/x; chmod 500 d; ln -s / out")
    first = (await runtime.record(session)).wakes.last
    await run(runtime, session, "echo two > a.txt; echo two > project/code.py; chmod 700 d; rm -rf d out")
    show = "cat a.txt project/code.py d/x; readlink out; ls agent >/dev/null && echo new > new.txt && cat new.txt"
    expected = "one\\none\\nx\\n/\\nnew\\n"

    fork = await runtime.service.fork(session, wake=first, by=BY)
    assert expected in await run(runtime, fork, show)
    (stored,) = await runtime.service.list_snapshots(session)
    found = await runtime.service.diff_snapshot(session, stored["snapshotId"])
    assert {(change["path"], change["kind"]) for change in found["changes"]} == {
        ("/workspace/a.txt", "modified"),
        ("/workspace/project/code.py", "modified"),
        ("/workspace/d/", "removed"),
        ("/workspace/d/x", "removed"),
        ("/workspace/out", "removed"),
    }
    await runtime.service.restore_snapshot(session, stored["snapshotId"], by=BY)
    assert expected in await run(runtime, session, show)
    assert (project / "code.py").read_text() == "original"
    assert not (await find_workspace(runtime, session) / "agent" / "new").exists()
