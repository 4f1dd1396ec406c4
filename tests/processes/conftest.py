"""Fixtures for tests of processes: the turn and the recording of the executors' tests."""

from __future__ import annotations

from tests.orchestrator.executors.conftest import reporter, turn

__all__ = ["reporter", "turn"]
