"""The two managed sections of MEMORY.md: promoted learnings, and notes, each with its own tool.

A promotion of the whole file keeps them as they are, or is refused: otherwise it would be a way around these tools. A section
is what stands between its two marker lines:

    <!-- fidelio:learnings:begin -->
    <!-- fidelio:learnings:end -->
    <!-- fidelio:notes:begin -->
    <!-- fidelio:notes:end -->
"""

from __future__ import annotations

import re

from fidelio.errors import ToolRefused

SECTIONS = ("learnings", "notes")
# The second name is accepted for the same file.
_FILES = ("MEMORY.md", "memory.md")


def check_memory(path: str, current: bytes | None, new: bytes) -> None:
    """Raise `ToolRefused` if a write of this path would change or damage a managed section."""
    if path not in _FILES:
        return
    for section in SECTIONS:
        before = None if current is None else _find_section(current, section)
        after = _find_section(new, section)
        if after == before or (not isinstance(before, bytes) and isinstance(after, bytes)):
            continue
        what = "lacks" if after is None else "damages" if after is False else "changes"
        raise ToolRefused(
            f"The new content of {path} {what} the managed section '{section}'.",
            remedy=(
                f"Keep everything from <!-- fidelio:{section}:begin --> to <!-- fidelio:{section}:end --> as it is in the "
                "shared file. Stage the file again to see it."
            ),
            reason="managed_section",
        )


def _find_section(content: bytes, section: str) -> bytes | bool | None:
    """The content of a section with its markers; None without markers; False if they are not a pair in order."""
    begin, end = (f"<!-- fidelio:{section}:{which} -->".encode() for which in ("begin", "end"))
    if begin not in content and end not in content:
        return None
    if content.count(begin) != 1 or content.count(end) != 1:
        return False
    found = re.search(re.escape(begin) + rb"(.*)" + re.escape(end), content, re.DOTALL)
    return found[0] if found else False
