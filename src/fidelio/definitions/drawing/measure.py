"""Estimate the width of text without a font.

The estimates use proportions that common sans-serif fonts share, and are rather too large than too small: a wide box looks
fine, a text that exceeds its box does not.
"""

from __future__ import annotations

import unicodedata

_NARROW = frozenset("iIjl.,:;'|!`")
_SLIM = frozenset('ftr()[]{}-"\\/ *')
_WIDE = frozenset("mMwW@%")
_ELLIPSIS = "…"


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """The approximate width of one line, in the unit of `size`."""
    ems = sum(_ems(character) for character in text)
    return ems * size * (1.1 if bold else 1.0)


def _ems(character: str) -> float:
    if character in _NARROW:
        return 0.29
    if character in _SLIM:
        return 0.37
    if character in _WIDE:
        return 0.9
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if unicodedata.combining(character):
        return 0.0
    return 0.7 if character.isupper() else 0.575


def wrap(text: str, limit: float, size: float, *, lines: int = 4, bold: bool = False) -> tuple[str, ...]:
    """Breaks a text into at most `lines` lines no wider than `limit`; what does not fit ends in an ellipsis.

    The lines are of about the same length: a last line with one short word on it looks like a mistake.
    """
    done = _fill_lines(text, limit, size, bold=bold)
    if len(done) > lines:
        return (*done[: lines - 1], shorten(" ".join(done[lines - 1 :]), limit, size, bold=bold))
    return tuple(_balance_lines(done, text, limit, size, bold=bold))


def _balance_lines(done: list[str], text: str, limit: float, size: float, *, bold: bool) -> list[str]:
    longest_word = max((text_width(word, size, bold=bold) for word in text.split()), default=0.0)
    narrower = limit - size / 2
    while len(done) > 1 and narrower >= longest_word:
        tighter = _fill_lines(text, narrower, size, bold=bold)
        if len(tighter) > len(done):
            break
        done, narrower = tighter, narrower - size / 2
    return done


def _fill_lines(text: str, limit: float, size: float, *, bold: bool) -> list[str]:
    done: list[str] = []
    for word in _split_words(text, limit, size, bold=bold):
        joined = f"{done[-1]} {word}" if done else word
        if done and text_width(joined, size, bold=bold) <= limit:
            done[-1] = joined
        else:
            done.append(word)
    return done


def _split_words(text: str, limit: float, size: float, *, bold: bool) -> list[str]:
    return [piece for word in text.split() for piece in _break_word(word, limit, size, bold=bold)]


def _break_word(word: str, limit: float, size: float, *, bold: bool) -> list[str]:
    """A word wider than a line is cut where it must be; identifiers without a space would leave their box otherwise."""
    pieces = [""]
    for character in word:
        if pieces[-1] and text_width(pieces[-1] + character, size, bold=bold) > limit:
            pieces.append("")
        pieces[-1] += character
    return pieces


def shorten(text: str, limit: float, size: float, *, bold: bool = False) -> str:
    """The beginning of a text that fits, with an ellipsis where something was left off."""
    if text_width(text, size, bold=bold) <= limit:
        return text
    kept = text
    while kept and text_width(kept + _ELLIPSIS, size, bold=bold) > limit:
        kept = kept[:-1]
    return kept.rstrip() + _ELLIPSIS
