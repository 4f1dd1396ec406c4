"""Look up the file of a component by its reference.

A reference without a workflow is looked up where its reader would expect it: in the session's workflow, then in the one that
lent the activity or the skill, then among what is common to all. A reference with a workflow means exactly that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fidelio.definitions import META
from fidelio.definitions.library.files import FileContent
from fidelio.definitions.library.identifiers import ComponentName, split_reference, suggest_names
from fidelio.definitions.library.locations import ComponentFolder, WorkflowLocation, WorkflowLocations
from fidelio.errors import BadId, ComponentNotFound, WorkflowNotFound

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
        sentence, remedy=suggest_names(name, known) or f"Write `workflow/{name}` for one of another workflow."
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
