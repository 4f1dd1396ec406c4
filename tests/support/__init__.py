"""What tests share. `proves` ties a test to the promises in `requirements/`."""

from __future__ import annotations

import pytest


def proves(*ids: str) -> pytest.MarkDecorator:
    """Says which promises a test shows; `tests/test_requirements.py` checks the ids in both directions."""
    return pytest.mark.proves(*ids)
