"""Claude Code in a session: the service, its host, the inbox and the real program together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.home import Home
from fidelio.ledger import Ledger, open_ledger
from fidelio.orchestrator.executors.claude.executor import ClaudeExecutor
from fidelio.orchestrator.record.model import AgentSession
from fidelio.orchestrator.record.record import AGENT_CALLED, AGENT_RETURNED, AGENT_SAID
from fidelio.orchestrator.runs.host import AgentHost
from fidelio.orchestrator.service.service import AgentService
from fidelio.processes.spooled import find_marked
from tests.agents.bench import Bench, bench
from tests.agents.harness_claude import ClaudeHarness
from tests.agents.model import Held, ModelCall, ModelText, Spent
from tests.orchestrator.fakes import FakeBlueprints, start, wait_until
from tests.support import proves

CLAUDE = ClaudeHarness()


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    async with await open_ledger(Home(tmp_path / "fidelio").ensure().ledger) as ledger:
        yield ledger


def service_of(place: Bench, ledger: Ledger) -> AgentService:
    """A service whose agents know the scripted model."""
    blueprint = place.turn("", mode="ask", environment=place.environment).blueprint
    executor = ClaudeExecutor(place.environment)
    home = Home(place.place / "fidelio")
    return AgentService(
        ledger, FakeBlueprints({"porter": blueprint}), {"claude": executor}, home=home, project=str(place.project)
    )


async def ended(service: AgentService) -> AgentSession:
    return await wait_until(service, "porter", lambda one: one.status == "finished")


async def told(service: AgentService, name: str) -> list[str]:
    return [event.type for event in await service.events(name) if event.type in {AGENT_SAID, AGENT_CALLED, AGENT_RETURNED}]


@proves("agents.session")
async def test_an_agent_and_its_question_outlive_their_host_and_nothing_is_reported_twice(
    tmp_path: Path, ledger: Ledger
) -> None:
    made = tmp_path / "made"
    script = [ModelCall("list_workflows"), CLAUDE.shell(f"touch {made}"), ModelText("It is made.", Spent(50, 5))]
    async with bench(CLAUDE, tmp_path, script) as place:
        service = service_of(place, ledger)
        async with AgentHost(service.context):
            await start(service, "porter", "Make it.", blueprint="porter", executor="claude")
            asked = await wait_until(service, "porter", lambda one: one.question is not None)
        assert find_marked(asked.run.id), "the agent goes on without its host"
        async with AgentHost(service.context):
            await service.answer("porter", option="allow", by="person:anna", channel="cli")
            session = await ended(service)

    assert (session.run.state, session.run.detail, made.exists()) == ("succeeded", "", True)
    assert (session.run.usage.turns, session.run.tool_calls) == (3, 2)
    assert (await service.result("porter")).text == "It is made."
    assert await told(service, "porter") == [AGENT_CALLED, AGENT_RETURNED, AGENT_CALLED, AGENT_RETURNED, AGENT_SAID]
    assert find_marked(session.run.id) == []


@proves("agents.session")
async def test_a_session_is_stopped_and_resumed_in_the_same_conversation(tmp_path: Path, ledger: Ledger) -> None:
    async with bench(CLAUDE, tmp_path, [Held(ModelText("Too late.")), ModelText("Blue.")]) as place:
        service = service_of(place, ledger)
        async with AgentHost(service.context):
            first = await start(service, "porter", "Remember blue.", blueprint="porter", executor="claude")
            await place.model.asked(1)
            stopped = await service.stop("porter", by="person:anna")
            await ended(service)
            await service.resume("porter", "Which colour?")
            session = await ended(service)

    assert (stopped.id, session.run.state) == (first.id, "succeeded")
    assert (await service.result("porter")).text == "Blue."
    assert "Remember blue." in "\n".join(place.model.heard[-1].said)
