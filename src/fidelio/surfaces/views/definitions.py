"""JSON of workflows in a list."""

from __future__ import annotations

import msgspec

from fidelio.definitions.library import WorkflowSummary


class FindingView(msgspec.Struct, frozen=True):
    """A problem of a definition file. Line and column count from 1; 0 means the whole file."""

    file: str
    line: int
    column: int
    rule: str
    severity: str
    sentence: str
    remedy: str


class WorkflowEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow in a list. `from`: which part of the search path provides it. `broken`: it cannot be started."""

    id: str
    title: str
    version: str
    description: str
    tags: tuple[str, ...]
    origin: str = msgspec.field(name="from")
    file: str
    broken: bool
    findings: tuple[FindingView, ...]


def view_workflow(entry: WorkflowSummary) -> WorkflowEntry:
    return WorkflowEntry(
        id=entry.id,
        title=entry.title,
        version=entry.version,
        description=entry.description,
        tags=entry.tags,
        origin=entry.root,
        file=entry.file,
        broken=entry.broken,
        findings=tuple(FindingView(**finding.as_json()) for finding in entry.findings),
    )
