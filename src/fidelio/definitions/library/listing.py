"""Summaries of workflows for lists, read from the manifests without the models.

A list is usually the first request, so it must not wait until a validation library is imported.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fidelio.definitions.findings import Finding, error
from fidelio.definitions.library.locations import WorkflowLocation
from fidelio.definitions.reading.document import ParsedDocument
from fidelio.errors import UnreadableDefinition

_REQUIRED_KEYS = ("id", "version", "title")


class WorkflowSummary(NamedTuple):
    """Summary of a workflow. If it has findings, the workflow cannot be loaded, and some values may be empty."""

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


def summarize_workflow(location: WorkflowLocation) -> WorkflowSummary:
    try:
        document = location.read_manifest().document()
    except UnreadableDefinition as problem:
        findings = tuple(finding for finding in problem.findings if isinstance(finding, Finding))
        return WorkflowSummary(location.id, location.id, "", "", (), location.root.label, location.manifest, findings)
    data = document.data if isinstance(document.data, dict) else {}
    return WorkflowSummary(
        id=location.id,
        title=_text(data, "title") or location.id,
        version=_text(data, "version"),
        description=_text(data, "description"),
        tags=_tags(data),
        root=location.root.label,
        file=location.manifest,
        findings=tuple(_find_missing_keys(document, data)),
    )


def _text(data: dict[str, Any], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _tags(data: dict[str, Any]) -> tuple[str, ...]:
    tags = data.get("tags")
    return tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()


def _find_missing_keys(document: ParsedDocument, data: dict[str, Any]) -> list[Finding]:
    return [
        error(document.name, "schema", f"`{key}` is missing or no text.", f"Add `{key}:` in quotes.", at=document.at((key,)))
        for key in _REQUIRED_KEYS
        if not _text(data, key)
    ]
