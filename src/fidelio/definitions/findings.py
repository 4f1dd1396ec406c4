"""Findings: problems of definition files, with file, line, rule and remedy.

Readers, models, library and lint report problems in this one form, so that they can be sorted into one list.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One problem of a file. Line and column count from 1; 0 means the whole file."""

    file: str
    line: int
    column: int
    rule: str
    severity: Severity
    sentence: str
    remedy: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.severity} {self.rule}: {self.sentence} {self.remedy}".rstrip()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


# What reading and loading can find. Lint documents these beside its own rules, so the two lists never drift apart.
READING_RULES: dict[str, str] = {
    "unreadable": "The file cannot be opened, or is not text in its format.",
    "half-read": "The file can be decoded, but part of it would be lost or mean something else than it looks like.",
    "too-large": "The file is larger, deeper or more repetitive than any definition needs to be.",
    "duplicate-key": "A key is written twice in one place, so one of the two values would be lost.",
    "wrong-count": "A TOON header declares another number of entries than follow.",
    "schema": "The file is well-formed but does not say what its kind of file must say.",
    "outside-root": "A path leads out of the directory that it belongs to.",
    "duplicate-id": "Two files of one kind have the same id, so one of them would never be served.",
    "bad-name": "A file or directory has a name that is no id, so nobody can ask for it and it is left out.",
    "hidden-file": "Two files stand for the same thing, and only one of them is used.",
    "unresolved-activity": "A workflow refers to an activity file that is not there.",
}

# Everything else that reading finds is an error.
READING_WARNINGS = frozenset({"hidden-file"})


def error(file: str, rule: str, sentence: str, remedy: str = "", *, at: tuple[int, int] = (0, 0)) -> Finding:
    return Finding(file, at[0], at[1], rule, "error", sentence, remedy)


def warning(file: str, rule: str, sentence: str, remedy: str = "", *, at: tuple[int, int] = (0, 0)) -> Finding:
    return Finding(file, at[0], at[1], rule, "warning", sentence, remedy)
