"""Where each workflow lies: which root has it, its manifest, and the names of its parts. Nothing is parsed for this."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from fidelio.definitions.findings import Finding, error
from fidelio.definitions.library.files import Files, Kept, join
from fidelio.definitions.library.identifiers import MARKDOWN, STRUCTURED, PartName, checked_id, in_order, near, unusable
from fidelio.definitions.library.memo import Memo
from fidelio.definitions.library.roots import candidates, further, misnamed, passed_over
from fidelio.definitions.reading.document import Format
from fidelio.errors import UnreachableDefinition, UnreadableDefinition, WorkflowNotFound

_RULES = ("rules.toon", "rules.yaml", "rules.yml", "rules.json")

Folder = Literal["activities", "skills", "resources", "templates"]
_FORMATS: dict[Folder, frozenset[Format]] = {
    "activities": STRUCTURED,
    "skills": STRUCTURED,
    "resources": STRUCTURED | MARKDOWN,
    "templates": MARKDOWN,
}


class Root(NamedTuple):
    """A directory with workflows. The label says to people where a workflow came from."""

    path: Path
    label: str


class Place(NamedTuple):
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
        return in_order(self.files.everything(self._inner(folder)), formats)

    def misnamed(self, folder: Folder) -> list[Finding]:
        """The files of one kind that are left out for their names."""
        return self.misnamed_in(self.folder(folder), _FORMATS[folder]) if self.directory else []

    def misnamed_in(self, folder: str, formats: frozenset[Format]) -> list[Finding]:
        where = self._inner(folder)
        return [misnamed(where, file) for file in unusable(self.files.everything(where), formats)]

    def _inner(self, folder: str) -> str:
        return self.path(folder, "").rstrip(os.sep)

    def folder(self, folder: Folder) -> str:
        """Where parts of this kind lie; older libraries call the resources guides."""
        names = self.files.directories(self.directory)
        return "guides" if folder == "resources" and "resources" not in names and "guides" in names else folder

    def rules(self) -> str | None:
        if not self.directory:
            return None
        names = self.files.everything(self.directory)
        return next((self.path("", name) for name in _RULES if name in names), None)

    def further_rules(self) -> Iterator[Finding]:
        """Files with global rules that another one hides."""
        if self.directory:
            yield from further(self.directory, self.files.everything(self.directory), _RULES, "The list of global rules")


class Places:
    """All workflows of all roots. The last root that has an id has it whole."""

    def __init__(self, roots: Sequence[Root]) -> None:
        self.memo = Memo()
        self._roots = [(root, Files(os.fspath(root.path), self.memo)) for root in roots]

    def all(self) -> dict[str, Place]:
        found: dict[str, Place] = {}
        for root, files in self._roots:
            # What cannot be listed is missing here, and `findings` says so.
            with suppress(UnreadableDefinition):
                found.update(_workflows(root, files))
        return dict(sorted(found.items()))

    def find(self, workflow: str) -> Place:
        name = checked_id(workflow)
        place = self.memo.remembered(("place", name), lambda: self._search(name))
        if place is None:
            remedy = near(name, self.all()) or "`fidelio list` or the tool list_workflows shows what there is."
            raise WorkflowNotFound(f"Workflow not found: {name}.", remedy=remedy)
        return place

    def _search(self, name: str) -> Place | None:
        """Looks only where the workflow could lie, so that its neighbours cost nothing.

        Which root has it cannot be said while one that outweighs the others cannot be looked at.
        """
        for root, files in reversed(self._roots):
            try:
                found = dict(_workflows(root, files, only=name))
            except UnreachableDefinition as problem:
                raise _without_root(problem) from None
            if found:
                return found[name]
        return None

    def findings(self) -> list[Finding]:
        """Roots that cannot be listed, and what lies in a root and is not used."""
        return [finding for _, files in self._roots for finding in passed_over(files)]


def _workflows(root: Root, files: Files, *, only: str | None = None) -> Iterator[tuple[str, Place]]:
    for one in candidates(files, only=only):
        if one.id is not None:
            yield one.id, Place(one.id, root, files, one.manifest, one.directory)


def _without_root(problem: UnreachableDefinition) -> UnreachableDefinition:
    """The same by its name alone: where a root lies is what `findings` says, and whoever asks for a workflow may be anybody."""
    found = problem.findings[0]
    name = os.path.basename(found.file)  # noqa: PTH119  # a name, not a path
    return UnreachableDefinition([error(name, found.rule, found.sentence, found.remedy)])
