"""Findings: problems of definition files, with file, line, rule and remedy.

Readers, models, library and lint report problems in this one form, so that they can be sorted into one list.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A problem of a file. Line and column count from 1; 0 means the whole file."""

    file: str
    line: int
    column: int
    rule: str
    severity: Severity
    sentence: str
    remedy: str = ""

    def __str__(self) -> str:
        position = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{position}: {self.severity} {self.rule}: {self.sentence} {self.remedy}".rstrip()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


# The findings of readers and library. The reference page of lint documents them together with the lint rules.
READING_RULES: dict[str, str] = {
    "unreadable": "The file cannot be opened, or its text is not valid in its format.",
    "half-read": "The file can be decoded, but a part of it would be lost or would not mean what it appears to mean.",
    "too-large": "The file exceeds the limits of size, nesting or repetition.",
    "duplicate-key": "A mapping has the same key twice, so one of the two values would be lost.",
    "wrong-count": "A TOON header declares another number of entries than follow.",
    "schema": "The file is well-formed but does not match the schema of its kind of file.",
    "outside-root": "A path leads out of its directory.",
    "duplicate-id": "Two files of one kind have the same id, so one of them would never be served.",
    "bad-name": "The name of a file or directory is not a valid id, so it cannot be requested and is ignored.",
    "hidden-file": "Two files define the same workflow or component, and only one of them is used.",
    "front-matter": "The front matter of a Markdown file is not YAML. The page is served with it.",
    "unresolved-activity": "A workflow refers to an activity file that does not exist.",
}

# All other findings of readers and library are errors.
READING_WARNINGS = frozenset({"hidden-file", "front-matter"})


def error(file: str, rule: str, sentence: str, remedy: str = "", *, at: tuple[int, int] = (0, 0)) -> Finding:
    return Finding(file, at[0], at[1], rule, "error", sentence, remedy)


def warning(file: str, rule: str, sentence: str, remedy: str = "", *, at: tuple[int, int] = (0, 0)) -> Finding:
    return Finding(file, at[0], at[1], rule, "warning", sentence, remedy)
