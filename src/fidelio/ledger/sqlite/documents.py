"""SQL for documents and blobs. Contents are stored by digest, so equal texts of several versions are stored only once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import apsw

from fidelio.errors import DocumentConflict
from fidelio.ledger.checks import check_path
from fidelio.ledger.encoding import EncodedDocument, check_content
from fidelio.ledger.model import Document, Page
from fidelio.ledger.paging import clamp_page_size, decode_text_cursor
from fidelio.ledger.rows import VERSION, to_document, to_page
from fidelio.ledger.sqlite.schema import fetch, join_sql

_INSERT_VERSION = join_sql("INSERT INTO document_versions (", VERSION, ", session) VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING key")
_SELECT_VERSION = join_sql("SELECT", VERSION, "FROM document_versions WHERE space = ? AND path = ? AND version = ?")
_SELECT_HISTORY = join_sql(
    "SELECT", VERSION, "FROM document_versions WHERE space = ? AND path = ? ORDER BY version DESC LIMIT ?"
)
_SELECT_NEWEST = _SELECT_HISTORY.replace("LIMIT ?", "LIMIT 1")
_SELECT_PAGE = """
SELECT d.path, v.space, v.path, v.version, v.digest, v.author, v.time
FROM documents AS d JOIN document_versions AS v ON v.key = d.newest
WHERE d.space = ? AND d.path >= ? AND d.path < ? AND d.path > ? AND NOT d.deleted ORDER BY d.path LIMIT ?
"""
_UPSERT_DOCUMENT = """
INSERT INTO documents (space, path, version, newest, deleted) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET version = excluded.version, newest = excluded.newest, deleted = excluded.deleted
"""
_DELETE_UNUSED = """
DELETE FROM blobs WHERE digest = ?1
AND NOT EXISTS (SELECT 1 FROM event_blobs WHERE digest = ?1)
AND NOT EXISTS (SELECT 1 FROM document_versions WHERE digest = ?1)
"""


def put_blobs(connection: apsw.Connection, blobs: Mapping[str, bytes]) -> None:
    for digest, content in blobs.items():
        # Most blobs exist already, and the lookup is far cheaper than binding the content for an insert.
        if not has_blob(connection, digest):
            connection.execute("INSERT INTO blobs VALUES (?, ?)", (digest, content))


def has_blob(connection: apsw.Connection, digest: str) -> bool:
    return connection.execute("SELECT 1 FROM blobs WHERE digest = ?", (digest,)).get is not None


def read_blob(connection: apsw.Connection, digest: str) -> bytes | None:
    content: bytes | None = connection.execute("SELECT content FROM blobs WHERE digest = ?", (digest,)).get
    return check_content(digest, content)


def delete_unused_blobs(connection: apsw.Connection, digests: Iterable[str]) -> None:
    """Delete those blobs that no event and no document refers to."""
    for digest in digests:
        connection.execute(_DELETE_UNUSED, (digest,))


def put_document(connection: apsw.Connection, session: str, encoded: EncodedDocument, now: int) -> None:
    new = encoded.document
    current = connection.execute("SELECT version FROM documents WHERE space = ? AND path = ?", (new.space, new.path)).get or 0
    if new.expect is not None and new.expect != current:
        raise DocumentConflict(new.path, new.expect, current)
    key = connection.execute(_INSERT_VERSION, (new.space, new.path, current + 1, encoded.digest, new.author, now, session)).get
    connection.execute(_UPSERT_DOCUMENT, (new.space, new.path, current + 1, key, int(encoded.digest is None)))


def read_document(connection: apsw.Connection, space: str, path: str, *, version: int | None = None) -> Document | None:
    check_path(path)
    newest = version is None
    row = connection.execute(
        _SELECT_NEWEST if newest else _SELECT_VERSION, (space, path) if newest else (space, path, version)
    ).get
    if row is None:
        return None
    content = read_blob(connection, row[3]) if row[3] is not None else None
    return to_document(row, None if content is None else content.decode())


def list_documents(
    connection: apsw.Connection, space: str, *, prefix: str = "", cursor: str | None = None, limit: int = 50
) -> Page[Document]:
    size = clamp_page_size(limit)
    bounds = (prefix, prefix + "\U0010ffff", decode_text_cursor(cursor, "documents") or "")
    rows = fetch(connection, _SELECT_PAGE, (space, *bounds, size + 1))
    return to_page("documents", rows, size, to_document)


_SELECT_OF_SESSION = join_sql(
    "SELECT",
    VERSION,
    "FROM document_versions WHERE session = ? AND (space, path, version) > (?, ?, ?) ORDER BY space, path, version LIMIT ?",
)


def list_versions_of(
    connection: apsw.Connection, session: str, *, after: Document | None = None, limit: int = 1000
) -> tuple[Document, ...]:
    last = ("", "", 0) if after is None else (after.space, after.path, after.version)
    return tuple(to_document(row) for row in fetch(connection, _SELECT_OF_SESSION, (session, *last, clamp_page_size(limit))))


def list_versions(connection: apsw.Connection, space: str, path: str, *, limit: int = 50) -> tuple[Document, ...]:
    check_path(path)
    rows = fetch(connection, _SELECT_HISTORY, (space, path, clamp_page_size(limit)))
    return tuple(to_document(row) for row in rows)
