"""Shared files, environments and projects through the service, with real sandboxes and a person who answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fidelio.clock import now_ms
from fidelio.home import Home
from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.runtime.environments import Environment
from fidelio.runtime.project.changes import ProjectChanges
from fidelio.runtime.record import RuntimeRecords
from fidelio.runtime.service import Finished, RuntimeService, SessionRequest, WaitingForPerson
from fidelio.runtime.specs import build_spec
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.sandbox.host.client import LocalSandboxes
from fidelio.sandbox.host.pool import LaunchedProcess, SandboxPool
from fidelio.sandbox.levels import detect_level
from fidelio.sandbox.model import LevelReport, SandboxSpec
from fidelio.sandbox.process import SandboxProcess
from fidelio.tokens.keyring import FileKeys
from tests.runtime.resources.support import change_owner
from tests.runtime.resources.test_project_copy import git
from tests.support import proves
from tests.support.parts import require_part
from tests.support.users import NOBODY, needs_root

PROMOTE = "resources_promote_to_substrate"


class Runtime:
    """A service with sandboxes of this process, and an inbox that a person answers."""

    def __init__(self, service: RuntimeService) -> None:
        self.service = service
        self.context = service.context

    async def open(self, project: Path, **more: Any) -> str:
        return await self.service.open_session(SessionRequest(project=str(project), **more))

    async def call(self, session: str, tool: str, **arguments: Any) -> Mapping[str, Any]:
        done = await self.service.call(session, tool, arguments)
        assert isinstance(done, Finished)
        assert not done.is_error, done.output
        return done.output

    async def ask(self, session: str, tool: str, **arguments: Any) -> str:
        """Call a tool that waits for a person; the id of its request."""
        done = await self.service.call(session, tool, arguments)
        assert isinstance(done, WaitingForPerson), done
        return done.request

    async def allow(self, request: str) -> None:
        await Inbox(self.context.ledger).answer(request, "allow", by="person:anna", channel="cli")

    async def shell(self, session: str, command: str) -> str:
        """Run a command in the sandbox, past the gate: what an agent could have done in an approved command."""
        spec = await build_spec(self.context, await self.service.load(session))
        arguments = {"command": command, "cwd": "/workspace", "environment": {}, "commandId": os.urandom(8).hex()}
        result = await self.context.sandboxes.call(spec, "run_shell", arguments)
        assert result.error is None, result.error
        assert result.output["exitCode"] == 0, result.output
        return str(result.output["stdout"])


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
    home = Home(tmp_path / "home").ensure()
    pool = SandboxPool(_start)
    keys = FileKeys(home.keys)
    async with await open_ledger(home.ledger) as ledger:
        ledger.record_type = lambda kind: RuntimeRecords() if kind == "runtime" else None
        yield Runtime(RuntimeService(RuntimeContext(ledger, now_ms, home, LocalSandboxes(pool, _read_level), lambda: keys)))
        await pool.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "code.py").write_text("print(1)\n")
    return directory


@proves("runtime.promotion", "runtime.drafts", "runtime.shared-directory")
async def test_a_file_is_staged_edited_compared_allowed_and_seen_by_another_session(runtime: Runtime, project: Path) -> None:
    one, two = await runtime.open(project, name="one"), await runtime.open(project, name="two")
    await runtime.call(one, "write", path="guide.md", content="first\n")
    request = await runtime.ask(one, PROMOTE, sourcePath="guide.md")
    await runtime.allow(request)
    first = await runtime.call(one, PROMOTE, sourcePath="guide.md")

    await runtime.call(two, "resources_stage_from_substrate", sourcePath="guide.md", targetPath="draft.md")
    await runtime.call(two, "edit", path="draft.md", oldText="first", newText="second")
    compared = await runtime.call(two, "resources_compare_with_substrate", sessionPath="draft.md", substratePath="guide.md")
    assert compared["differingLineCount"] == 1
    expected = compared["promotePrecondition"]["expectedVersionId"]
    assert expected == first["versionId"]
    call = {"sourcePath": "draft.md", "targetPath": "guide.md", "expectedVersionId": expected}
    await runtime.allow(await runtime.ask(two, PROMOTE, **call))
    await runtime.call(two, PROMOTE, **call)

    read = await runtime.call(one, "read", path="/workspace/agent/guide.md")
    assert read["output"]["content"] == "second\n"
    assert await runtime.shell(one, "cat agent/guide.md; touch agent/x 2>/dev/null || echo refused") == "second\nrefused\n"


@proves("runtime.promotion")
async def test_an_approval_is_void_when_the_draft_or_the_shared_file_has_changed(runtime: Runtime, project: Path) -> None:
    session, other = await runtime.open(project), await runtime.open(project, name="other")
    await runtime.call(session, "write", path="a.md", content="harmless\n")
    await runtime.allow(await runtime.ask(session, PROMOTE, sourcePath="a.md", overwrite=True))
    await runtime.shell(session, "echo evil > a.md")
    again = await runtime.ask(session, PROMOTE, sourcePath="a.md", overwrite=True)
    await runtime.allow(again)

    await runtime.call(other, "write", path="a.md", content="of the other\n")
    await runtime.allow(await runtime.ask(other, PROMOTE, sourcePath="a.md"))
    await runtime.call(other, PROMOTE, sourcePath="a.md")

    assert await runtime.ask(session, PROMOTE, sourcePath="a.md", overwrite=True) != again
    listed = await runtime.call(session, "resources_list_versions", targetPath="a.md")
    assert listed["count"] == 1


@proves("runtime.promotion")
async def test_of_two_allowed_promotions_at_once_one_is_refused_with_a_precondition_error(
    runtime: Runtime, project: Path
) -> None:
    sessions = [await runtime.open(project, name=name) for name in ("one", "two")]
    for session in sessions:
        await runtime.call(session, "write", path="a.md", content=f"{session}\n")
        await runtime.allow(await runtime.ask(session, PROMOTE, sourcePath="a.md"))
    calls = (runtime.service.call(session, PROMOTE, {"sourcePath": "a.md"}) for session in sessions)
    outcomes = await asyncio.gather(*calls)
    won = [outcome for outcome in outcomes if isinstance(outcome, Finished) and not outcome.is_error]
    lost = [outcome for outcome in outcomes if outcome not in won]
    assert (len(won), len(lost)) == (1, 1)
    refused = lost[0]
    assert isinstance(refused, WaitingForPerson) or refused.output["error"]["code"] in ("precondition_failed", "exists")
    assert (await runtime.call(sessions[0], "resources_list_versions", targetPath="a.md"))["count"] == 1


@proves("runtime.project-copy", "runtime.project-changes")
async def test_an_agent_changes_a_copy_and_a_person_brings_it_back(runtime: Runtime, project: Path) -> None:
    session = await runtime.open(project, mount=".")
    await runtime.shell(
        session, "cd project && echo 'print(2)' > code.py && mkdir new && echo x > new/y && ln -s /etc/passwd out"
    )
    assert (project / "code.py").read_text() == "print(1)\n"
    changes = ProjectChanges(runtime.context)
    diff = await changes.diff(session)
    assert "-print(1)\n+print(2)\n" in diff.text
    await changes.apply(session, expect=diff.digest, by="anna")
    assert (project / "code.py").read_text() == "print(2)\n"
    assert (project / "new/y").read_text() == "x\n"
    assert not (project / "out").is_symlink()
    assert [change.kind for change in (await changes.diff(session)).changes] == ["refused"]


@proves("runtime.project-copy")
async def test_git_works_in_the_copy_of_a_repository(runtime: Runtime, project: Path) -> None:
    git(project, "init", "--quiet")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "first")
    (project / "code.py").write_text("print(3)\n")
    session = await runtime.open(project, mount=str(project))
    commands = (
        "git log --format=%s; git status --short; git -c user.name=a -c user.email=b commit -qam second; git log --format=%s"
    )
    lines = (await runtime.shell(session, f"cd project && {{ {commands}; }}")).splitlines()
    assert lines == ["first", " M code.py", "second", "first"]
    assert await runtime.shell(session, f"cd project && grep -rl {project} .git || true") == ""
    assert "second" not in git(project, "log", "--oneline")


@needs_root
@proves("runtime.project-mount")
async def test_as_root_a_project_of_an_ordinary_user_can_be_written(runtime: Runtime, project: Path) -> None:
    change_owner(project, NOBODY)
    session = await runtime.open(project, mount=f"{project}:rw")
    await runtime.shell(session, "echo changed > project/code.py; echo new > project/new")
    assert (project / "code.py").read_text() == "changed\n"
    assert (project / "new").stat().st_uid == NOBODY


@proves("runtime.project-mount")
async def test_a_project_that_is_mounted_read_only_is_not_changed(runtime: Runtime, project: Path) -> None:
    session = await runtime.open(project, mount=".:ro")
    assert (
        await runtime.shell(session, "cat project/code.py; touch project/x 2>/dev/null || echo refused")
        == "print(1)\nrefused\n"
    )
    assert sorted(os.listdir(project)) == ["code.py"]  # noqa: PTH208  # names


@proves("runtime.environment-setup", "runtime.environments")
async def test_a_setup_runs_in_a_sandbox_and_its_result_is_read_only_in_others(runtime: Runtime, project: Path) -> None:
    setup = "mkdir bin\nprintf '#!/bin/sh\\necho \"tool $COLOUR\"\\n' > bin/tool\nchmod 700 bin/tool\nid -u > who"
    environment = Environment(setup=setup, packages=("sh", "cat"), variables={"COLOUR": "blue"})
    await runtime.service.environments.define("build", environment, by="anna")
    sessions = [await runtime.open(project, name=name, environment="build") for name in ("one", "two")]
    for session in sessions:
        found = await runtime.shell(
            session, "COLOUR=red /environment/bin/tool; touch /environment/x 2>/dev/null || echo refused"
        )
        assert found == "tool red\nrefused\n"
    assert await runtime.shell(sessions[0], "cat /environment/who") != "0\n"


@proves("runtime.environment-setup")
async def test_a_program_that_is_missing_inside_is_named(runtime: Runtime, project: Path) -> None:
    await runtime.service.environments.define("odd", Environment(packages=("no-such-tool",)), by="anna")
    session = await runtime.open(project, environment="odd")
    refused = await runtime.service.call(session, "read", {"path": "/workspace"})

    assert refused.output["error"]["code"] == "runtime.environment"
    assert "no-such-tool" in refused.output["error"]["message"]


@proves("runtime.vaults")
async def test_a_vault_is_empty_inside_and_others_do_not_exist(runtime: Runtime, project: Path) -> None:
    for name in ("github", "prod"):
        await runtime.service.vaults.add(name, "correct-horse", by="anna")
    session = await runtime.open(project, vaults=("github",))
    assert (
        await runtime.shell(session, "ls -A /vaults /vaults/github; env | grep -c horse || true")
        == "/vaults:\ngithub\n\n/vaults/github:\n0\n"
    )
    assert (await runtime.call(session, "vault_list"))["count"] == 1
