"""Runs of the executor `fidelio`: an agent of the runtime behind the orchestrator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.app.application import Application
from fidelio.home import Home
from fidelio.orchestrator.record.model import AgentSession, StartAgent
from fidelio.orchestrator.service.service import AgentService
from fidelio.settings import Settings
from tests.support import proves

BLUEPRINT = "---\nname: {name}\ndescription: An agent of the runtime.\nexecutor: fidelio\nmodel: {model}\n---\nYou help.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    agents = directory / ".fidelio" / "agents"
    agents.mkdir(parents=True)
    (directory / "notes.txt").write_text("one\n")
    return directory


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Application]:
    home = Home(tmp_path / "home")
    home.ensure()
    home.agents.mkdir(exist_ok=True)
    for name, model in (("echoer", "scripted:echo"), ("worker", "scripted:demo"), ("lost", "claude-nothing")):
        (home.agents / f"{name}.md").write_text(BLUEPRINT.format(name=name, model=model))
    async with Application(Settings(home=home, ledger=str(home.ledger))) as opened:
        yield opened


async def start(app: Application, project: Path, blueprint: str, prompt: str) -> tuple[AgentService, AgentSession]:
    service = await app.agents()
    started = await service.start(StartAgent(name="one", prompt=prompt, blueprint=blueprint, project=str(project)))
    return service, started


@proves("runtime.executor-result")
async def test_a_run_of_a_runtime_agent_returns_what_it_said(app: Application, project: Path) -> None:
    service, session = await start(app, project, "echoer", "Say hello.")
    await service.wait([session.id], mode="all", seconds=60)

    assert "Say hello." in (await service.result(session.id)).text
    await service.resume(session.id, "And again.")
    await service.wait([session.id], mode="all", seconds=60)
    assert "And again." in (await service.result(session.id)).text
    assert [run.state for run in await service.runs(session.id)] == ["succeeded", "succeeded"]


@proves("runtime.executor-waits")
async def test_a_run_waits_for_the_request_of_the_runtime_session(app: Application, project: Path) -> None:
    await app.host_sandboxes()
    service, session = await start(app, project, "worker", "Write hello.")
    async with asyncio.timeout(60):
        request = await anext(aiter((await app.inbox()).follow()))
    await service.wait([session.id], mode="all", seconds=30)
    assert (await service.find(session.id)).run.state == "waiting"

    await (await app.inbox()).answer(request.id, "allow", by="person:test", channel="cli")
    await service.wait([session.id], mode="all", seconds=60)
    assert "bytes are counted" in (await service.result(session.id)).text


@proves("runtime.executor-stop")
async def test_stopping_a_run_interrupts_the_session(app: Application, project: Path) -> None:
    await app.host_sandboxes()
    service, session = await start(app, project, "worker", "Write hello.")
    await service.wait([session.id], mode="all", seconds=60)
    await service.stop(session.id, by="person:test")

    runtime = await app.runtime()
    listed = await (await app.records()).sessions(kind="runtime")
    (inner,) = [found for found in listed.items if found.name is None]
    async with asyncio.timeout(30):
        async for event in runtime.follow(inner.id):
            if event.type == "session.status_idle" and event.body["stop_reason"]["type"] == "end_turn":
                break
    assert (await (await app.inbox()).list_requests()).items == ()


@proves("runtime.executor-failure")
async def test_a_model_that_cannot_be_used_fails_the_run_with_what_to_do(
    app: Application, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    service, session = await start(app, project, "lost", "Hello.")
    await service.wait([session.id], mode="all", seconds=60)

    run = (await service.runs(session.id))[0]
    assert run.state == "failed"
    assert "ANTHROPIC_API_KEY" in run.detail
