"""A workflow put together from its manifest, its own activities and those it borrows.

What cannot be read is left out and named in `broken`, so that a typing error in one activity costs that activity and not the
workflow.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from fidelio.definitions.findings import Finding, error
from fidelio.definitions.library.files import Kept, Source
from fidelio.definitions.library.identifiers import STRUCTURED, PartName, inner_folder, split_reference
from fidelio.definitions.library.loading import findings_of, load, load_manifest
from fidelio.definitions.library.locations import Folder, Place, Places
from fidelio.definitions.library.lookup import read_part
from fidelio.definitions.models import Activity, Manifest, Workflow
from fidelio.definitions.parsing import kind_of, validate
from fidelio.definitions.reading.document import Document, read_text
from fidelio.definitions.reading.positions import Path
from fidelio.definitions.toon_writer import to_toon
from fidelio.errors import BadId, UnreachableDefinition, UnreadableDefinition, WorkflowNotFound

_NOT_OF_THE_HEAD = frozenset({"activities", "activities_dir", "broken"})


class Piece(NamedTuple):
    """One activity before it is read: where it stands, or why it cannot be found.

    `out_of_reach`: the system does not let anybody look, so it may be there and whole.
    """

    key: str
    owner: str
    kept: Kept | None = None
    name: PartName | None = None
    inside: Path = ()
    findings: tuple[Finding, ...] = ()
    out_of_reach: bool = False


class Assembled(NamedTuple):
    """The workflow and, for each activity, the piece it was made from."""

    place: Place
    workflow: Workflow
    manifest: Kept
    pieces: tuple[Piece, ...]
    origins: dict[str, Piece]
    findings: tuple[Finding, ...]

    @property
    def out_of_reach(self) -> bool:
        """Whether it may have more activities than those that are left out for what stands in them."""
        return any(piece.out_of_reach for piece in self.pieces)

    def source(self, activity: str) -> Source:
        piece = self.origins[activity]
        assert piece.kept is not None, "an activity that was read has a file"
        if not piece.inside:
            return Source.of(piece.owner, piece.kept)
        return Source(piece.owner, piece.kept.name, _extract(piece.kept.document(), piece.inside))

    def snapshot(self) -> dict[str, Any]:
        """All of the definition as JSON, piece by piece: what would write the whole is not built for this alone."""
        head = load_manifest(self.manifest).model_dump(mode="json", by_alias=True, exclude=set(_NOT_OF_THE_HEAD))
        return {
            **head,
            "id": self.place.id,
            "activities": [one.model_dump(mode="json", by_alias=True) for one in self.workflow.activities],
        }


def pieces_of(place: Place, places: Places) -> tuple[Kept, tuple[Piece, ...]]:
    manifest = place.read_manifest()
    file = load_manifest(manifest)
    local = tuple(_local(place, file.activities_dir, manifest))
    listed = manifest.document().data.get("activities") or ()
    return manifest, (*local, *(_listed(index, entry, place, places, manifest) for index, entry in enumerate(listed)))


def assemble(place: Place, manifest: Kept, pieces: tuple[Piece, ...]) -> Assembled:
    activities: dict[str, Activity] = {}
    origins: dict[str, Piece] = {}
    broken: dict[str, tuple[Finding, ...]] = {}
    repeated: list[Finding] = []
    for piece in pieces:
        try:
            activity = _read(piece)
        except UnreadableDefinition as problem:
            broken.setdefault(piece.key, findings_of(problem))
            continue
        if activity.id not in activities:
            activities[activity.id], origins[activity.id] = activity, piece
        elif piece.kept is not origins[activity.id].kept:
            repeated.append(_repeated(activity.id, piece, origins[activity.id]))
    workflow = _workflow(place, load_manifest(manifest), tuple(activities.values()), broken)
    return Assembled(place, workflow, manifest, pieces, origins, tuple(repeated))


def _workflow(
    place: Place, file: Manifest, activities: tuple[Activity, ...], broken: dict[str, tuple[Finding, ...]]
) -> Workflow:
    """Not checked again, because all its parts are: what checks the whole would have to be built while an agent waits."""
    head = {name: getattr(file, name) for name in Workflow.model_fields if name not in _NOT_OF_THE_HEAD}
    # What it is found by: whoever keeps the id has to come back to the same workflow, whatever the file calls it.
    head["id"] = place.id
    written = (file.model_fields_set - _NOT_OF_THE_HEAD) | {"activities", "broken"}
    workflow = Workflow.model_construct(written, **head, activities=activities, broken=broken)
    # Only now: an unknown key that is called like an attribute must not become one.
    assert workflow.model_extra is not None
    workflow.model_extra.update({key: value for key, value in (file.model_extra or {}).items() if key not in _NOT_OF_THE_HEAD})
    return workflow


def _local(place: Place, folder: str | None, manifest: Kept) -> Iterator[Piece]:
    if not place.directory:
        return
    try:
        where = inner_folder(folder or "activities")
        names = place.parts_in(where, STRUCTURED)
    except UnreadableDefinition as problem:
        yield _left_out("activities", place, problem)
        return
    except BadId:
        remedy = "Name a directory inside the directory of the workflow."
        at = manifest.document().at(("activitiesDir",))
        finding = error(manifest.name, "outside-root", f"`activitiesDir` leads to {folder!r}.", remedy, at=at)
        yield Piece("activities", place.id, findings=(finding,))
        return
    for name in names:
        yield _file(place, place.path(where, name.file), name)
    for finding in place.misnamed_in(where, STRUCTURED):
        yield Piece(os.path.basename(finding.file), place.id, findings=(finding,))  # noqa: PTH119  a name, not a path


def _file(place: Place, path: str, name: PartName) -> Piece:
    try:
        return Piece(name.id, place.id, place.files.read(path), name)
    except UnreadableDefinition as problem:
        return _left_out(name.id, place, problem)


def _left_out(key: str, place: Place, problem: UnreadableDefinition) -> Piece:
    out_of_reach = isinstance(problem, UnreachableDefinition)
    return Piece(key, place.id, findings=findings_of(problem), out_of_reach=out_of_reach)


def _listed(index: int, entry: object, place: Place, places: Places, manifest: Kept) -> Piece:
    if isinstance(entry, dict):
        key = entry.get("id")
        return Piece(
            key if isinstance(key, str) else f"activities.{index + 1}", place.id, manifest, inside=("activities", index)
        )
    if not isinstance(entry, str):
        return Piece(f"activities.{index + 1}", place.id, findings=(_neither(index, entry, manifest),))
    return _referred(index, entry, place, places, manifest)


def _neither(index: int, entry: object, manifest: Kept) -> Finding:
    sentence = f"`activities.{index + 1}` has to be text or a mapping, but is {kind_of(entry)}."
    remedy = "Write the name of a file, or the activity itself."
    return error(manifest.name, "schema", sentence, remedy, at=manifest.document().at(("activities", index)))


def _referred(index: int, reference: str, place: Place, places: Places, manifest: Kept) -> Piece:
    try:
        return _borrowed(reference, place, places)
    except UnreachableDefinition as problem:
        return _left_out(reference, place, problem)
    except (BadId, WorkflowNotFound, LookupError) as problem:
        at = manifest.document().at(("activities", index))
        remedy = "Write the name of a file in `activities`, or `workflow/file` for one of another workflow."
        reason = f" {problem}" if isinstance(problem, BadId) else ""
        sentence = f"There is no activity file {reference!r}.{reason}"
        finding = error(manifest.name, "unresolved-activity", sentence, remedy, at=at)
        return Piece(reference, place.id, findings=(finding,))


def _borrowed(reference: str, place: Place, places: Places) -> Piece:
    workflow, name = split_reference(reference, "activities")
    owner = place if workflow in (None, place.id) else places.find(str(workflow))
    folder = _folder_of(owner)
    match = next((part for part in owner.parts_in(folder, STRUCTURED) if part.answers_to(name)), None)
    if match is None:
        raise LookupError(reference)
    return _file(owner, owner.path(folder, match.file), match)


def _folder_of(owner: Place) -> str:
    try:
        return inner_folder(load_manifest(owner.read_manifest()).activities_dir or "activities")
    except UnreachableDefinition:
        raise
    except (UnreadableDefinition, BadId):
        # A lender whose manifest is broken can still lend: its activities are files of their own.
        return "activities"


def _read(piece: Piece) -> Activity:
    if piece.kept is None:
        raise UnreadableDefinition(piece.findings)
    if piece.inside:
        document = piece.kept.document()
        activity = validate(Activity, document, document.data["activities"][piece.inside[-1]], piece.inside)
    else:
        activity = load(Activity, piece.kept)
    prefix = piece.name.index if piece.name and piece.name.index else activity.artifact_prefix
    return activity.model_copy(update={"artifact_prefix": prefix, "owner": piece.owner})


def _repeated(activity: str, piece: Piece, first: Piece) -> Finding:
    assert piece.kept is not None
    assert first.kept is not None
    sentence = f"The activity `{activity}` is also in {os.path.basename(first.kept.name)}, which is used."  # noqa: PTH119  a name, not a path
    at = piece.kept.document().at((*piece.inside, "id"))
    return error(piece.kept.name, "duplicate-id", sentence, "Give one of the two another id.", at=at)


def _extract(document: Document, path: Path) -> Document:
    """A part of a file as a document of its own."""
    data = document.data
    for step in path:
        data = data[step]
    return read_text(to_toon(data), f"{document.name}.toon")


OWN_PARTS: tuple[Folder, ...] = ("skills", "resources", "templates")


class Loader:
    """Puts workflows together. They are kept as long as all their pieces are the same."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._assembled: dict[str, Assembled] = {}

    def assembled(self, place: Place) -> Assembled:
        manifest, pieces = pieces_of(place, self._places)
        known = self._assembled.get(place.id)
        if known is None or known.manifest is not manifest or known.pieces != pieces:
            known = self._assembled[place.id] = assemble(place, manifest, pieces)
        return known

    def contents(self, place: Place) -> Iterator[tuple[str, str]]:
        """The name and the digest of every file that the workflow is made of. A file that cannot be read counts by its name."""
        manifest, pieces = pieces_of(place, self._places)
        yield place.relative(manifest.name), manifest.digest
        for piece in pieces:
            if piece.kept is None:
                yield f"{piece.owner}/{piece.key}", "unreadable"
            elif not piece.inside:
                yield self._places.find(piece.owner).relative(piece.kept.name), piece.kept.digest
        for folder in OWN_PARTS:
            for part in place.parts(folder):
                yield f"{place.id}/{folder}/{part.file}", _digest(place, folder, part)


def _digest(place: Place, folder: Folder, part: PartName) -> str:
    try:
        return read_part(place, folder, part).digest
    except UnreadableDefinition:
        return "unreadable"
