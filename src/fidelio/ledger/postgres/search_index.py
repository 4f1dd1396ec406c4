"""Search vectors of events and documents, stored in the same transaction as their source.

Texts are tokenized by `fidelio.ledger.search`, because the parser of PostgreSQL splits them differently. The size of a tsvector
is limited: only the first 500,000 bytes of a text's different words are indexed, and phrases only in its first 16,383 words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Self

import msgspec

from fidelio.ledger.encoding import EncodedChange
from fidelio.ledger.model import PutDocument, Session, decode_body
from fidelio.ledger.postgres.database import Connection
from fidelio.ledger.search import iter_fields, tokenize

_MAX_VECTOR_BYTES = 500_000
_MAX_POSITION = 16_383
_MAX_POSITIONS_PER_WORD = 255

_INSERT_DOCUMENT = """
INSERT INTO search (source, session, kind, parent, type, space, path, words)
VALUES ('document', $1, $2, $3, 'document', $4, $5, $6::text::tsvector)
"""
_DELETE_DOCUMENT = "DELETE FROM search WHERE space = $1 AND path = $2"


class SearchVectors(msgspec.Struct, frozen=True):
    """The tsvectors of a change as text, for each event and document; built before the transaction begins."""

    events: tuple[str, ...]
    documents: tuple[str, ...]

    @classmethod
    def build(cls, encoded: EncodedChange) -> Self:
        return cls(
            tuple([build_vector(vector for _, vector in iter_fields(decode_body(event.raw))) for event in encoded.events]),
            tuple([build_vector((each.document.path, each.document.text or "")) for each in encoded.documents]),
        )


def build_vector(texts: Iterable[str]) -> str:
    """Build the text of a tsvector. A position is left out between two texts, so that phrases do not span them."""
    positions: defaultdict[str, list[str]] = defaultdict(list)
    position = size = 0
    for text in texts:
        for word in tokenize(text):
            position += 1
            # Upper limit of the stored size: four bytes per character and two bytes per position.
            size += 2 if word in positions else 4 * len(word) + 4
            if size > _MAX_VECTOR_BYTES:
                return _render_vector(positions)
            if len(positions[word]) < _MAX_POSITIONS_PER_WORD:
                positions[word].append(str(min(position, _MAX_POSITION)))
        position += 1
    return _render_vector(positions)


def _render_vector(positions: dict[str, list[str]]) -> str:
    return " ".join([f"'{word}':{','.join(numbers)}" for word, numbers in positions.items() if numbers])


async def put_document(connection: Connection, session: Session, document: PutDocument, vector: str) -> None:
    """Replace the search row of a document; only its newest version is indexed."""
    await connection.execute(_DELETE_DOCUMENT, document.space, document.path)
    if document.text is not None:
        session_values = (session.id, session.kind, session.parent)
        await connection.execute(_INSERT_DOCUMENT, *session_values, document.space, document.path, vector)


async def remove_events(connection: Connection, positions: Sequence[int]) -> None:
    await connection.execute("DELETE FROM search WHERE position = ANY($1::bigint[])", positions)
