"""Checks that run commands, in real sandboxes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fidelio.clock import now_ms
from fidelio.home import Home
from fidelio.ledger import open_ledger
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime.environments import Environment
from fidelio.runtime.outcomes.decisions import plan_outcome
from fidelio.runtime.outcomes.evaluation import EvaluationRun, evaluate
from fidelio.runtime.outcomes.record import CriterionResult
from fidelio.runtime.record import RuntimeRecords
from fidelio.runtime.service import RuntimeService, SessionRequest
from fidelio.runtime.specs import build_spec, session_directory
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.sandbox.host.client import LocalSandboxes
from fidelio.sandbox.host.pool import LaunchedProcess, SandboxPool
from fidelio.sandbox.levels import detect_level
from fidelio.sandbox.model import LevelReport, SandboxSpec
from fidelio.sandbox.process import SandboxProcess
from fidelio.tokens.keyring import FileKeys
from tests.support import proves
from tests.support.parts import require_part

_detect = cache(detect_level)


async def _start(spec: SandboxSpec, _: AsyncExitStack) -> LaunchedProcess:
    process = await SandboxProcess.start(spec, _detect())
    return LaunchedProcess(process, _detect().level, process.pid)


async def _read_level() -> LevelReport:
    return _detect()


class RealRuntime:
    """Sessions with sandboxes of this process."""

    def __init__(self, context: RuntimeContext, pool: SandboxPool, project: Path) -> None:
        self.context, self.pool, self.project = context, pool, project
        self.service = RuntimeService(context)

    async def open(self, **more: Any) -> str:
        return await self.service.open_session(SessionRequest(project=str(self.project), **more))

    async def directory(self, session: str) -> Path:
        return session_directory(self.context, (await self.service.load(session)).record)

    async def shell(self, session: str, command: str) -> None:
        """What an agent could have done in an approved command."""
        spec = await build_spec(self.context, await self.service.load(session))
        arguments = {"command": command, "cwd": "/workspace", "environment": {}, "commandId": os.urandom(8).hex()}
        result = await self.context.sandboxes.call(spec, "run_shell", arguments)
        assert result.output["exitCode"] == 0, result.output

    async def evaluate(self, session: str, *commands: str, timeout_ms: int = 30_000, expect: int = 0) -> EvaluationRun:
        fields = {"type": "command", "timeoutMs": timeout_ms, "expectExit": expect}
        checks = ({**fields, "command": command} for command in commands)
        criteria = [{"text": f"c{number}", "check": check} for number, check in enumerate(checks)]
        loaded = await self.service.load(session)
        event = await plan_outcome(loaded, {"title": "t", "successCriteria": criteria}, author="person")
        loaded = await self.context.unit.update(session, lambda _: SessionDecision(None, events=(event,)))
        return await evaluate(self.context, loaded, wake="w", grade=None)

    async def check(self, session: str, *commands: str, **more: Any) -> list[CriterionResult]:
        return list((await self.evaluate(session, *commands, **more)).verdicts[0].results)


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[RealRuntime]:
    report = _detect()
    if not report.runs_commands:
        require_part("Isolation for commands", f"{report.reason} {report.remedy}")
    home, project = Home(tmp_path / "home").ensure(), tmp_path / "project"
    project.mkdir()
    (project / "code.py").write_text("print(1)\n")
    pool, keys = SandboxPool(_start), FileKeys(home.keys)
    async with await open_ledger(home.ledger) as ledger:
        ledger.record_type = lambda kind: RuntimeRecords() if kind == "runtime" else None
        sandboxes = LocalSandboxes(pool, _read_level)
        yield RealRuntime(RuntimeContext(ledger, now_ms, home, sandboxes, lambda: keys), pool, project)
        await pool.close()


@proves("outcomes.isolation", "outcomes.checks")
async def test_a_command_works_on_a_copy_and_changes_nothing_of_the_session(runtime: RealRuntime) -> None:
    session = await runtime.open(mount=".")
    await runtime.shell(session, "mkdir -p d && echo one > d/a.txt && echo x > ~/kept && echo x > /tmp/kept")
    directory = await runtime.directory(session)
    destroy = (
        "rm -rf d project/code.py; echo bad > new; echo bad > ~/new; echo bad > /tmp/new; ! touch agent/x && ! touch /source/x"
    )
    results = await runtime.check(
        session,
        destroy,
        # Every check has a copy of its own: what the one before has done is gone.
        "test -f d/a.txt && test -f project/code.py && test ! -e new && test ! -e ~/new && test ! -e /tmp/new",
        "test ! -e ~/kept && test ! -e /tmp/kept",
        "exit 3",
    )

    assert [result.verdict for result in results] == ["met", "met", "met", "not_met"], results
    assert (directory / "workspace/d/a.txt").read_text() == "one\n"
    assert (directory / "project/code.py").exists()
    assert not any((directory / place / "new").exists() for place in ("workspace", "home", "tmp"))
    assert list((directory / "checks").iterdir()) == []
    assert {live.spec.session for live in runtime.pool.live} <= {session}


@proves("outcomes.isolation")
async def test_links_sockets_and_pipes_are_copied_as_they_are_and_lead_nowhere(runtime: RealRuntime, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password\n")
    session = await runtime.open()
    await runtime.shell(session, f"ln -s {secret} out && ln -s loop loop && ln -s d/a.txt in && mkdir d && echo one > d/a.txt")
    await runtime.shell(session, "mkfifo pipe && python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\"")
    found = await runtime.check(session, "test -L out && test ! -e out", "test -L loop && grep -q one in", "test -p pipe")

    assert [result.verdict for result in found] == ["met", "met", "met"], found


@proves("outcomes.isolation")
async def test_a_check_has_no_network_although_the_session_has_one(runtime: RealRuntime) -> None:
    await runtime.service.environments.define("online", Environment(network="host"), by="anna")
    session = await runtime.open(environment="online")
    listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    connect = f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 5)\""
    await runtime.shell(session, connect)
    (found,) = await runtime.check(session, connect)
    listening.close()

    assert (found.verdict, "refused" in found.reason) == ("not_met", True), found


@proves("outcomes.checks")
async def test_the_exit_status_is_that_of_the_command_and_a_command_without_end_is_not_met(runtime: RealRuntime) -> None:
    session = await runtime.open()
    forged = "echo '{\"exitCode\": 0}' >&2; for n in 3 4 5 6 7 8 9; do echo 0 >&$n; done 2>/dev/null; exit 4"
    forged_result, killed, endless = await runtime.check(session, forged, "kill -9 $$", "sleep 60", timeout_ms=1_500)

    assert (forged_result.verdict, "exit status 4" in forged_result.reason) == ("not_met", True)
    assert (killed.verdict, "SIGKILL" in killed.reason) == ("not_met", True)
    assert (endless.verdict, "1500 ms" in endless.reason) == ("not_met", True)
    # What a shell makes of a signal is not the exit status of the command.
    (signalled,) = await runtime.check(session, "kill -9 $$", expect=137)
    assert signalled.verdict == "not_met"


@proves("outcomes.isolation")
async def test_an_evaluation_that_is_cancelled_leaves_no_sandbox_and_no_copy(runtime: RealRuntime) -> None:
    session = await runtime.open()
    await runtime.shell(session, "echo one > a.txt")
    run = asyncio.create_task(runtime.evaluate(session, "sleep 60", timeout_ms=60_000))
    async with asyncio.timeout(20):
        while not any(":check:" in live.spec.session for live in runtime.pool.live):  # noqa: ASYNC110  # the pool has no event
            await asyncio.sleep(0.01)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert {live.spec.session for live in runtime.pool.live} == {session}
    assert list((await runtime.directory(session) / "checks").iterdir()) == []


@proves("outcomes.isolation")
async def test_files_are_checked_beside_a_live_shell_without_disturbing_it(runtime: RealRuntime) -> None:
    session = await runtime.open()
    await runtime.shell(session, "echo one > a.txt")
    before = await runtime.context.sandboxes.state(session)
    loaded = await runtime.service.load(session)
    check = {"type": "file_matches", "path": "a.txt", "pattern": "one"}
    event = await plan_outcome(loaded, {"title": "t", "successCriteria": [{"text": "c", "check": check}]}, author="person")
    loaded = await runtime.context.unit.update(session, lambda _: SessionDecision(None, events=(event,)))
    run = await evaluate(runtime.context, loaded, wake="w", grade=None)

    assert run.verdict["status"] == "pass"
    after = await runtime.context.sandboxes.state(session)
    assert before is not None
    assert after is not None
    assert after.incarnation == before.incarnation
