"""The little that a list of workflows shows, taken from the manifests alone and without the models.

A list is the first thing anybody asks for, so it must not wait for a validation library to be imported.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fidelio.definitions.findings import Finding, error
from fidelio.definitions.library.locations import Place
from fidelio.definitions.reading.document import Document
from fidelio.errors import UnreadableDefinition

_NEEDED = ("id", "version", "title")


class Entry(NamedTuple):
    """One line of the list. With findings, the workflow cannot be loaded; what could be read of it is shown all the same."""

    id: str
    title: str
    version: str
    description: str
    tags: tuple[str, ...]
    root: str
    file: str
    findings: tuple[Finding, ...] = ()

    @property
    def broken(self) -> bool:
        return bool(self.findings)


def entry(place: Place) -> Entry:
    try:
        document = place.read_manifest().document()
    except UnreadableDefinition as problem:
        findings = tuple(finding for finding in problem.findings if isinstance(finding, Finding))
        return Entry(place.id, place.id, "", "", (), place.root.label, place.manifest, findings)
    data = document.data if isinstance(document.data, dict) else {}
    return Entry(
        id=place.id,
        title=_text(data, "title") or place.id,
        version=_text(data, "version"),
        description=_text(data, "description"),
        tags=_tags(data),
        root=place.root.label,
        file=place.manifest,
        findings=tuple(_gaps(document, data)),
    )


def _text(data: dict[str, Any], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _tags(data: dict[str, Any]) -> tuple[str, ...]:
    tags = data.get("tags")
    return tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()


def _gaps(document: Document, data: dict[str, Any]) -> list[Finding]:
    return [
        error(document.name, "schema", f"`{key}` is missing or no text.", f"Add `{key}:` in quotes.", at=document.at((key,)))
        for key in _NEEDED
        if not _text(data, key)
    ]
