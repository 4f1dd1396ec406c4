"""A home whose sandboxes read and write files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.home import Home
from fidelio.ledger import open_ledger
from fidelio.runtime.record import RuntimeRecords
from tests.runtime.artifacts.support import FileBench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[FileBench]:
    home = Home(tmp_path / "home").ensure()
    async with await open_ledger(home.ledger) as ledger:
        ledger.record_type = lambda kind: RuntimeRecords() if kind == "runtime" else None
        yield FileBench(home, ledger)
