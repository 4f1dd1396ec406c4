"""The text behind a definition, for those who serve it: the bytes of the file, and the same as TOON."""

from __future__ import annotations

from typing import NamedTuple

from fidelio.definitions.library.files import Kept
from fidelio.definitions.reading.document import Document, Format


class Source(NamedTuple):
    """Where a definition comes from. `owner` is the workflow whose directory holds the file."""

    owner: str
    file: str
    document: Document

    @classmethod
    def of(cls, owner: str, kept: Kept) -> Source:
        return cls(owner, kept.name, kept.document())

    @property
    def format(self) -> Format:
        return self.document.format

    @property
    def content(self) -> bytes:
        """Byte for byte what stands in the file."""
        return self.document.raw

    @property
    def toon(self) -> str:
        """TOON files and Markdown as they are, YAML and JSON encoded as TOON."""
        return self.document.toon
