"""Helpers of the tests. `proves` links a test to the requirements in `requirements/`."""

from __future__ import annotations

import pytest


def proves(*ids: str) -> pytest.MarkDecorator:
    """Mark the requirements that a test proves; `tests/test_requirements.py` checks the ids in both directions."""
    return pytest.mark.proves(*ids)
