"""Read-first rules: the read-only call that probably answers what the user just wrote. Pure.

The first rule that fits wins. A rule suggests nothing that changes anything, and nothing for a message that asks for a change
of the file it names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from fidelio.sandbox.model import LEARNINGS, RUNTIME, SUBSTRATE, WORKSPACE

Rule: TypeAlias = Callable[[str], tuple[str, dict[str, Any]] | None]

BOOTSTRAP_FILES = (
    *("AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md", "BOOTSTRAP.md", "MEMORY.md"),
)
# Longer messages are read from their beginning: what is asked for is said there.
_READ_CHARS = 4_000
_MAX_QUERY = 120
_LISTED_FILES = 40
_READING = re.compile(
    r"\b(quote|exact(ly)?|verbatim|lines?|read|open|inspect|show|print|display|view|see|contents?|cat|check|summari[sz]e|explain"
    r"|what does|what is in|what's in)\b",
    re.IGNORECASE,
)
_EDITING = re.compile(
    r"\b(edit|change|replace|update|rewrite|write|add|append|remove|delete|create|rename|fix|insert|promote|refactor)\b",
    re.IGNORECASE,
)
_OUTPUT = re.compile(
    r"\b(last (command|output|run|result)|stdout|stderr|what happened|output of the (last )?command|the logs?"
    r"|what did it print)\b",
    re.IGNORECASE,
)
_SEARCHING = re.compile(
    r"\b(find|search(es)?|grep|locate|contains?|match(es)?|where is|where are|which files?|look for|occurrences? of)\b",
    re.IGNORECASE,
)
_LISTING = re.compile(
    r"\b(list|show|see|which|what)\b[^.?!]{0,40}\b(files|directories|folders|workspace)\b|\bls\b|\bdirectory listing\b",
    re.IGNORECASE,
)
_DIRECTORY = re.compile(
    r"\b(pwd|cwd|current (working )?directory|working directory|which directory|where am i|where are you)\b", re.IGNORECASE
)
_EXTENSIONS = "md|txt|py|js|ts|tsx|jsx|json|yaml|yml|toml|ini|cfg|sh|html|css|csv|sql|rs|go|java|rb|c|h|cpp|log|xml|lock"
_PATH = re.compile(rf"(?<![\w/.:-])(/?(?:[\w.-]+/)*[\w.-]+\.(?:{_EXTENSIONS})|/[\w.-]+(?:/[\w.-]+)+)(?![\w/])", re.IGNORECASE)
_QUOTED = re.compile(r'"([^"\n]{2,120})"|`([^`\n]{2,120})`|“([^”\n]{2,120})”|\'([^\'\n]{2,120})\'')
_WORD = re.compile(r"[A-Za-z_][\w.-]{2,}")
_COMMON_TEXT = """
a about all an and any anywhere are can code codebase could directory does every file files find finds folder for from grep
have i in inside is it locate look me my need of on or please project repo repository search searches show that the their
them there these this to us use used uses want we what where which who with word workspace would you your contain contains
containing defined definition match matches matching occurrence occurrences text string line lines tell list give know first
"""
# Words of the question itself, never what is searched for.
_COMMON = frozenset(_COMMON_TEXT.split())
_READABLE = (WORKSPACE, RUNTIME, LEARNINGS)


def find_read_first(message: str, *, has_last_command: bool) -> tuple[str, str, dict[str, Any]] | None:
    """The name of the rule that fits, and the tool and arguments that it suggests; None if none fits."""
    text = message[:_READ_CHARS]
    for name, rule in _rules(has_last_command=has_last_command):
        found = rule(text)
        if found is not None:
            return name, *found
    return None


def _rules(*, has_last_command: bool) -> Iterator[tuple[str, Rule]]:
    yield "bootstrap_file", _read_bootstrap
    if has_last_command:
        yield "last_output", _read_output
    yield "file", _read_path
    yield "search", _search
    yield "list_files", _list_files
    yield "directory", _find_directory


def _read_bootstrap(text: str) -> tuple[str, dict[str, Any]] | None:
    named = next((file for file in BOOTSTRAP_FILES if re.search(rf"(?<![\w/.]){re.escape(file)}\b", text, re.IGNORECASE)), None)
    if named is None or not _READING.search(text) or _EDITING.search(text):
        return None
    return "read", {"path": f"{SUBSTRATE}/{named}"}


def _read_output(text: str) -> tuple[str, dict[str, Any]] | None:
    return ("shell_read_last_output", {}) if _OUTPUT.search(text) else None


def _read_path(text: str) -> tuple[str, dict[str, Any]] | None:
    found = _PATH.search(text)
    # The words of the path itself are no verbs.
    around = text.replace(found[0], " ") if found else ""
    if found is None or not _READING.search(around) or _EDITING.search(around):
        return None
    path = found[1].rstrip(".")
    if not path.startswith("/"):
        return "read", {"path": f"{WORKSPACE}/{path}"}
    return ("read", {"path": path}) if path.startswith(tuple(f"{mount}/" for mount in _READABLE)) else None


def _search(text: str) -> tuple[str, dict[str, Any]] | None:
    query = _find_query(text) if _SEARCHING.search(text) else ""
    if not query:
        return None
    return "grep", {"path": WORKSPACE, "query": query[:_MAX_QUERY], "caseSensitive": False}


def _find_query(text: str) -> str:
    """What is searched for: a quoted text, else the word that looks most like a name, else the first that is not common."""
    quoted = _QUOTED.search(text)
    if quoted is not None:
        return next(part for part in quoted.groups() if part)
    words = [word.rstrip(".-") for word in _WORD.findall(text)]
    candidates = [word for word in words if word.lower() not in _COMMON]
    names = [word for word in candidates if re.search(r"[_.\d-]|[a-z][A-Z]", word)]
    return next(iter([*names, *candidates]), "")


def _list_files(text: str) -> tuple[str, dict[str, Any]] | None:
    return ("glob", {"path": WORKSPACE, "pattern": "**/*", "limit": _LISTED_FILES}) if _LISTING.search(text) else None


def _find_directory(text: str) -> tuple[str, dict[str, Any]] | None:
    return ("bash", {"command": "pwd", "args": []}) if _DIRECTORY.search(text) else None
