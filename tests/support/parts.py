"""Decides, in one place, what a test does when something it needs is not on this machine.

A developer without the part reads one line and goes on; the check that everything really ran sets `FIDELIO_REQUIRE_ALL=1`, and
then a missing part is a failure.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def require_part(name: str, how_to_install: str) -> NoReturn:
    """Called when `name` was looked for and not found."""
    sentence = f"{name} is missing. {how_to_install}"
    if os.environ.get("FIDELIO_REQUIRE_ALL") == "1":
        pytest.fail(sentence, pytrace=False)
    pytest.skip(sentence)
