"""Rules of ignore files, as ripgrep applies them: `.gitignore` in a repository, `.ignore` and `.rgignore` everywhere.

The rules of the directories above the start apply too. Of one kind of file the deepest decides, and in it the last line that
matches; `.rgignore` wins over `.ignore`, that over `.gitignore`, that over `.git/info/exclude`. A file of the user's git
configuration is not read: the sandbox has none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NamedTuple

from fidelio.sandbox.inside.tree import Entry, Tree

_MAX_FILE = 1 << 20
_NAMES = (".rgignore", ".ignore", ".gitignore", ".git/info/exclude")
_OF_GIT = (".gitignore", ".git/info/exclude")


class IgnoreRule(NamedTuple):
    """A line of an ignore file. `excludes` is False for a line with `!`."""

    matches: Callable[[str], object]
    excludes: bool
    only_directories: bool


class DirectoryRules(NamedTuple):
    """The ignore files of a directory, by name, and whether it is the top of a repository."""

    files: dict[str, list[IgnoreRule]]
    has_git: bool


class IgnoreRules:
    """The ignore files that apply to a walk below `top`. Each is read once."""

    def __init__(self, tree: Tree, top: str) -> None:
        self._tree, self._top = tree, tree.resolve(top)
        self._loaded: dict[str, DirectoryRules] = {}

    def verdict(self, relative: str, entry: Entry) -> bool | None:
        """True if the entry is ignored, False if a rule re-includes it, None if no rule names it."""
        path = _bytewise(f"{self._top.rstrip('/')}/{relative}")
        is_directory = entry.kind == "directory"
        levels = [(directory, self._rules(directory)) for directory in _directories_above(path)]
        in_git = any(rules.has_git for _, rules in levels)
        for name in _NAMES:
            if name not in _OF_GIT or in_git:
                found = _first_verdict(levels, name, path, is_directory)
                if found is not None:
                    return found
        return None

    def _rules(self, directory: str) -> DirectoryRules:
        found = self._loaded.get(directory)
        if found is None:
            path = os.fsdecode(directory.encode("latin-1")).rstrip("/")
            files = {name: self._load(f"{path}/{name}") for name in _NAMES}
            found = self._loaded[directory] = DirectoryRules(files, self._exists(f"{path}/.git"))
        return found

    def _exists(self, path: str) -> bool:
        try:
            self._tree.stat(path)
        except OSError:
            return False
        return True

    def _load(self, path: str) -> list[IgnoreRule]:
        try:
            descriptor, _ = self._tree.open_file(path)
        except OSError:
            return []
        with os.fdopen(descriptor, "rb") as file:
            text = file.read(_MAX_FILE).decode("latin-1")
        rules = (parse_rule(line) for line in text.split("\n"))
        return [rule for rule in rules if rule is not None]


def _bytewise(path: str) -> str:
    """A text with a character for each byte: ripgrep matches bytes, so its `?` is no match for `é`."""
    return os.fsencode(path).decode("latin-1")


def _directories_above(path: str) -> list[str]:
    """The directory of a path and all above it, the deepest first."""
    found = []
    while path not in ("", "/"):
        path = path.rpartition("/")[0]
        found.append(path or "/")
    return found


def _first_verdict(levels: list[tuple[str, DirectoryRules]], name: str, path: str, is_directory: bool) -> bool | None:
    for directory, rules in levels:
        below = path[len(directory.rstrip("/")) + 1 :]
        for rule in reversed(rules.files[name]):
            if (is_directory or not rule.only_directories) and rule.matches(below):
                return rule.excludes
        if name in _OF_GIT and rules.has_git:
            # Above the top of a repository git's own files do not apply.
            return None
    return None


def parse_rule(line: str) -> IgnoreRule | None:
    """Parse a line of an ignore file; None for a comment, an empty line and an invalid pattern."""
    text = line.rstrip("\r")
    if text.startswith("#"):
        return None
    if not text.endswith("\\ "):
        text = text.rstrip()
    excludes = True
    if text.startswith(("\\!", "\\#")):
        text = text[1:]
    elif text.startswith("!"):
        text, excludes = text[1:], False
    is_anchored = text.startswith("/")
    text = text[1:] if is_anchored else text
    only_directories = text.endswith("/")
    text = text[:-1] if only_directories else text
    if not text:
        return None
    pattern = _translate(text if is_anchored or "/" in text or text == "**" else f"**/{text}")
    return None if pattern is None else IgnoreRule(pattern.fullmatch, excludes, only_directories)


def _translate(text: str) -> re.Pattern[str] | None:
    """Translate a pattern of an ignore file into a regular expression; None if it is invalid."""
    if text.endswith("/**"):
        # Everything in a directory, but not the directory itself.
        text += "/*"
    try:
        return re.compile(_Translation(text).run(), re.DOTALL)
    except (re.error, ValueError):
        return None


class _Translation:
    """Reads a pattern character by character."""

    def __init__(self, text: str) -> None:
        self.text, self.position, self.depth = text, 0, 0

    def run(self) -> str:
        output = []
        while self.position < len(self.text):
            output.append(self._next())
        if self.depth:
            raise ValueError("unclosed brace")
        return "".join(output)

    def _next(self) -> str:
        character = self.text[self.position]
        special = {"*": self._star, "[": self._class, "{": self._brace, "}": self._brace, ",": self._brace, "\\": self._escape}
        handler = special.get(character)
        if handler is not None:
            return handler()
        self.position += 1
        return "[^/]" if character == "?" else re.escape(character)

    def _star(self) -> str:
        start = self.position
        while self.text[self.position : self.position + 1] == "*":
            self.position += 1
        stars = self.position - start
        before, after = self.text[start - 1 : start], self.text[self.position : self.position + 1]
        if stars != 2 or before not in ("", "/") or after not in ("", "/"):
            return "[^/]*"
        if not after:
            return ".*"
        self.position += 1
        return "(?:.*/)?"

    def _class(self) -> str:
        start = self.position + 1
        negates = self.text[start : start + 1] in ("!", "^")
        start += int(negates)
        end = self.text.find("]", start + 1)
        if end < 0:
            raise ValueError("unclosed bracket")
        self.position = end + 1
        content = (
            self.text[start:end]
            .replace("\\", "\\\\")
            .replace("[", "\\[")
            .replace("&", "\\&")
            .replace("~", "\\~")
            .replace("|", "\\|")
        )
        content = content if not content.startswith(("^", "]")) else f"\\{content}"
        return f"[{'^' if negates else ''}{content}]"

    def _brace(self) -> str:
        character = self.text[self.position]
        self.position += 1
        if character == "," and not self.depth:
            return ","
        self.depth += {"{": 1, "}": -1, ",": 0}[character]
        if self.depth < 0:
            raise ValueError("unopened brace")
        return {"{": "(?:", "}": ")", ",": "|"}[character]

    def _escape(self) -> str:
        escaped = self.text[self.position + 1 : self.position + 2]
        if not escaped:
            raise ValueError("dangling backslash")
        self.position += 2
        return re.escape(escaped)
