"""Skip or fail a test whose program or library is missing on this machine.

Normally the test is skipped with the reason; with `FIDELIO_REQUIRE_ALL=1` it fails, so that a full run cannot skip anything.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def require_part(name: str, how_to_install: str) -> NoReturn:
    """Skip or fail the test, because `name` was not found."""
    sentence = f"{name} is missing. {how_to_install}"
    if os.environ.get("FIDELIO_REQUIRE_ALL") == "1":
        pytest.fail(sentence, pytrace=False)
    pytest.skip(sentence)
