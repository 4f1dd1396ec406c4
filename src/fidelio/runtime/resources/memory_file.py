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
from typing import Literal, get_args

from fidelio.errors import ToolRefused

Section = Literal["learnings", "notes"]
SECTIONS: tuple[Section, ...] = get_args(Section)
# The second name is accepted for the same file.
MEMORY_FILES = ("MEMORY.md", "memory.md")


def check_memory(path: str, current: bytes | None, new: bytes) -> None:
    """Raise `ToolRefused` if a write of this path would change or damage a managed section."""
    if path not in MEMORY_FILES:
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


def render_section(section: Section, body: str) -> str:
    """A section with its marker lines."""
    begin, end = _markers(section)
    return "\n".join(filter(None, (begin, body.strip("\n"), end)))


def read_section(text: str, section: Section) -> str:
    """What stands between the marker lines of a section; empty if there is no such section, or if its markers are damaged."""
    found = _find_section(text.encode(errors="replace"), section)
    begin, end = _markers(section)
    return found.decode().removeprefix(begin).removesuffix(end).strip("\n") if isinstance(found, bytes) else ""


def write_section(text: str, section: Section, body: str) -> str:
    """The file with another content of a section; everything else stays. A section that is missing is added at the end.

    Raises `ToolRefused` if a marker in the body or in the file would make the sections ambiguous.
    """
    found = _find_section(text.encode(), section)
    if has_markers(body) or isinstance(found, bool):
        raise _make_marker_error(section, "the new content" if has_markers(body) else "the file")
    block = render_section(section, body)
    if found is None:
        gap = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{gap}{block}\n"
    new = text.replace(found.decode(), block, 1)
    others = (other for other in SECTIONS if other != section)
    if any(_find_section(text.encode(), other) != _find_section(new.encode(), other) for other in others):
        # The two sections overlap.
        raise _make_marker_error(section, "the file")
    return new


def has_markers(text: str) -> bool:
    """Whether a text contains a marker, and so could begin or end a section."""
    return any(marker in text for section in SECTIONS for marker in _markers(section))


def _markers(section: Section) -> tuple[str, str]:
    return f"<!-- fidelio:{section}:begin -->", f"<!-- fidelio:{section}:end -->"


def _make_marker_error(section: Section, where: str) -> ToolRefused:
    return ToolRefused(
        f"The managed section '{section}' of the memory file cannot be changed: {where} has markers that do not fit.",
        remedy="Leave the marker lines out of the content. A person has to repair a damaged file.",
        reason="managed_section",
    )


def _find_section(content: bytes, section: Section) -> bytes | bool | None:
    """The content of a section with its markers; None without markers; False if they are not a pair in order."""
    begin, end = (marker.encode() for marker in _markers(section))
    if begin not in content and end not in content:
        return None
    if content.count(begin) != 1 or content.count(end) != 1:
        return False
    found = re.search(re.escape(begin) + rb"(.*)" + re.escape(end), content, re.DOTALL)
    return found[0] if found else False
