"""A ledger with runtime sessions for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runtime.recall.support import RecallWorld
from tests.runtime.support import FakeSandboxes, open_context
from tests.support.ledgers import MovingClock


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[RecallWorld]:
    clock = MovingClock()
    async with open_context(tmp_path, FakeSandboxes(), clock=clock) as context:
        yield RecallWorld(context, clock)
