"""Fixtures of the tests of the persistent shell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sandbox.inside.launching import Sandbox, bare_sandbox, isolated_sandbox, make_spec


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncIterator[Sandbox]:
    """The process inside, on the bare machine."""
    async with bare_sandbox(tmp_path) as sandbox:
        yield sandbox


@pytest.fixture
async def isolated(tmp_path: Path) -> AsyncIterator[Sandbox]:
    """A real sandbox."""
    async with isolated_sandbox(make_spec(tmp_path)) as sandbox:
        yield sandbox
