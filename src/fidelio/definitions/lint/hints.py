"""A hint at the name that was probably meant.

Stricter than elsewhere: a misspelt name is worth a hint, but a hint at something that merely looks alike sends the author in
the wrong direction.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_ALIKE = 0.78


def near(name: str, known: Iterable[str]) -> str:
    """A question with the one name that was probably meant, or an empty text."""
    spelt = {candidate.casefold(): candidate for candidate in known}
    found = get_close_matches(name.casefold(), spelt, n=1, cutoff=_ALIKE)
    return f"Did you mean {spelt[found[0]]}?" if found else ""
