"""The sample library and a home, for tests that call the services through the tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.ledger import open_ledger
from fidelio.ledger.model import Event
from fidelio.settings import Settings, load_settings
from tests.dialects.sample_workflow import write_sample_workflow


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return write_sample_workflow(tmp_path / "workflows")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(environ={"FIDELIO_HOME": str(tmp_path / "home"), "FIDELIO_MIN_RESPONSE_SECONDS": "0"})


async def list_events(settings: Settings, *types: str) -> list[Event]:
    async with await open_ledger(settings.ledger) as ledger:
        return list(await ledger.events(types=types))
