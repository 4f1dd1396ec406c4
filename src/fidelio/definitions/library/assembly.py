"""Assemble a workflow from its manifest, its own activities and those that it borrows from other workflows.

An activity that cannot be read is left out and named in `broken`, so that an error in one file does not make the workflow
unusable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from fidelio.definitions.findings import Finding, error
from fidelio.definitions.library.files import DefinitionSource, FileContent
from fidelio.definitions.library.identifiers import STRUCTURED, ComponentName, check_inner_folder, split_reference
from fidelio.definitions.library.listing import WorkflowSummary
from fidelio.definitions.library.loading import get_findings, load_manifest, load_model
from fidelio.definitions.library.locations import ComponentFolder, WorkflowLocation, WorkflowLocations, read_component
from fidelio.definitions.models import Activity, Workflow, WorkflowManifest
from fidelio.definitions.parsing import name_kind, validate
from fidelio.definitions.reading.document import ParsedDocument, read_text
from fidelio.definitions.reading.positions import Path
from fidelio.definitions.toon_writer import encode_toon
from fidelio.errors import BadId, InaccessibleDefinition, UnreadableDefinition, WorkflowNotFound

_EXCLUDED_FROM_HEAD = frozenset({"activities", "activities_dir", "broken"})


class ActivitySource(NamedTuple):
    """The file of an activity before it is parsed, or the findings that say why there is none."""

    key: str
    owner: str
    content: FileContent | None = None
    name: ComponentName | None = None
    inside: Path = ()
    findings: tuple[Finding, ...] = ()


class AssembledWorkflow(NamedTuple):
    """A workflow and the source of each of its activities."""

    location: WorkflowLocation
    workflow: Workflow
    manifest: FileContent
    sources: tuple[ActivitySource, ...]
    origins: dict[str, ActivitySource]
    findings: tuple[Finding, ...]

    def source(self, activity: str) -> DefinitionSource:
        source = self.origins[activity]
        assert source.content is not None, "an activity that was read has a file"
        if not source.inside:
            return DefinitionSource.of(source.owner, source.content)
        return DefinitionSource(source.owner, source.content.name, _extract(source.content.document(), source.inside))

    def snapshot(self) -> dict[str, Any]:
        """The definition as JSON, dumped part by part, because the serializer of the whole model is expensive to build."""
        head = load_manifest(self.manifest).model_dump(mode="json", by_alias=True, exclude=set(_EXCLUDED_FROM_HEAD))
        return {
            **head,
            "id": self.location.id,
            "activities": [activity.model_dump(mode="json", by_alias=True) for activity in self.workflow.activities],
        }


def collect_activity_sources(
    location: WorkflowLocation, locations: WorkflowLocations
) -> tuple[FileContent, tuple[ActivitySource, ...]]:
    manifest = location.read_manifest()
    file = load_manifest(manifest)
    local = tuple(_collect_local(location, file.activities_dir, manifest))
    entries = manifest.document().data.get("activities") or ()
    return manifest, (
        *local,
        *(_resolve_entry(index, entry, location, locations, manifest) for index, entry in enumerate(entries)),
    )


def assemble(location: WorkflowLocation, manifest: FileContent, sources: tuple[ActivitySource, ...]) -> AssembledWorkflow:
    activities: dict[str, Activity] = {}
    origins: dict[str, ActivitySource] = {}
    broken: dict[str, tuple[Finding, ...]] = {}
    repeated: list[Finding] = []
    for source in sources:
        try:
            activity = _read_activity(source)
        except UnreadableDefinition as problem:
            broken.setdefault(source.key, get_findings(problem))
            continue
        if activity.id not in activities:
            activities[activity.id], origins[activity.id] = activity, source
        elif source.content is not origins[activity.id].content:
            repeated.append(_report_duplicate(activity.id, source, origins[activity.id]))
    workflow = _build_workflow(location, load_manifest(manifest), tuple(activities.values()), broken)
    return AssembledWorkflow(location, workflow, manifest, sources, origins, tuple(repeated))


def _build_workflow(
    location: WorkflowLocation, file: WorkflowManifest, activities: tuple[Activity, ...], broken: dict[str, tuple[Finding, ...]]
) -> Workflow:
    """Build the model without validation: its components are validated, and the validator of the whole is expensive to
    build.
    """
    head = {name: getattr(file, name) for name in Workflow.model_fields if name not in _EXCLUDED_FROM_HEAD}
    # The id is the name on disk, not the one in the file: a stored id has to lead to the same workflow.
    head["id"] = location.id
    fields = (file.model_fields_set - _EXCLUDED_FROM_HEAD) | {"activities", "broken"}
    workflow = Workflow.model_construct(fields, **head, activities=activities, broken=broken)
    # Added afterwards: an unknown key with the name of an attribute must not replace the attribute.
    assert workflow.model_extra is not None
    workflow.model_extra.update(
        {key: value for key, value in (file.model_extra or {}).items() if key not in _EXCLUDED_FROM_HEAD}
    )
    return workflow


def _collect_local(location: WorkflowLocation, folder: str | None, manifest: FileContent) -> Iterator[ActivitySource]:
    if not location.directory:
        return
    try:
        inner = check_inner_folder(folder or "activities")
        names = location.components_in(inner, STRUCTURED)
    except UnreadableDefinition as problem:
        yield _make_unreadable("activities", location, problem)
        return
    except BadId:
        remedy = "Name a directory inside the directory of the workflow."
        at = manifest.document().at(("activitiesDir",))
        finding = error(manifest.name, "outside-root", f"`activitiesDir` leads to {folder!r}.", remedy, at=at)
        yield ActivitySource("activities", location.id, findings=(finding,))
        return
    for name in names:
        yield _open_file(location, location.path(inner, name.file), name)
    for finding in location.find_misnamed_in(inner, STRUCTURED):
        yield ActivitySource(os.path.basename(finding.file), location.id, findings=(finding,))  # noqa: PTH119  # a name, not a path


def _open_file(location: WorkflowLocation, path: str, name: ComponentName) -> ActivitySource:
    try:
        return ActivitySource(name.id, location.id, location.files.read(path), name)
    except UnreadableDefinition as problem:
        return _make_unreadable(name.id, location, problem)


def _make_unreadable(key: str, location: WorkflowLocation, problem: UnreadableDefinition) -> ActivitySource:
    return ActivitySource(key, location.id, findings=get_findings(problem))


def _resolve_entry(
    index: int, entry: object, location: WorkflowLocation, locations: WorkflowLocations, manifest: FileContent
) -> ActivitySource:
    if isinstance(entry, dict):
        key = entry.get("id")
        return ActivitySource(
            key if isinstance(key, str) else f"activities.{index + 1}", location.id, manifest, inside=("activities", index)
        )
    if not isinstance(entry, str):
        return ActivitySource(f"activities.{index + 1}", location.id, findings=(_report_invalid_entry(index, entry, manifest),))
    return _resolve_reference(index, entry, location, locations, manifest)


def _report_invalid_entry(index: int, entry: object, manifest: FileContent) -> Finding:
    sentence = f"`activities.{index + 1}` has to be text or a mapping, but is {name_kind(entry)}."
    remedy = "Write the name of a file, or the activity itself."
    return error(manifest.name, "schema", sentence, remedy, at=manifest.document().at(("activities", index)))


def _resolve_reference(
    index: int, reference: str, location: WorkflowLocation, locations: WorkflowLocations, manifest: FileContent
) -> ActivitySource:
    try:
        return _find_borrowed(reference, location, locations)
    except InaccessibleDefinition as problem:
        return _make_unreadable(reference, location, problem)
    except (BadId, WorkflowNotFound, LookupError) as problem:
        at = manifest.document().at(("activities", index))
        remedy = "Write the name of a file in `activities`, or `workflow/file` for one of another workflow."
        reason = f" {problem}" if isinstance(problem, BadId) else ""
        sentence = f"There is no activity file {reference!r}.{reason}"
        finding = error(manifest.name, "unresolved-activity", sentence, remedy, at=at)
        return ActivitySource(reference, location.id, findings=(finding,))


def _find_borrowed(reference: str, location: WorkflowLocation, locations: WorkflowLocations) -> ActivitySource:
    workflow, name = split_reference(reference, "activities")
    owner = location if workflow in (None, location.id) else locations.find(str(workflow))
    folder = _find_activities_folder(owner)
    match = next((component for component in owner.components_in(folder, STRUCTURED) if component.matches(name)), None)
    if match is None:
        raise LookupError(reference)
    return _open_file(owner, owner.path(folder, match.file), match)


def _find_activities_folder(owner: WorkflowLocation) -> str:
    try:
        return check_inner_folder(load_manifest(owner.read_manifest()).activities_dir or "activities")
    except InaccessibleDefinition:
        raise
    except (UnreadableDefinition, BadId):
        # Activities are separate files, so they can be borrowed although the manifest is broken.
        return "activities"


def _read_activity(source: ActivitySource) -> Activity:
    if source.content is None:
        raise UnreadableDefinition(source.findings)
    if source.inside:
        document = source.content.document()
        activity = validate(Activity, document, document.data["activities"][source.inside[-1]], source.inside)
    else:
        activity = load_model(Activity, source.content)
    prefix = source.name.index if source.name and source.name.index else activity.artifact_prefix
    return activity.model_copy(update={"artifact_prefix": prefix, "owner": source.owner})


def _report_duplicate(activity: str, source: ActivitySource, first: ActivitySource) -> Finding:
    assert source.content is not None
    assert first.content is not None
    sentence = f"The activity `{activity}` is also in {os.path.basename(first.content.name)}, which is used."  # noqa: PTH119  # a name, not a path
    at = source.content.document().at((*source.inside, "id"))
    return error(source.content.name, "duplicate-id", sentence, "Give one of the two another id.", at=at)


def _extract(document: ParsedDocument, path: Path) -> ParsedDocument:
    """A part of a file as a separate document."""
    data = document.data
    for step in path:
        data = data[step]
    return read_text(encode_toon(data), f"{document.name}.toon")


COMPONENT_FOLDERS: tuple[ComponentFolder, ...] = ("skills", "resources", "templates")


def list_local_findings(location: WorkflowLocation) -> Iterator[Finding]:
    """The findings of the activity files of a workflow whose manifest is broken, where they are by default."""
    try:
        names = location.components_in("activities", STRUCTURED) if location.directory else ()
    except UnreadableDefinition as problem:
        yield from get_findings(problem)
        return
    for name in names:
        source = _open_file(location, location.path("activities", name.file), name)
        try:
            _read_activity(source)
        except UnreadableDefinition as problem:
            yield from get_findings(problem)
        else:
            yield from source.content.document().warnings if source.content is not None else ()


class WorkflowLoader:
    """Assembles workflows. A workflow stays the same object as long as all its sources are the same."""

    def __init__(self, locations: WorkflowLocations) -> None:
        self._locations = locations

    def load(self, location: WorkflowLocation) -> AssembledWorkflow:
        key = ("assembled", location.id, location.manifest)
        return self._locations.memo.get_or_make(key, lambda earlier: self._load(location, earlier))

    def check(self, summary: WorkflowSummary, location: WorkflowLocation) -> WorkflowSummary:
        """The summary with the findings of the model of its manifest, if it has not found any itself."""
        if summary.broken:
            return summary
        try:
            load_manifest(location.read_manifest())
        except UnreadableDefinition as problem:
            return summary._replace(findings=get_findings(problem))
        return summary

    def _load(self, location: WorkflowLocation, earlier: AssembledWorkflow | None) -> AssembledWorkflow:
        manifest, sources = collect_activity_sources(location, self._locations)
        if earlier is not None and earlier.manifest is manifest and earlier.sources == sources:
            return earlier
        return assemble(location, manifest, sources)

    def contents(self, location: WorkflowLocation) -> Iterator[tuple[str, str]]:
        """The name and digest of every file of the workflow; an unreadable file has the digest "unreadable"."""
        manifest, sources = collect_activity_sources(location, self._locations)
        yield location.relative(manifest.name), manifest.digest
        for source in sources:
            if source.content is None:
                yield f"{source.owner}/{source.key}", "unreadable"
            elif not source.inside:
                yield self._locations.find(source.owner).relative(source.content.name), source.content.digest
        for folder in COMPONENT_FOLDERS:
            for component in location.components(folder):
                yield f"{location.id}/{folder}/{component.file}", _compute_digest(location, folder, component)


def _compute_digest(location: WorkflowLocation, folder: ComponentFolder, component: ComponentName) -> str:
    try:
        return read_component(location, folder, component).digest
    except UnreadableDefinition:
        return "unreadable"
