"""The search index: rows of words, written and erased in the same transaction as what they are about.

The words are made by `fidelio.ledger.search` and handed over as they are; the server's own parser would cut them
differently. What a row can hold is bounded by the server: a text is found by its first half a million letters of different
words, and a phrase inside its first 16 000 words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from fidelio.ledger.codec import decode
from fidelio.ledger.encoding import Prepared
from fidelio.ledger.model import PutDocument, Session
from fidelio.ledger.postgres.database import Link
from fidelio.ledger.search import leaves, words

_LARGEST_ROW = 500_000
_LAST_PLACE = 16_383
_MOST_PLACES = 255

_ADD_DOCUMENT = """
INSERT INTO search (source, session, kind, parent, type, space, path, words)
VALUES ('document', $1, $2, $3, 'document', $4, $5, $6::text::tsvector)
"""
_FORGET_DOCUMENT = "DELETE FROM search WHERE space = $1 AND path = $2"


@dataclass(frozen=True, slots=True)
class Words:
    """The rows of one change, made before its transaction begins: one text per event and per document."""

    events: tuple[str, ...]
    documents: tuple[str, ...]

    @classmethod
    def of(cls, prepared: Prepared) -> Self:
        return cls(
            tuple([vector(text for _, text in leaves(decode(draft.raw))) for draft in prepared.drafts]),
            tuple([vector((each.document.path, each.document.text or "")) for each in prepared.documents]),
        )


def vector(texts: Iterable[str]) -> str:
    """The words of all texts with their places, as the server reads them. Between two texts a place stays empty."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    place = size = 0
    for text in texts:
        for word in words(text):
            place += 1
            # Four bytes a letter and two a place is the most the server can need for it.
            size += 2 if word in places else 4 * len(word) + 4
            if size > _LARGEST_ROW:
                return _written(places)
            if len(places[word]) < _MOST_PLACES:
                places[word].append(str(min(place, _LAST_PLACE)))
        place += 1
    return _written(places)


def _written(places: dict[str, list[str]]) -> str:
    return " ".join([f"'{word}':{','.join(found)}" for word, found in places.items() if found])


async def put_document(link: Link, session: Session, document: PutDocument, text: str) -> None:
    """Only the newest version of a document is found."""
    await link.execute(_FORGET_DOCUMENT, document.space, document.path)
    if document.text is not None:
        about = (session.id, session.kind, session.parent)
        await link.execute(_ADD_DOCUMENT, *about, document.space, document.path, text)


async def forget_events(link: Link, positions: Sequence[int]) -> None:
    await link.execute("DELETE FROM search WHERE position = ANY($1::bigint[])", positions)
