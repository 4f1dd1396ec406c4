"""A ledger with runtime sessions for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runtime.navigation.support import World
from tests.runtime.support import FakeSandboxes, open_context


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_context(tmp_path, FakeSandboxes()) as context:
        yield World(context)
