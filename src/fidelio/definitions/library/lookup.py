"""Which file does a reference mean?

A reference without a workflow is looked up where its reader would expect it: in the session's workflow, then in the one that
lent the activity or the skill, then among what is common to all. A reference with a workflow means exactly that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fidelio.definitions import META
from fidelio.definitions.library.files import Kept
from fidelio.definitions.library.identifiers import PartName, near, split_reference
from fidelio.definitions.library.locations import Folder, Place, Places
from fidelio.errors import BadId, PartNotFound, WorkflowNotFound

Found = tuple[Place, PartName]

_WORDS: dict[Folder, str] = {
    "activities": "Activity",
    "skills": "Skill",
    "resources": "Resource",
    "templates": "Template",
}


def find_part(places: Places, folder: Folder, reference: str, *, workflow: str, after: Sequence[str | None] = ()) -> Found:
    """The first file that answers to the reference, or `PartNotFound`."""
    explicit, name = split_reference(reference, folder)
    candidates = tuple(_places(places, explicit or workflow, () if explicit else (*after, META)))
    for place in candidates:
        if (part := _match(place, folder, name)) is not None:
            return place, part
    known = {part.id for place in candidates for part in place.parts(folder)}
    sentence = f"{_WORDS[folder]} not found: {name} in workflow {explicit or workflow}."
    raise PartNotFound(sentence, remedy=near(name, known) or f"Write `workflow/{name}` for one of another workflow.")


def read_part(place: Place, folder: Folder, part: PartName) -> Kept:
    return place.files.read(place.path(place.folder(folder), part.file))


def _places(places: Places, first: str, further: Sequence[str | None]) -> Iterator[Place]:
    start = places.find(first)
    yield start
    seen = {start.id}
    for workflow in further:
        try:
            place = places.find(workflow) if workflow else None
        except (WorkflowNotFound, BadId):
            continue
        if place is not None and place.id not in seen:
            seen.add(place.id)
            yield place


def _match(place: Place, folder: Folder, name: str) -> PartName | None:
    parts = place.parts(folder)
    by_name = next((part for part in parts if part.answers_to(name)), None)
    if by_name is not None or folder not in ("resources", "templates"):
        return by_name
    return next((part for part in parts if part.has_index(name)), None)
