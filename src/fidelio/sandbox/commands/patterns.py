"""Translation of the patterns of `grep` and `rg` into those of the `grep` tool.

Only what means the same in both languages for "does this line match" is translated: plain characters, `.`, anchors at the ends,
repetition of one character, escaped punctuation, and for `rg` alternatives. Everything else is not translated.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_QUERY = 2_000


class PatternDialect(NamedTuple):
    """A language of patterns. `repeats` follow an atom, `escapable` mean themselves after a backslash."""

    repeats: str
    # Not translated where they stand for more than themselves.
    refused: frozenset[str]
    escapable: frozenset[str]
    has_alternatives: bool


BASIC = PatternDialect("*", frozenset("["), frozenset(".*[]^$\\"), has_alternatives=False)
RUST = PatternDialect("*+?", frozenset("()[]{}"), frozenset("\\.+*?()|[]{}^$"), has_alternatives=True)


class GrepQuery(NamedTuple):
    """What the `grep` tool searches for."""

    text: str
    is_regex: bool


def translate_pattern(pattern: str, dialect: PatternDialect | None, *, ignores_case: bool) -> GrepQuery | None:
    """Return the query with the same meaning; None if that is not certain. Without a dialect the pattern is a plain text."""
    if not pattern or len(pattern) > MAX_QUERY // 2 or "\n" in pattern:
        return None
    if ignores_case and not pattern.isascii():
        # Case folding beyond ASCII differs between the three programs.
        return None
    return GrepQuery(pattern, False) if dialect is None else _translate(pattern, dialect)


def _translate(pattern: str, dialect: PatternDialect) -> GrepQuery | None:
    alternatives = _split(pattern) if dialect.has_alternatives else [pattern]
    translated = [_translate_alternative(each, dialect) for each in alternatives]
    known = [each for each in translated if each is not None]
    if len(known) < len(translated):
        return None
    if len(known) == 1 and not known[0].is_regex:
        return known[0]
    return GrepQuery("|".join(each.text if each.is_regex else _escape(each.text) for each in known), True)


def _split(pattern: str) -> list[str]:
    """Split at `|` that is not escaped."""
    return re.sub(r"(\\.)|\|", lambda found: found.group(1) or "\n", pattern).split("\n")


def _translate_alternative(text: str, dialect: PatternDialect) -> GrepQuery | None:
    body = text.removeprefix("^")
    is_open = body.endswith("$") and not _is_escaped_end(body)
    atoms = _atoms(body[:-1] if is_open else body, dialect)
    if not atoms:
        return None
    if body == text and not is_open and all(atom.literal and not atom.repeat for atom in atoms):
        return GrepQuery("".join(atom.literal for atom in atoms), False)
    middle = "".join(atom.regex for atom in atoms)
    return GrepQuery(f"{'^' if body != text else ''}{middle}{'$' if is_open else ''}", True)


class _Atom(NamedTuple):
    """A character of a pattern with its repetition. `literal` is empty for `.`."""

    literal: str
    repeat: str

    @property
    def regex(self) -> str:
        return (_escape(self.literal) if self.literal else ".") + self.repeat


def _escape(text: str) -> str:
    """Escape what has a meaning in Python's patterns, and nothing else: a person reads the query."""
    return re.sub(r"[.^$*+?{}\[\]\\|()]", r"\\\g<0>", text)


def _is_escaped_end(text: str) -> bool:
    before = text[:-1]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _atoms(text: str, dialect: PatternDialect) -> list[_Atom] | None:
    atoms: list[_Atom] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character in dialect.repeats:
            if not atoms or atoms[-1].repeat:
                return None
            atoms[-1] = atoms[-1]._replace(repeat=character)
            continue
        if character == "\\":
            character = text[position : position + 1]
            position += 1
            if not character or character not in dialect.escapable:
                return None
            atoms.append(_Atom(character, ""))
        elif character in dialect.refused or character in "^$":
            return None
        else:
            atoms.append(_Atom("" if character == "." else character, ""))
    return atoms
