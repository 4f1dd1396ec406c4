"""The subject of lint rules: a workflow with its models, their files, and lookups in the library."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from fidelio.definitions import META
from fidelio.definitions.flow import collect_activity_ids, find_variable_domains
from fidelio.definitions.library import ComponentName, Library
from fidelio.definitions.library.identifiers import parse_component_name
from fidelio.definitions.library.locations import ComponentFolder
from fidelio.definitions.library.roots import MANIFESTS
from fidelio.definitions.models import Activity, Workflow
from fidelio.definitions.models.base import Path
from fidelio.definitions.models.components import Skill
from fidelio.definitions.reading import ParsedDocument, Position
from fidelio.definitions.static_conditions import VariableDomain
from fidelio.errors import BadId, ComponentNotFound, UnreadableDefinition, WorkflowNotFound

_FOLDERS: tuple[ComponentFolder, ...] = ("activities", "skills", "resources", "templates")
_WHOLE_FILE = Position(0, 0)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file, or the part of it at `inside`. Without a document, positions refer to the whole file."""

    file: str
    document: ParsedDocument | None = None
    inside: Path = ()
    borrowed: bool = False

    def at(self, path: Path) -> Position:
        if self.document is None:
            return _WHOLE_FILE
        full = (*self.inside, *path)
        for candidate in (full, *_older_spellings(full)):
            if candidate in self.document.positions:
                return self.document.positions[candidate]
        return self.document.at(full)


def _older_spellings(path: Path) -> Iterator[Path]:
    """The paths in older files, in which a target is next to the effect, and a single trigger is not in a list."""
    for index, step in enumerate(path):
        if step == "effect" or (step == 0 and index and path[index - 1] == "triggers"):
            yield (*path[:index], *path[index + 1 :])


@dataclass(frozen=True, slots=True)
class ActivitySubject:
    """An activity and its file."""

    activity: Activity
    source: SourceFile


@dataclass(frozen=True, slots=True)
class SkillSubject:
    """A skill of the workflow and its file."""

    skill: Skill
    source: SourceFile


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file whose id is in its content and in the name of the file or directory."""

    kind: str
    id: str
    expected: str
    where: str
    source: SourceFile


@dataclass(frozen=True)
class LintSubject:
    """The workflow that is checked."""

    library: Library
    key: str
    workflow: Workflow
    manifest: SourceFile
    activities: tuple[ActivitySubject, ...]
    skills: tuple[SkillSubject, ...]
    workflow_ids: frozenset[str]

    @cached_property
    def activity_ids(self) -> frozenset[str]:
        return collect_activity_ids(self.workflow)

    @cached_property
    def readable_ids(self) -> frozenset[str]:
        return frozenset(activity.id for activity in self.workflow.activities)

    @cached_property
    def variable_domains(self) -> dict[str, VariableDomain]:
        return find_variable_domains(self.workflow)

    def has_skill(self, reference: str, user: ActivitySubject | None) -> bool:
        owner = user.activity.owner if user else None
        return _exists(lambda: self.library.skill(reference, workflow=self.key, owner=owner))

    def has_resource(self, reference: str) -> bool:
        name = reference.removeprefix("resources/")
        return _exists(lambda: self.library.resource(name, workflow=self.key, last_skill_owner=self.key))

    def skill_names(self) -> list[str]:
        workflows = (self.key, META) if META in self.workflow_ids else (self.key,)
        return [component.id for workflow in workflows for component in _list_components(self.library, "skills", workflow)]

    @property
    def directory(self) -> str:
        return os.path.dirname(self.manifest.file)  # noqa: PTH120  # the library names its files as text

    @property
    def numbered_files(self) -> Iterator[list[tuple[ComponentName, SourceFile]]]:
        """The files with a number, directory by directory."""
        for folder in _FOLDERS:
            names = [name for name in _list_components(self.library, folder, self.key) if name.index]
            yield [(name, SourceFile(os.path.join(self.directory, folder, name.file))) for name in names]  # noqa: PTH118  # the library names its files as text

    @property
    def named_files(self) -> Iterator[NamedFile]:
        assert self.manifest.document is not None
        own_id = self.manifest.document.data["id"]
        in_directory = os.path.basename(self.manifest.file) in MANIFESTS  # noqa: PTH119  # the library names its files as text
        yield NamedFile("workflow", own_id, self.key, "directory" if in_directory else "file", self.manifest)
        files = [("activity", entry.activity.id, entry.source) for entry in self.activities]
        files += [("skill", entry.skill.id, entry.source) for entry in self.skills]
        for kind, name, source in files:
            file = parse_component_name(os.path.basename(source.file))  # noqa: PTH119  # the library names its files as text
            if file is not None and not source.inside:
                yield NamedFile(kind, name, file.id, "file", source)


def _exists(look_up: Callable[[], object]) -> bool:
    try:
        look_up()
    except (ComponentNotFound, WorkflowNotFound, BadId):
        return False
    except UnreadableDefinition:
        # It exists; the error is reported for the file itself.
        return True
    return True


def list_subjects(library: Library, only: str | None = None) -> Iterator[LintSubject]:
    """The subjects of all workflows that can be read, or of the workflow `only`."""
    entries = library.list()
    ids = frozenset(entry.id for entry in entries)
    for entry in entries:
        if only not in (None, entry.id):
            continue
        try:
            yield _build_subject(library, entry.id, ids)
        except UnreadableDefinition:
            continue


def _build_subject(library: Library, key: str, ids: frozenset[str]) -> LintSubject:
    # Use the same version for all activities: each request to the library checks every file of the workflow again.
    version = library.version(key)
    text = library.source("workflow", workflow=key)
    manifest = SourceFile(text.file, text.document)
    # Of two with the same id, the first is used.
    inside = dict(reversed([*list_inline_activities(manifest)]))

    def make_subject(activity: Activity) -> ActivitySubject:
        text = version.source(activity.id)
        if text.file == manifest.file:
            return ActivitySubject(activity, SourceFile(text.file, manifest.document, inside[activity.id]))
        return ActivitySubject(activity, SourceFile(text.file, text.document, borrowed=text.owner != key))

    activities = tuple(map(make_subject, version.workflow.activities))
    return LintSubject(library, key, version.workflow, manifest, activities, tuple(_list_skills(library, key)), ids)


def list_inline_activities(manifest: SourceFile) -> Iterator[tuple[str, Path]]:
    """The ids of the activities in the manifest itself with their paths, including duplicates."""
    assert manifest.document is not None
    for index, entry in enumerate(manifest.document.data.get("activities") or ()):
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            yield entry["id"], ("activities", index)


def _list_components(library: Library, folder: ComponentFolder, key: str) -> tuple[ComponentName, ...]:
    """The names of the files in a directory; none if it cannot be listed, which is reported for the directory itself."""
    try:
        return library.components(folder, key)
    except UnreadableDefinition:
        return ()


def _list_skills(library: Library, key: str) -> Iterator[SkillSubject]:
    for name in _list_components(library, "skills", key):
        try:
            loaded = library.skill(name.file, workflow=key)
        except UnreadableDefinition:
            continue
        yield SkillSubject(loaded.definition, SourceFile(loaded.source.file, loaded.source.document))
