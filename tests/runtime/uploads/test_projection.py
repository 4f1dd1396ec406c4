"""Files of a session in a real sandbox: readable by file tools and commands, never writable, gone when they are removed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fidelio.clock import now_ms
from fidelio.runtime.calls import Finished
from fidelio.runtime.service import RuntimeService, SessionRequest
from fidelio.runtime.specs import build_spec, session_directory
from fidelio.runtime.uploads.attaching import add_resource, plan_file, remove_resource
from fidelio.runtime.uploads.files import StoredFiles
from fidelio.sandbox.host.client import LocalSandboxes
from fidelio.sandbox.host.pool import LaunchedProcess, SandboxPool
from fidelio.sandbox.model import UPLOADS, LevelReport, SandboxSpec
from fidelio.sandbox.process import SandboxProcess
from tests.runtime.support import open_context
from tests.sandbox.inside.launching import find_level
from tests.support import proves


async def _start(spec: SandboxSpec, _: AsyncExitStack) -> LaunchedProcess:
    process = await SandboxProcess.start(spec, find_level())
    return LaunchedProcess(process, find_level().level, process.pid)


async def _read_level() -> LevelReport:
    return find_level()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[RuntimeService]:
    find_level()
    pool = SandboxPool(_start)
    async with open_context(tmp_path, LocalSandboxes(pool, _read_level), clock=now_ms) as context:
        yield RuntimeService(context)
        await pool.close()


@pytest.fixture
async def session(service: RuntimeService, tmp_path: Path) -> str:
    return await service.open_session(SessionRequest(project=str(tmp_path)))


async def attach(service: RuntimeService, session: str, project: Path, path: str, content: bytes) -> str:
    file = await StoredFiles(service.context, str(project)).store("a.txt", "text/plain", [content], by="api")
    return (await add_resource(service.context, session, plan_file(file, path), by="api")).id


async def use(service: RuntimeService, session: str, tool: str, **arguments: Any) -> dict[str, Any]:
    outcome = await service.call(session, tool, arguments)
    assert isinstance(outcome, Finished)
    return dict(outcome.output)


@proves("session-files.visible")
async def test_a_file_is_where_it_was_mounted_for_tools_and_for_commands(
    service: RuntimeService, session: str, tmp_path: Path
) -> None:
    await attach(service, session, tmp_path, f"{UPLOADS}/in/data.csv", b"a,b\n")
    await attach(service, session, tmp_path, "/workspace/deep/er/notes.txt", b"hello\n")

    read = await use(service, session, "read", path=f"{UPLOADS}/in/data.csv")
    shown = await use(service, session, "bash", command="cat", args=["/workspace/deep/er/notes.txt"])

    assert read["output"]["content"] == "a,b\n"
    assert shown["output"]["stdout"] == "hello\n"


@proves("session-files.read-only")
async def test_an_agent_cannot_change_a_file_that_was_mounted(service: RuntimeService, session: str, tmp_path: Path) -> None:
    await attach(service, session, tmp_path, "/workspace/data.csv", b"original")

    for path in ("/workspace/data.csv", f"{UPLOADS}/workspace/data.csv", f"{UPLOADS}/new.txt"):
        outcome = await service.call(session, "write", {"path": path, "content": "changed"})
        assert isinstance(outcome, Finished)
        read = await use(service, session, "read", path=f"{UPLOADS}/workspace/data.csv")
        assert read["output"]["content"] == "original"
    directory = session_directory(service.context, (await service.load(session)).record)
    assert not directory.joinpath("uploads", "new.txt").exists()


@proves("session-files.live")
async def test_a_live_sandbox_sees_what_is_added_and_no_longer_what_is_removed(
    service: RuntimeService, session: str, tmp_path: Path
) -> None:
    first = await attach(service, session, tmp_path, "/workspace/first.txt", b"1")
    await use(service, session, "read", path="/workspace/first.txt")
    await attach(service, session, tmp_path, f"{UPLOADS}/second.txt", b"2")
    await remove_resource(service.context, session, first, by="api")

    listed = await use(service, session, "bash", command="find", args=[UPLOADS, "/workspace", "-name", "*.txt"])

    assert listed["output"]["stdout"].split() == [f"{UPLOADS}/second.txt"]


@proves("session-files.kept")
async def test_a_session_keeps_a_file_that_was_deleted_later(service: RuntimeService, session: str, tmp_path: Path) -> None:
    files = StoredFiles(service.context, str(tmp_path))
    file = await files.store("a.txt", "", [b"kept"], by="api")
    await add_resource(service.context, session, plan_file(file, f"{UPLOADS}/a.txt"), by="api")
    await files.delete(file.id, by="api")

    read = await use(service, session, "read", path=f"{UPLOADS}/a.txt")

    assert read["output"]["content"] == "kept"


@proves("session-files.links")
async def test_no_link_of_the_agent_leads_a_file_out_of_the_workspace(
    service: RuntimeService, session: str, tmp_path: Path
) -> None:
    directory = session_directory(service.context, (await service.load(session)).record)
    outside = tmp_path / "outside"
    outside.mkdir()
    directory.joinpath("workspace", "dir").symlink_to(outside)
    directory.joinpath("workspace", "mine.txt").write_text("the agent's own")
    await attach(service, session, tmp_path, "/workspace/dir/planted.txt", b"x")
    await attach(service, session, tmp_path, "/workspace/mine.txt", b"x")

    await build_spec(service.context, await service.load(session))

    assert list(outside.iterdir()) == []
    assert directory.joinpath("workspace", "mine.txt").read_text() == "the agent's own"
    assert directory.joinpath("uploads", "workspace", "mine.txt").read_bytes() == b"x"


@proves("session-files.repeated")
async def test_files_are_placed_once_and_again_after_a_crash(service: RuntimeService, session: str, tmp_path: Path) -> None:
    await attach(service, session, tmp_path, f"{UPLOADS}/a.txt", b"content")
    await build_spec(service.context, await service.load(session))
    directory = session_directory(service.context, (await service.load(session)).record)
    placed = directory / "uploads" / "a.txt"
    before = placed.stat().st_ino

    await build_spec(service.context, await service.load(session))
    assert placed.stat().st_ino == before
    placed.unlink()
    directory.joinpath("uploads.json").unlink()
    await build_spec(service.context, await service.load(session))

    assert placed.read_bytes() == b"content"
