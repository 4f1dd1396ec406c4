"""A harness with a ledger of its own for every test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.home import Home
from fidelio.ledger import open_ledger
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.fakes import OrchestratorHarness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[OrchestratorHarness]:
    project = tmp_path / "project"
    project.mkdir()
    home = Home(tmp_path / "home").ensure()
    async with await open_ledger(home.ledger) as ledger:
        yield OrchestratorHarness(ledger, home, project)


@pytest.fixture
def service(harness: OrchestratorHarness) -> AgentService:
    """Of a process that asks and reads, and hosts nothing."""
    return harness.service()


@pytest.fixture
async def hosted(harness: OrchestratorHarness) -> AsyncIterator[AgentService]:
    """Of a process that carries out what it asks for."""
    service = harness.service()
    async with harness.host(service):
        yield service
