"""A runtime context for each test, with what is trusted in the directory of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.runtime.tools.model import RuntimeContext
from tests.runtime.support import FakeSandboxes, open_context


@pytest.fixture
async def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RuntimeContext]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    home = tmp_path / "home"
    home.mkdir()
    async with open_context(home, FakeSandboxes()) as opened:
        yield opened
