"""How often a server looks for garbage that refers to itself. Said before anything heavy is imported, so it stands alone."""

from __future__ import annotations

import gc

# How many new objects there have to be before Python looks.
RARELY = 100_000


def collect_rarely() -> None:
    """What is imported and read at the start stays: looking through it again and again delays the first reply."""
    gc.set_threshold(RARELY, 20, 50)
