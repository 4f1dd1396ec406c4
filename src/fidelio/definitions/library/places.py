"""Where each workflow lies: which root has it, its manifest, and the names of its parts. Nothing is parsed for this."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fidelio.definitions.findings import Finding
from fidelio.definitions.library.files import Files, Kept, join
from fidelio.definitions.library.ids import checked_id, near
from fidelio.definitions.library.memo import Memo
from fidelio.definitions.library.names import MARKDOWN, STRUCTURED, PartName, in_order
from fidelio.definitions.reading.document import Format
from fidelio.errors import BadId, UnreadableDefinition, WorkflowNotFound

META = "meta"
MANIFESTS = ("workflow.toon", "workflow.yaml", "workflow.yml", "workflow.json")
_RULES = ("rules.toon", "rules.yaml", "rules.yml", "rules.json")
_SUFFIXES = (".toon", ".yaml", ".yml", ".json")

Folder = Literal["activities", "skills", "resources", "templates"]
_FORMATS: dict[Folder, frozenset[Format]] = {
    "activities": STRUCTURED,
    "skills": STRUCTURED,
    "resources": STRUCTURED | MARKDOWN,
    "templates": MARKDOWN,
}


@dataclass(frozen=True, slots=True)
class Root:
    """A directory with workflows. The label says to people where a workflow came from."""

    path: Path
    label: str


@dataclass(frozen=True, slots=True)
class Place:
    """One workflow on disk. `directory` is empty for a workflow that is a single file."""

    id: str
    root: Root
    files: Files
    manifest: str
    directory: str

    def read_manifest(self) -> Kept:
        return self.files.read(self.manifest)

    def path(self, folder: str, file: str) -> str:
        return join(self.directory, folder, file)

    def relative(self, path: str) -> str:
        return os.path.relpath(path, self.files.root)

    def parts(self, folder: Folder) -> tuple[PartName, ...]:
        """The parts of one kind, in order."""
        if not self.directory:
            return ()
        return self.parts_in(self.folder(folder), _FORMATS[folder])

    def parts_in(self, folder: str, formats: frozenset[Format]) -> tuple[PartName, ...]:
        return in_order(self.files.everything(self.path(folder, "").rstrip(os.sep)), formats)

    def folder(self, folder: Folder) -> str:
        """Where parts of this kind lie; older libraries call the resources guides."""
        names = self.files.directories(self.directory)
        return "guides" if folder == "resources" and "resources" not in names and "guides" in names else folder

    def rules(self) -> str | None:
        if not self.directory:
            return None
        names = self.files.everything(self.directory)
        return next((self.path("", name) for name in _RULES if name in names), None)


class Places:
    """All workflows of all roots. The last root that has an id has it whole."""

    def __init__(self, roots: Sequence[Root]) -> None:
        self.memo = Memo()
        self._roots = [(root, Files(os.fspath(root.path), self.memo)) for root in roots]

    def all(self) -> dict[str, Place]:
        found: dict[str, Place] = {}
        for root, files in self._roots:
            found.update(_workflows(root, files))
        return dict(sorted(found.items()))

    def find(self, workflow: str) -> Place:
        name = checked_id(workflow)
        place = self.memo.remembered(("place", name), lambda: self._search(name))
        if place is None:
            remedy = near(name, self.all()) or "See what there is with `fidelio list`."
            raise WorkflowNotFound(f"Workflow not found: {name}.", remedy=remedy)
        return place

    def _search(self, name: str) -> Place | None:
        """Looks only where the workflow could lie, so that its neighbours cost nothing."""
        for root, files in reversed(self._roots):
            if found := dict(_workflows(root, files, only=name)):
                return found[name]
        return None

    def findings(self) -> list[Finding]:
        """Roots that cannot be listed."""
        found: list[Finding] = []
        for _, files in self._roots:
            try:
                files.everything(files.root)
            except UnreadableDefinition as problem:
                found.extend(finding for finding in problem.findings if isinstance(finding, Finding))
        return found


def _workflows(root: Root, files: Files, *, only: str | None = None) -> Iterable[tuple[str, Place]]:
    try:
        entries = files.everything(files.root)
    except UnreadableDefinition:
        return
    for name in (name for name in entries if name.endswith(_SUFFIXES)):
        if (identifier := _id_of(name.rpartition(".")[0])) and only in (None, identifier):
            yield identifier, Place(identifier, root, files, join(files.root, name), "")
    for name in files.directories(files.root):
        identifier = _id_of(name)
        if identifier and only in (None, identifier) and (manifest := _manifest(files, join(files.root, name))):
            yield identifier, Place(identifier, root, files, manifest, join(files.root, name))


def _manifest(files: Files, directory: str) -> str | None:
    try:
        names = files.everything(directory)
    except UnreadableDefinition:
        # Whoever asks for it is told why; a workflow that silently is not there would be worse.
        return join(directory, MANIFESTS[0])
    return next((join(directory, name) for name in MANIFESTS if name in names), None)


def _id_of(name: str) -> str | None:
    try:
        return checked_id(name)
    except BadId:
        return None
