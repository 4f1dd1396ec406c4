"""Locations of workflows and lookup of their components by name or number. No file is parsed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from fidelio.definitions import META
from fidelio.definitions.findings import Finding, error
from fidelio.definitions.library.files import FileContent, Files, join_path
from fidelio.definitions.library.identifiers import (
    MARKDOWN,
    STRUCTURED,
    ComponentName,
    check_id,
    find_unusable_files,
    sort_components,
    split_reference,
    suggest_names,
)
from fidelio.definitions.library.memo import Memo
from fidelio.definitions.library.roots import find_candidates, find_unused_files, report_hidden, report_misnamed
from fidelio.definitions.reading.document import Format
from fidelio.errors import (
    BadId,
    Command,
    ComponentNotFound,
    Hint,
    InaccessibleDefinition,
    UnreadableDefinition,
    UntrustedProject,
    WorkflowNotFound,
)

RULES_FILES = ("rules.toon", "rules.yaml", "rules.yml", "rules.json")

ComponentFolder = Literal["activities", "skills", "resources", "templates"]
_FORMATS: dict[ComponentFolder, frozenset[Format]] = {
    "activities": STRUCTURED,
    "skills": STRUCTURED,
    "resources": STRUCTURED | MARKDOWN,
    "templates": MARKDOWN,
}


class Root(NamedTuple):
    """A directory with workflows. The label is its name in texts for people."""

    path: Path
    label: str


class WorkflowLocation(NamedTuple):
    """A workflow on disk. `directory` is empty for a workflow that is a single file."""

    id: str
    root: Root
    files: Files
    manifest: str
    directory: str

    def read_manifest(self) -> FileContent:
        return self.files.read(self.manifest)

    def path(self, folder: str, file: str) -> str:
        return join_path(self.directory, folder, file)

    def relative(self, path: str) -> str:
        return os.path.relpath(path, self.files.root)

    def components(self, folder: ComponentFolder) -> tuple[ComponentName, ...]:
        """The components of a kind, in order."""
        if not self.directory:
            return ()
        return self.components_in(self.folder(folder), _FORMATS[folder])

    def components_in(self, folder: str, formats: frozenset[Format]) -> tuple[ComponentName, ...]:
        return sort_components(self.files.everything(self._inner(folder)), formats)

    def find_misnamed(self, folder: ComponentFolder) -> list[Finding]:
        """Findings for files of a kind that are ignored because of their names."""
        return self.find_misnamed_in(self.folder(folder), _FORMATS[folder]) if self.directory else []

    def find_misnamed_in(self, folder: str, formats: frozenset[Format]) -> list[Finding]:
        directory = self._inner(folder)
        return [report_misnamed(directory, file) for file in find_unusable_files(self.files.everything(directory), formats)]

    def _inner(self, folder: str) -> str:
        return self.path(folder, "").rstrip(os.sep)

    def folder(self, folder: ComponentFolder) -> str:
        """The directory of components of this kind; older libraries call resources guides."""
        names = self.files.directories(self.directory)
        return "guides" if folder == "resources" and "resources" not in names and "guides" in names else folder

    def rules(self) -> str | None:
        if not self.directory:
            return None
        names = self.files.everything(self.directory)
        return next((self.path("", name) for name in RULES_FILES if name in names), None)

    def find_hidden_rules(self) -> Iterator[Finding]:
        """Findings for files with global rules that are hidden by another such file."""
        if self.directory:
            yield from report_hidden(
                self.directory, self.files.everything(self.directory), RULES_FILES, "The list of global rules"
            )


class WorkflowLocations:
    """All workflows of all roots. The last root that has an id provides the whole workflow."""

    def __init__(self, roots: Sequence[Root], memo: Memo, untrusted: Sequence[Root] = ()) -> None:
        self.memo = memo
        self._untrusted = untrusted
        self._roots = [(root, Files(os.fspath(root.path), self.memo)) for root in roots]

    def all(self) -> dict[str, WorkflowLocation]:
        found: dict[str, WorkflowLocation] = {}
        for root, files in self._roots:
            # A root that cannot be listed is reported by `findings`.
            with suppress(UnreadableDefinition):
                found.update(_find_workflows(root, files))
        return dict(sorted(found.items()))

    def find(self, workflow: str) -> WorkflowLocation:
        name = check_id(workflow)
        location = self.memo.get_or_make(("location", name), lambda _: self._search(name))
        if location is None:
            self._check_untrusted(name)
            remedy = suggest_names(name, self.all()) or Hint(
                Command("list"), " or the tool list_workflows shows what there is."
            )
            raise WorkflowNotFound(f"Workflow not found: {name}.", remedy=remedy)
        return location

    def _check_untrusted(self, name: str) -> None:
        """Raise `UntrustedProject` if a root that is not used has the workflow. Only names are looked at."""
        for root in self._untrusted:
            with suppress(UnreadableDefinition):
                if next(find_candidates(Files(os.fspath(root.path), Memo()), only=name), None):
                    raise _make_untrusted_error(name, root)

    def _search(self, name: str) -> WorkflowLocation | None:
        """Look only at paths where the workflow could be, so that other workflows cost nothing.

        If a later root is inaccessible, it is unknown which root provides the workflow, and that is an error.
        """
        for root, files in reversed(self._roots):
            try:
                found = dict(_find_workflows(root, files, only=name))
            except InaccessibleDefinition as problem:
                raise _hide_root(problem) from None
            if found:
                return found[name]
        return None

    def findings(self) -> list[Finding]:
        """Findings for roots that cannot be listed and for files that are not used."""
        return [finding for _, files in self._roots for finding in find_unused_files(files)]


def _find_workflows(root: Root, files: Files, *, only: str | None = None) -> Iterator[tuple[str, WorkflowLocation]]:
    for candidate in find_candidates(files, only=only):
        if candidate.id is not None:
            yield candidate.id, WorkflowLocation(candidate.id, root, files, candidate.manifest, candidate.directory)


def _hide_root(problem: InaccessibleDefinition) -> InaccessibleDefinition:
    """The same error without the directory, because the caller may be a client that must not see paths of the server."""
    found = problem.findings[0]
    name = os.path.basename(found.file)  # noqa: PTH119  # a name, not a path
    return InaccessibleDefinition([error(name, found.rule, found.sentence, found.remedy)])


FoundComponent = tuple[WorkflowLocation, ComponentName]

_KIND_NAMES: dict[ComponentFolder, str] = {
    "activities": "Activity",
    "skills": "Skill",
    "resources": "Resource",
    "templates": "Template",
}


def find_component(
    locations: WorkflowLocations, folder: ComponentFolder, reference: str, *, workflow: str, after: Sequence[str | None] = ()
) -> FoundComponent:
    """The first file that matches the reference, or `ComponentNotFound`."""
    explicit, name = split_reference(reference, folder)
    candidates = tuple(_search_order(locations, explicit or workflow, () if explicit else (*after, META)))
    for location in candidates:
        if (component := _find_match(location, folder, name)) is not None:
            return location, component
    known = {component.id for location in candidates for component in location.components(folder)}
    sentence = f"{_KIND_NAMES[folder]} not found: {name} in workflow {explicit or workflow}."
    raise ComponentNotFound(
        sentence, remedy=suggest_names(name, known) or f"Write `workflow/{name}` for a component of another workflow."
    )


def read_component(location: WorkflowLocation, folder: ComponentFolder, component: ComponentName) -> FileContent:
    return location.files.read(location.path(location.folder(folder), component.file))


def _search_order(locations: WorkflowLocations, first: str, further: Sequence[str | None]) -> Iterator[WorkflowLocation]:
    start = locations.find(first)
    yield start
    seen = {start.id}
    for workflow in further:
        try:
            location = locations.find(workflow) if workflow else None
        except (WorkflowNotFound, BadId):
            continue
        if location is not None and location.id not in seen:
            seen.add(location.id)
            yield location


def _find_match(location: WorkflowLocation, folder: ComponentFolder, name: str) -> ComponentName | None:
    components = location.components(folder)
    by_name = next((component for component in components if component.matches(name)), None)
    if by_name is not None or folder not in ("resources", "templates"):
        return by_name
    return next((component for component in components if component.has_index(name)), None)


def _make_untrusted_error(name: str, root: Root) -> UntrustedProject:
    project = str(root.path.parent.parent)
    return UntrustedProject(
        f"Workflow not found: {name}. The project {project} has one, but nobody has trusted its workflows.",
        remedy=Hint("A person can see and trust them with ", Command("trust", project), "; then start the server again."),
    )
