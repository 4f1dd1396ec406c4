"""Fixtures of the executor tests: a turn to carry out, a recording reporter, and a check that no process is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fidelio.orchestrator.executors.contract import Turn
from fidelio.processes.table import find_marked
from tests.orchestrator.executors.recording import RecordingReporter, make_turn


@pytest.fixture
def turn(tmp_path: Path) -> Iterator[Turn]:
    """A turn whose processes must all have ended when the test is over."""
    turn = make_turn(tmp_path)
    yield turn
    assert find_marked(turn.run) == [], "a test has left processes behind"


@pytest.fixture
def reporter() -> RecordingReporter:
    return RecordingReporter()
