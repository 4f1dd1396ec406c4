"""A ledger with runtime sessions for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.home import Home
from fidelio.ledger import open_ledger
from fidelio.runtime.record import RuntimeRecords
from tests.runtime.navigation.support import World
from tests.runtime.resources.support import Bench
from tests.runtime.support import FakeSandboxes, open_context


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_context(tmp_path, FakeSandboxes()) as context:
        yield World(context)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A home whose sandboxes read and write files."""
    home = Home(tmp_path / "home").ensure()
    async with await open_ledger(home.ledger) as ledger:
        ledger.record_type = lambda kind: RuntimeRecords() if kind == "runtime" else None
        yield Bench(home, ledger)
