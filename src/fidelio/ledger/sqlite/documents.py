"""Documents and blobs in SQL: every text is kept once, under its digest, however many versions have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import apsw

from fidelio.errors import DocumentConflict
from fidelio.ledger.checks import check_path
from fidelio.ledger.encoding import PreparedDocument
from fidelio.ledger.model import Document, Page
from fidelio.ledger.paging import from_text, page_size, to_cursor
from fidelio.ledger.sqlite.rows import fetch, statement, to_document

_VERSION = "space, path, version, digest, author, time"
_NEW_VERSION = statement("INSERT INTO document_versions (", _VERSION, ", session) VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING key")
_ONE = statement("SELECT", _VERSION, "FROM document_versions WHERE space = ? AND path = ? AND version = ?")
_HISTORY = statement("SELECT", _VERSION, "FROM document_versions WHERE space = ? AND path = ? ORDER BY version DESC LIMIT ?")
_NEWEST_ONE = _HISTORY.replace("LIMIT ?", "LIMIT 1")
_PAGE = """
SELECT v.space, v.path, v.version, v.digest, v.author, v.time
FROM documents AS d JOIN document_versions AS v ON v.key = d.newest
WHERE d.space = ? AND d.path >= ? AND d.path < ? AND d.path > ? AND NOT d.deleted ORDER BY d.path LIMIT ?
"""
_NEWEST = """
INSERT INTO documents (space, path, version, newest, deleted) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET version = excluded.version, newest = excluded.newest, deleted = excluded.deleted
"""
_UNUSED = """
DELETE FROM blobs WHERE digest = ?1
AND NOT EXISTS (SELECT 1 FROM event_blobs WHERE digest = ?1)
AND NOT EXISTS (SELECT 1 FROM document_versions WHERE digest = ?1)
"""


def put_blobs(connection: apsw.Connection, blobs: Mapping[str, bytes]) -> None:
    for digest, content in blobs.items():
        # Most are there already, and then asking costs far less than offering the content.
        if not has_blob(connection, digest):
            connection.execute("INSERT INTO blobs VALUES (?, ?)", (digest, content))


def has_blob(connection: apsw.Connection, digest: str) -> bool:
    return connection.execute("SELECT 1 FROM blobs WHERE digest = ?", (digest,)).get is not None


def blob(connection: apsw.Connection, digest: str) -> bytes | None:
    content: bytes | None = connection.execute("SELECT content FROM blobs WHERE digest = ?", (digest,)).get
    return content


def drop_unused(connection: apsw.Connection, digests: Iterable[str]) -> None:
    """Erases those blobs that no event and no document refers to any more."""
    for digest in digests:
        connection.execute(_UNUSED, (digest,))


def put(connection: apsw.Connection, session: str, prepared: PreparedDocument, now: int) -> None:
    new = prepared.document
    current = connection.execute("SELECT version FROM documents WHERE space = ? AND path = ?", (new.space, new.path)).get or 0
    if new.expect is not None and new.expect != current:
        raise DocumentConflict(new.path, new.expect, current)
    key = connection.execute(_NEW_VERSION, (new.space, new.path, current + 1, prepared.digest, new.author, now, session)).get
    connection.execute(_NEWEST, (new.space, new.path, current + 1, key, int(prepared.digest is None)))


def one(connection: apsw.Connection, space: str, path: str, version: int | None) -> Document | None:
    check_path(path)
    newest = version is None
    row = connection.execute(_NEWEST_ONE if newest else _ONE, (space, path) if newest else (space, path, version)).get
    if row is None:
        return None
    content = blob(connection, row[3]) if row[3] is not None else None
    return to_document(row, None if content is None else content.decode())


def page(connection: apsw.Connection, space: str, *, prefix: str, cursor: str | None, limit: int) -> Page[Document]:
    size = page_size(limit)
    bounds = (prefix, prefix + "\U0010ffff", from_text(cursor, "documents") or "")
    rows = fetch(connection, _PAGE, (space, *bounds, size + 1))
    following = to_cursor("documents", rows[size - 1][1]) if len(rows) > size else None
    return Page(tuple(to_document(row, None) for row in rows[:size]), following)


def versions(connection: apsw.Connection, space: str, path: str, limit: int) -> tuple[Document, ...]:
    check_path(path)
    rows = fetch(connection, _HISTORY, (space, path, page_size(limit)))
    return tuple(to_document(row, None) for row in rows)
