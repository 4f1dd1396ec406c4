"""Codex in a session: the service, its host, the inbox and the real program together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.home import Home
from fidelio.ledger import Ledger, open_ledger
from fidelio.orchestrator.executors.codex.executor import CodexExecutor
from fidelio.orchestrator.record.model import AgentSession
from fidelio.orchestrator.record.record import AGENT_CALLED, AGENT_RETURNED, AGENT_SAID
from fidelio.orchestrator.runs.host import AgentHost
from fidelio.orchestrator.service.service import AgentService
from fidelio.processes.spooled import find_marked
from tests.agents.bench import Bench, bench
from tests.agents.harness_codex import CodexHarness
from tests.agents.model import ModelCall, ModelText
from tests.orchestrator.fakes import FakeBlueprints, start, wait_until
from tests.support import proves

CODEX = CodexHarness()


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    async with await open_ledger(Home(tmp_path / "fidelio").ensure().ledger) as ledger:
        yield ledger


def service_of(place: Bench, ledger: Ledger) -> AgentService:
    """A service whose agents know the scripted model."""
    blueprint = place.turn("", mode="ask", environment=place.environment).blueprint
    executor = CodexExecutor({**place.environment, "OPENAI_API_KEY": "test"})
    home = Home(place.place / "fidelio")
    return AgentService(
        ledger, FakeBlueprints({"porter": blueprint}), {"codex": executor}, home=home, project=str(place.project)
    )


async def ended(service: AgentService) -> AgentSession:
    return await wait_until(service, "porter", lambda one: one.status == "finished")


@proves("agents.session")
async def test_an_agent_and_its_question_outlive_their_host_and_nothing_is_reported_twice(
    tmp_path: Path, ledger: Ledger
) -> None:
    made = tmp_path / "made"
    script = [ModelCall("list_workflows"), CODEX.shell(f"touch {made}", asks=True), ModelText("It is made.")]
    async with bench(CODEX, tmp_path, script) as place:
        service = service_of(place, ledger)
        async with AgentHost(service.context):
            await start(service, "porter", "Make it.", blueprint="porter", executor="codex")
            asked = await wait_until(service, "porter", lambda one: one.question is not None)
        assert find_marked(asked.run.id), "the agent goes on without its host"
        async with AgentHost(service.context):
            await service.answer("porter", option="allow", by="person:anna", channel="cli")
            session = await ended(service)

    told = [event.type for event in await service.events("porter") if event.type in {AGENT_SAID, AGENT_CALLED, AGENT_RETURNED}]
    assert (session.run.state, session.run.detail, made.exists()) == ("succeeded", "", True)
    assert (session.run.usage.turns, session.run.tool_calls) == (3, 2)
    assert told == [AGENT_CALLED, AGENT_RETURNED, AGENT_CALLED, AGENT_RETURNED, AGENT_SAID]


@proves("agents.session", "agents.kept")
async def test_a_conversation_outlives_its_runs_and_is_deleted_with_its_session(tmp_path: Path, ledger: Ledger) -> None:
    async with bench(CODEX, tmp_path, [ModelText("I shall."), ModelText("Blue.")]) as place:
        service = service_of(place, ledger)
        async with AgentHost(service.context):
            session = await start(service, "porter", "Remember blue.", blueprint="porter", executor="codex")
            await ended(service)
            await service.resume("porter", "Which colour?")
            await ended(service)
        kept = service.context.home.agent_homes / session.id
        was_there = kept.is_dir()
        result = await service.result("porter")
        await service.delete("porter")

    assert (result.text, was_there, kept.exists()) == ("Blue.", True, False)
    assert "Remember blue." in "\n".join(place.model.heard[-1].said)
