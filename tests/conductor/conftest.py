from __future__ import annotations

from pathlib import Path

import pytest

from tests.conductor.run_setup import RunSetup


@pytest.fixture
def setup(tmp_path: Path) -> RunSetup:
    return RunSetup(tmp_path)
