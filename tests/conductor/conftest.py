from __future__ import annotations

from pathlib import Path

import pytest

from tests.conductor.orchestra import Orchestra


@pytest.fixture
def orchestra(tmp_path: Path) -> Orchestra:
    return Orchestra(tmp_path)
