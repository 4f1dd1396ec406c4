"""Fixtures of the host of the sandboxes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.host.fakes import HostHarness


@pytest.fixture
def harness(tmp_path: Path) -> HostHarness:
    return HostHarness(tmp_path / "home")


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user can enter. Other runs of pytest close the one above `tmp_path` at any moment."""
    with tempfile.TemporaryDirectory(prefix="fidelio-open-") as name:
        Path(name).chmod(0o777)
        yield Path(name)
