"""A house with a ledger of its own for every test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.home import Home
from fidelio.ledger import open_ledger
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.fakes import House


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    project = tmp_path / "project"
    project.mkdir()
    home = Home(tmp_path / "home").ensure()
    async with await open_ledger(home.ledger) as ledger:
        yield House(ledger, home, project)


@pytest.fixture
def service(house: House) -> AgentService:
    """Of a process that asks and reads, and hosts nothing."""
    return house.service()


@pytest.fixture
async def hosted(house: House) -> AsyncIterator[AgentService]:
    """Of a process that carries out what it asks for."""
    service = house.service()
    async with house.host(service):
        yield service
