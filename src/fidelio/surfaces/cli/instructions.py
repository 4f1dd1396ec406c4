"""A paragraph about Fidelio in the files of instructions that agents read: added and removed as text, between two comments.

Everything outside of the comments belongs to the people of the project and stays as it is. So does what they have changed
between the comments: then the paragraph is neither replaced nor removed.
"""

from __future__ import annotations

import re

from fidelio.surfaces.cli.config_files import CannotEdit

INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")
_BEGIN, _END = "<!-- fidelio: begin -->", "<!-- fidelio: end -->"
PARAGRAPH = f"""{_BEGIN}
## Workflows

This project has workflows in Fidelio, an MCP server that is configured under the name `fidelio`. Before a task that is more
than a small change, list the workflows. If one fits, start it, and work through the activities that the server hands out, in
its order. Report every step as it was done, and leave checkpoints that ask a person to a person. If the server is not
connected, say so, and do not imitate the workflow from memory.
{_END}
"""
_MARK = re.compile(r"<!-- fidelio: (begin|end) -->")


def add_paragraph(text: str) -> str:
    """Add the paragraph at the end. Returns the text unchanged if it is there. Raises `CannotEdit`."""
    if _find_paragraph(text):
        return text
    newline = _find_newline(text)
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    return text + gap + PARAGRAPH.replace("\n", newline)


def remove_paragraph(text: str) -> str:
    """Remove the paragraph and the empty line before it. Returns the text unchanged if it has none. Raises `CannotEdit`."""
    found = _find_paragraph(text)
    if not found:
        return text
    start, end = found
    newline = _find_newline(text)
    if text[start:end] != PARAGRAPH.replace("\n", newline).removesuffix(newline):
        lines = text[start:end].replace("\r\n", "\n")
        raise CannotEdit("somebody has changed its paragraph", "", lines)
    before, after = text[:start], text[end:].removeprefix(newline)
    return before.removesuffix(newline) + after if not after else before + after


def _find_paragraph(text: str) -> tuple[int, int] | None:
    """Where the paragraph begins and ends, with its comments; None if there is none."""
    marks = [*_MARK.finditer(text)]
    if not marks:
        return None
    if [mark[1] for mark in marks] != ["begin", "end"]:
        raise CannotEdit("its comments of Fidelio do not belong together", "once, in place of them", PARAGRAPH)
    return marks[0].start(), marks[1].end()


def _find_newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
