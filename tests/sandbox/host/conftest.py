"""Fixtures of the host of the sandboxes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandbox.host.fakes import HostHarness


@pytest.fixture
def harness(tmp_path: Path) -> HostHarness:
    return HostHarness(tmp_path / "home")
