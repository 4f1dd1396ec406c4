"""How often a server looks for garbage that refers to itself. Said before anything heavy is imported, so it stands alone."""

from __future__ import annotations

import gc

# How many new objects there have to be before Python looks. Over HTTP every request leaves some behind.
RARELY = 100_000
NOW_AND_THEN = 20_000


def collect_rarely(after: int = RARELY) -> None:
    """What is imported and read at the start stays: looking through it again and again delays the replies."""
    gc.set_threshold(after, 20, 50)
