"""A session with a shell that exists only as values."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.runtime.tools.model import RuntimeContext
from tests.runtime.shell.double import ShellDouble
from tests.runtime.support import ToolBench, open_context, start_session
from tests.support.ledgers import MovingClock


@pytest.fixture
def clock() -> MovingClock:
    return MovingClock()


@pytest.fixture
def sandbox() -> ShellDouble:
    return ShellDouble()


@pytest.fixture
async def context(tmp_path: Path, sandbox: ShellDouble, clock: MovingClock) -> AsyncIterator[RuntimeContext]:
    async with open_context(tmp_path, sandbox, clock=clock) as opened:
        yield opened


@pytest.fixture
async def bench(context: RuntimeContext, tmp_path: Path) -> ToolBench:
    return await start_session(context, tmp_path)
