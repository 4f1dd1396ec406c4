"""Keeps what was put together from files, and knows when it has to be put together again."""

from __future__ import annotations

from collections.abc import Iterator

from fidelio.definitions.library.assembly import Assembled, assemble, pieces_of
from fidelio.definitions.library.lookup import read_part
from fidelio.definitions.library.names import PartName
from fidelio.definitions.library.places import Folder, Place, Places
from fidelio.errors import UnreadableDefinition

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
