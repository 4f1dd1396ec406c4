"""Patterns of `glob_entries`: `*`, `?`, `**` and `{a,b}`.

A pattern is a list of names that is matched name by name while a tree is walked, so directories in which nothing can match are
not entered. `**` as a whole name stands for any number of directories; brackets are ordinary characters, because frameworks use
them in file names.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from typing import NamedTuple

from fidelio.sandbox.inside.failures import Failure

_ANY_DEPTH = "**"
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MAX_ALTERNATIVES = 64

# Positions in the alternatives of a pattern: (alternative, number of names that are matched).
States = frozenset[tuple[int, int]]


class Name(NamedTuple):
    """A name of a pattern. Without `matches` it is `**`."""

    text: str
    matches: re.Pattern[str] | None


class GlobPattern:
    """A compiled pattern. `hidden` says whether wildcards match names that begin with a dot."""

    def __init__(self, text: str, *, hidden: bool) -> None:
        self._alternatives = [_names_of(each) for each in _expand_braces(text)]
        self._text, self._hidden = text, hidden
        self.start = self._close((number, 0) for number in range(len(self._alternatives)))

    @property
    def is_recursive(self) -> bool:
        return any(name.matches is None for names in self._alternatives for name in names)

    def step(self, states: States, name: str) -> States:
        """The states after a further name; empty if nothing below it can match."""
        return self._close(after for state in states for after in self._advance(state, name))

    def accepts(self, states: States) -> bool:
        return any(position == len(self._alternatives[number]) for number, position in states)

    def accepts_name(self, name: str) -> bool:
        """Whether a path that is named itself matches: no name is hidden then."""
        visible = GlobPattern(self._text, hidden=True)
        return visible.accepts(visible.step(visible.start, name))

    def _advance(self, state: tuple[int, int], name: str) -> Iterable[tuple[int, int]]:
        number, position = state
        names = self._alternatives[number]
        if position == len(names):
            return
        current = names[position]
        if name.startswith(".") and not (self._hidden or current.text.startswith(".")):
            return
        if current.matches is None:
            yield number, position
        elif current.matches.match(name):
            yield number, position + 1

    def _close(self, states: Iterable[tuple[int, int]]) -> States:
        """Add what follows `**` without a further name."""
        found = set()
        for number, position in states:
            found.add((number, position))
            names, after = self._alternatives[number], position
            while after < len(names) and names[after].matches is None:
                after += 1
                found.add((number, after))
        return frozenset(found)


def _names_of(text: str) -> list[Name]:
    if text.startswith("/"):
        raise Failure("invalid_pattern", f"The pattern {text!r} is absolute. Put the directory into path.")
    texts = [each for each in text.split("/") if each not in ("", ".")]
    if not texts or ".." in texts or "\0" in text:
        raise Failure("invalid_pattern", f"{text!r} is not a pattern of names below path. Example: **/*.py")
    if texts[-1] == _ANY_DEPTH:
        # The directory itself is not below it.
        texts.append("*")
    return [Name(each, None if each == _ANY_DEPTH else _compile(each)) for each in texts]


def _compile(text: str) -> re.Pattern[str]:
    # The standard translation takes linear time for `*a*a*a*b`, a plain `.*a.*a.*a.*b` does not.
    return re.compile(fnmatch.translate(text.replace("[", "[[]")))


def _expand_braces(text: str) -> list[str]:
    expanded, pending = [], [text]
    while pending:
        current = pending.pop()
        found = _BRACES.search(current)
        if found is None:
            expanded.append(current)
        else:
            pending += [current[: found.start()] + each + current[found.end() :] for each in found.group(1).split(",")]
        if len(pending) + len(expanded) > _MAX_ALTERNATIVES:
            raise Failure("invalid_pattern", f"The braces in {text!r} give more than {_MAX_ALTERNATIVES} patterns. Use fewer.")
    return expanded
