"""Keeps what was put together from files, and knows when it has to be put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from fidelio.definitions import META
from fidelio.definitions.findings import Finding, error
from fidelio.definitions.library.assembly import Assembled, assemble, pieces_of
from fidelio.definitions.library.loading import Loaded, findings_of, load, load_text
from fidelio.definitions.library.lookup import read_part
from fidelio.definitions.library.names import PartName
from fidelio.definitions.library.places import Folder, Place, Places
from fidelio.definitions.library.source import Source
from fidelio.definitions.models import Resource, Rules, Skill, Template
from fidelio.errors import UnreadableDefinition

_OWN_PARTS: tuple[Folder, ...] = ("skills", "resources", "templates")


class Loader:
    """Loads the parts of workflows. Assembled workflows are kept as long as all their pieces are the same."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._assembled: dict[str, Assembled] = {}

    def assembled(self, place: Place) -> Assembled:
        manifest, pieces = pieces_of(place, self._places)
        known = self._assembled.get(place.id)
        if known is None or known.manifest is not manifest or known.pieces != pieces:
            known = self._assembled[place.id] = assemble(place, manifest, pieces)
        return known

    def skill(self, place: Place, part: PartName) -> Loaded[Skill]:
        kept = read_part(place, "skills", part)
        return Loaded(load(Skill, kept), Source.of(place.id, kept))

    def resource(self, place: Place, part: PartName) -> Loaded[Resource]:
        kept = read_part(place, "resources", part)
        return Loaded(load_text(Resource, kept, part), Source.of(place.id, kept))

    def template(self, place: Place, part: PartName) -> Loaded[Template]:
        kept = read_part(place, "templates", part)
        return Loaded(load_text(Template, kept, part), Source.of(place.id, kept))

    def rules(self, place: Place) -> Loaded[Rules] | None:
        path = place.rules()
        if path is None:
            return None
        kept = place.files.read(path)
        return Loaded(load(Rules, kept), Source.of(place.id, kept))

    def contents(self, place: Place) -> Iterator[tuple[str, str]]:
        """The name and the digest of every file that the workflow is made of. A file that cannot be read counts by its name."""
        manifest, pieces = pieces_of(place, self._places)
        yield place.relative(manifest.name), manifest.digest
        for piece in pieces:
            if piece.kept is None:
                yield f"{piece.owner}/{piece.key}", "unreadable"
            elif not piece.inside:
                yield self._places.find(piece.owner).relative(piece.kept.name), piece.kept.digest
        for folder in _OWN_PARTS:
            for part in place.parts(folder):
                yield f"{place.id}/{folder}/{part.file}", _digest(place, folder, part)

    def findings(self, place: Place) -> Iterator[Finding]:
        try:
            assembled = self.assembled(place)
        except UnreadableDefinition as problem:
            yield from findings_of(problem)
        else:
            yield from _of_assembled(assembled)
        if place.id == META:
            yield from _attempt(partial(self.rules, place))
            yield from place.further_rules()
        for folder in _OWN_PARTS:
            yield from self._of_folder(place, folder)

    def _of_folder(self, place: Place, folder: Folder) -> Iterator[Finding]:
        loaders: dict[str, Callable[[Place, PartName], Loaded[Any]]] = {
            "skills": self.skill,
            "resources": self.resource,
            "templates": self.template,
        }
        seen: dict[str, PartName] = {}
        try:
            parts = place.parts(folder)
            yield from place.misnamed(folder)
        except UnreadableDefinition as problem:
            yield from findings_of(problem)
            return
        for part in parts:
            yield from _attempt(partial(loaders[folder], place, part))
            # Resources are asked for by number: two of them may well have the same name.
            key = part.index.lstrip("0") or "0" if folder == "resources" and part.index else part.id
            first = seen.setdefault(key, part)
            if first is not part:
                path = place.path(place.folder(folder), part.file)
                sentence = f"`{key}` is also in {first.file}, which is used."
                yield error(path, "duplicate-id", sentence, "Rename one of the two files.")


def _of_assembled(assembled: Assembled) -> Iterator[Finding]:
    for findings in assembled.workflow.broken.values():
        yield from findings
    yield from assembled.findings
    yield from assembled.manifest.document().warnings
    for piece in assembled.origins.values():
        if piece.kept is not None:
            yield from piece.kept.document().warnings


def _attempt(read: Callable[[], Loaded[Any] | None]) -> Iterator[Finding]:
    try:
        loaded = read()
    except UnreadableDefinition as problem:
        yield from findings_of(problem)
    else:
        yield from loaded.source.document.warnings if loaded else ()


def _digest(place: Place, folder: Folder, part: PartName) -> str:
    try:
        return read_part(place, folder, part).digest
    except UnreadableDefinition:
        return "unreadable"
