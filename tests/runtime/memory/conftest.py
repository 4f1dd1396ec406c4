"""A home with a ledger for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.home import Home
from fidelio.ledger import open_ledger
from fidelio.runtime.record import RuntimeRecords
from tests.runtime.memory.support import MemoryBench
from tests.support.ledgers import MovingClock


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[MemoryBench]:
    home = Home(tmp_path / "home").ensure()
    clock = MovingClock()
    async with await open_ledger(home.ledger, clock=clock) as ledger:
        ledger.record_type = lambda kind: RuntimeRecords() if kind == "runtime" else None
        yield MemoryBench(home, ledger, clock)
