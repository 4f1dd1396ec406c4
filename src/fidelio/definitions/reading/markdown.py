"""Markdown reader with front matter: YAML between two `---` lines at the beginning, then the text.

A block that is not a mapping is part of the text, because a page may begin with a horizontal rule. So is front matter that is a
broken mapping: the page is served whole, with a finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypedDict

from fidelio.definitions.findings import Finding, warning
from fidelio.definitions.reading.positions import Position, Positions
from fidelio.definitions.reading.yaml import locate as locate_yaml
from fidelio.definitions.reading.yaml import parse as parse_yaml
from fidelio.errors import UnreadableDefinition

_FRONT = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_KEY_FIRST = re.compile(r"\s*(?:#[^\n]*\n\s*)*[A-Za-z_][\w-]*[ \t]*:(?:\s|$)")
_HEADING = re.compile(r"^#[ \t]+(.+?)[ \t#]*$", re.MULTILINE)


class MarkdownPage(TypedDict):
    """The content of a Markdown file."""

    front: dict[str, Any]
    body: str


def parse(text: str, name: str) -> MarkdownPage:
    front = _match_front_matter(text)
    if front is None:
        return MarkdownPage(front={}, body=text)
    try:
        data = parse_yaml(front.group(1), name)
    except UnreadableDefinition:
        return MarkdownPage(front={}, body=text)
    return MarkdownPage(front=data if isinstance(data, dict) else {}, body=text[front.end() :])


def find_suspicious_lines(text: str, name: str) -> Iterator[Finding]:
    """What is wrong with front matter that is not YAML."""
    front = _match_front_matter(text)
    try:
        if front is not None:
            parse_yaml(front.group(1), name)
    except UnreadableDefinition as problem:
        for found in problem.findings:
            sentence = f"The front matter is not used, and the page is served with it: {found.sentence}"
            yield warning(name, "front-matter", sentence, found.remedy, at=(found.line + 1, found.column))


def check_front_matter(text: str, name: str) -> None:
    """Raise `UnreadableDefinition` for front matter that is not YAML, where a page is nothing without it."""
    if (front := _match_front_matter(text)) is not None:
        parse_yaml(front.group(1), name)


def locate(text: str) -> Positions:
    front = _match_front_matter(text)
    try:
        found = locate_yaml(front.group(1)) if front else {}
        if front:
            parse_yaml(front.group(1), "")
    except UnreadableDefinition:
        front, found = None, {}
    positions: Positions = {("front", *path): Position(position.line + 1, position.column) for path, position in found.items()}
    body = text.count("\n", 0, front.end()) + 1 if front else 1
    return positions | {(): Position(1, 1), ("body",): Position(body, 1)}


def find_first_heading(body: str) -> str | None:
    return match.group(1) if (match := _HEADING.search(body)) else None


def _match_front_matter(text: str) -> re.Match[str] | None:
    match = _FRONT.match(text)
    return match if match and (not match.group(1).strip() or _KEY_FIRST.match(match.group(1))) else None
