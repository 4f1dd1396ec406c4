"""The worker that the runs of an application share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.home import Home
from fidelio.orchestrator.record.model import StartAgent
from fidelio.providers.model import ModelReply, ModelRequest, TextBlock
from fidelio.providers.registry import Providers
from fidelio.providers.scripted import ScriptedProvider
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import parse_agent
from fidelio.runtime.agents.versions import define_agent
from fidelio.runtime.service import NewAgentSession
from fidelio.runtime.wakes.record import WAKE_JOB
from fidelio.settings import Settings
from tests.support import proves

BLUEPRINT = "---\nname: echoer\ndescription: It answers.\nexecutor: fidelio\nmodel: scripted:quick\n---\nYou help.\n"


class Model:
    """Answers at once, except for a message that says to wait: then only when the test lets it."""

    def __init__(self) -> None:
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.cancelled = 0

    async def __call__(self, request: ModelRequest) -> ModelReply:
        if "Wait." in str(request.messages[-1].content):
            self.is_asked.set()
            try:
                await self.may_answer.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return ModelReply(content=(TextBlock("Done."),), stop_reason="end_turn")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    made = Model()

    def open_scripted(**_: Any) -> Providers:
        return Providers({"scripted": ScriptedProvider(made)})

    monkeypatch.setattr("fidelio.app.runtime.open_providers", open_scripted)
    return made


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    made.agents.mkdir(exist_ok=True)
    (made.agents / "echoer.md").write_text(BLUEPRINT)
    (tmp_path / "project").mkdir()
    return made


@pytest.fixture
async def app(home: Home, model: Model) -> AsyncIterator[Application]:
    async with open_application(home) as opened:
        yield opened


def open_application(home: Home) -> Application:
    return Application(Settings(home=home, ledger=str(home.ledger)))


async def begin_other(app: Application, project: Path) -> tuple[str, int]:
    """A session that no run follows, with a message that takes long."""
    runtime = await app.runtime()
    agent = parse_agent({"model": "scripted:slow"}, "The agent")
    await define_agent(runtime.context, str(project), "other", agent, by="person:test")
    session = await runtime.start_session(NewAgentSession(project=str(project), agent="other"))
    (sent,) = await runtime.send(session, [{"type": e.USER_MESSAGE, "content": "Wait."}], by="person:test", channel="cli")
    return session, sent.seq


async def carry_out(app: Application, project: Path, prompt: str) -> str:
    service = await app.agents()
    started = await service.start(StartAgent(prompt=prompt, name="one", blueprint="echoer", project=str(project)))
    await service.wait([started.id], mode="all", seconds=30)
    return str((await service.find(started.id)).run.state)


@proves("runtime.executor-worker")
async def test_the_end_of_a_run_cuts_off_no_wake_of_another_session(app: Application, model: Model, tmp_path: Path) -> None:
    session, seq = await begin_other(app, tmp_path / "project")
    assert await carry_out(app, tmp_path / "project", "Hello.") == "succeeded"
    async with asyncio.timeout(10):
        await model.is_asked.wait()
    model.may_answer.set()

    runtime = await app.runtime()
    async with asyncio.timeout(20):
        async for event in runtime.follow(session, after=seq):
            if event.type == e.STATUS_IDLE:
                break
    assert model.cancelled == 0


@proves("orchestrator.host-leaves")
async def test_a_run_goes_on_with_the_next_host_when_its_host_is_ended(
    home: Home, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fidelio.app.runtime._CLOSE_SECONDS", 0.0)
    monkeypatch.setattr("fidelio.orchestrator.runs.host_process.spawn_worker", lambda *_, **__: 0)
    async with open_application(home) as app:
        service = await app.agents()
        started = await service.start(
            StartAgent(prompt="Wait.", name="one", blueprint="echoer", project=str(tmp_path / "project"))
        )
        async with asyncio.timeout(10):
            await model.is_asked.wait()
    model.may_answer.set()
    async with open_application(home) as app:
        service = await app.agents()
        await service.wait([started.id], mode="all", seconds=30)

        assert [run.state for run in await service.runs(started.id)] == ["succeeded"]
        assert (await service.result(started.id)).text == "Done."


@proves("runtime.executor-worker")
async def test_a_wake_that_the_end_of_the_application_cuts_off_is_released(
    home: Home, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fidelio.app.runtime._CLOSE_SECONDS", 0.0)
    async with open_application(home) as app:
        await begin_other(app, tmp_path / "project")
        assert await carry_out(app, tmp_path / "project", "Hello.") == "succeeded"
        async with asyncio.timeout(10):
            await model.is_asked.wait()

    assert model.cancelled == 1
    async with open_application(home) as app:
        ledger = (await app.runtime()).context.ledger
        (job,) = await ledger.jobs(kind=WAKE_JOB)
        assert job.lease_expires == 0
