"""The memory file that all sessions of an agent in a project share: MEMORY.md, a shared file with two managed sections.

It is part of every prompt. So each write is a new version on top of the version that was seen, a person has agreed to its
content, and the sections are bounded.
"""

from __future__ import annotations

import msgspec

from fidelio.errors import ToolRefused
from fidelio.runtime.bootstrap.files import find_file, render_text
from fidelio.runtime.permissions.approvals import escape
from fidelio.runtime.resources.memory_file import MEMORY_FILES, Section, read_section, write_section
from fidelio.runtime.resources.versions import NewVersion, SharedFile, Substrate, decode_text

# Characters of a section. All bootstrap files together have 24,000 characters of the prompt.
MAX_SECTION = 16_000
# What the versions of the file name as their source. A draft of a workspace has a relative path.
LEARNINGS_SOURCE = "/memory/learnings"
NOTES_SOURCE = "/memory/notes/"


class WorkspaceMemory(msgspec.Struct, frozen=True):
    """The memory file as it is now, or as it would begin."""

    file: SharedFile
    text: str

    @property
    def version_id(self) -> str | None:
        return self.file.version.version_id if self.file.version else None

    def section(self, section: Section) -> str:
        return read_section(self.text, section)

    def with_section(self, section: Section, body: str) -> str:
        """The file with another content of a section. Raises `ToolRefused` if that is not possible or becomes too long."""
        if len(body) > MAX_SECTION:
            raise ToolRefused(
                f"The section '{section}' of {self.file.path} would have {len(body)} characters; the limit is {MAX_SECTION}.",
                remedy="Write less: the section is part of every prompt.",
                reason="memory_full",
            )
        return write_section(self.text, section, body)


async def load_workspace_memory(substrate: Substrate) -> WorkspaceMemory:
    """The memory file; if it is missing, or a person has redacted its content, the text that a new file begins with."""
    file = await find_file(substrate, MEMORY_FILES[0])
    content = None if file.version is None else await substrate.find_content(file.version)
    text = render_text(MEMORY_FILES[0], substrate.agent) if content is None else decode_text(content)
    if text is None:
        raise ToolRefused(
            f"The shared file {file.path} is not a text.",
            remedy="A person has to restore an earlier version of it.",
            reason="not_text",
        )
    return WorkspaceMemory(file, text)


async def build_version(substrate: Substrate, memory: WorkspaceMemory, text: str, *, session: str, source: str) -> NewVersion:
    """The next version of the memory file, on top of the version that was seen."""
    return await substrate.new_version(memory.file, text.encode(), origin="promotion", session=session, source=source)


def clean_line(text: str) -> str:
    """A text of an agent as a line of the memory file: no control characters, and no comment that could be a marker."""
    return escape(text).replace("<!--", "&lt;!--").replace("-->", "--&gt;")
