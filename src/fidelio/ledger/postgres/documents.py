"""SQL for documents and blobs. Contents are stored by digest and deleted with their last reference.

A transaction that adds a reference holds a share lock on the row of the blob, and a transaction that deletes it an exclusive
lock: a blob cannot be deleted between the lookup and the commit of the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from fidelio.errors import DocumentConflict
from fidelio.ledger.checks import check_path
from fidelio.ledger.encoding import EncodedDocument, check_content
from fidelio.ledger.model import Document, Page
from fidelio.ledger.paging import clamp_page_size, decode_text_cursor
from fidelio.ledger.postgres.database import Connection
from fidelio.ledger.rows import VERSION, to_document, to_page

_SHARE_LOCK_BLOBS = "SELECT digest FROM blobs WHERE digest = ANY($1::text[]) ORDER BY digest FOR KEY SHARE"
_LOCK_BLOBS = "SELECT digest FROM blobs WHERE digest = ANY($1::text[]) ORDER BY digest FOR UPDATE"
_INSERT_BLOB = "INSERT INTO blobs (digest, content) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_DELETE_UNUSED = """
DELETE FROM blobs AS b WHERE b.digest = ANY($1::text[])
AND NOT EXISTS (SELECT 1 FROM event_blobs AS e WHERE e.digest = b.digest)
AND NOT EXISTS (SELECT 1 FROM document_versions AS v WHERE v.digest = b.digest)
"""


async def store_blobs(connection: Connection, contents: Mapping[str, bytes], references: Iterable[str]) -> frozenset[str]:
    """Insert missing blobs and share-lock all of them; return the referenced digests that have no content."""
    digests = {*contents, *references}
    missing = digests - await _share_lock_blobs(connection, digests)
    while insertable := sorted(missing & contents.keys()):
        await connection.executemany(_INSERT_BLOB, [(digest, contents[digest]) for digest in insertable])
        missing -= await _share_lock_blobs(connection, insertable)
    return frozenset(missing)


async def delete_unused_blobs(connection: Connection, digests: Iterable[str]) -> None:
    """Delete those blobs that no event and no document refers to."""
    ordered = sorted(set(digests))
    if ordered:
        # Locked first, so that the deletion sees references that were committed while it waited for the lock.
        await lock_blobs(connection, ordered)
        await connection.execute(_DELETE_UNUSED, ordered)


async def lock_blobs(connection: Connection, digests: Iterable[str]) -> None:
    """Lock blobs exclusively: until the transaction ends no other transaction can add a reference to them."""
    await connection.fetch(_LOCK_BLOBS, list(digests))


async def read_blob(connection: Connection, digest: str) -> bytes | None:
    content: bytes | None = await connection.fetchval("SELECT content FROM blobs WHERE digest = $1", digest)
    return check_content(digest, content)


async def _share_lock_blobs(connection: Connection, digests: Iterable[str]) -> set[str]:
    values = list(digests)
    return {row["digest"] for row in await connection.fetch(_SHARE_LOCK_BLOBS, values)} if values else set()


# A new path has no row to lock, so a row is inserted first: a second writer waits for it.
_INSERT_PATH = "INSERT INTO documents (space, path, version, deleted) VALUES ($1, $2, 0, true) ON CONFLICT DO NOTHING"
_LOCK_DOCUMENTS = """
SELECT 1 FROM documents AS d JOIN unnest($1::text[], $2::text[]) AS wanted (space, path) USING (space, path)
ORDER BY d.space, d.path FOR UPDATE OF d
"""
_SELECT_CURRENT = "SELECT version FROM documents WHERE space = $1 AND path = $2"
_INSERT_VERSION = f"INSERT INTO document_versions ({VERSION}, session) VALUES ($1, $2, $3, $4, $5, $6, $7)"
_UPDATE_DOCUMENT = "UPDATE documents SET version = $3, deleted = $4 WHERE space = $1 AND path = $2"
_SELECT_VERSION = f"""
SELECT {VERSION} FROM document_versions WHERE space = $1 AND path = $2 AND ($3::bigint IS NULL OR version = $3)
ORDER BY version DESC LIMIT 1
"""
_SELECT_PAGE = f"""
SELECT path, {VERSION} FROM documents AS d JOIN document_versions AS v USING (space, path, version)
WHERE d.space = $1 AND d.path >= $2 AND starts_with(d.path, $2) AND d.path > $3 AND NOT d.deleted ORDER BY d.path LIMIT $4
"""
_SELECT_HISTORY = f"SELECT {VERSION} FROM document_versions WHERE space = $1 AND path = $2 ORDER BY version DESC LIMIT $3"


async def lock_documents(connection: Connection, paths: AbstractSet[tuple[str, str]]) -> None:
    """Lock all documents that a commit writes, in the order of their paths."""
    if paths:
        ordered = sorted(paths)
        await connection.executemany(_INSERT_PATH, ordered)
        await connection.execute(_LOCK_DOCUMENTS, [space for space, _ in ordered], [path for _, path in ordered])


async def put_document(connection: Connection, session: str, encoded: EncodedDocument, now: int) -> None:
    """Store a new version. The caller has locked the document."""
    new = encoded.document
    current = int(await connection.fetchval(_SELECT_CURRENT, new.space, new.path))
    if new.expect is not None and new.expect != current:
        raise DocumentConflict(new.path, new.expect, current)
    await connection.execute(_INSERT_VERSION, new.space, new.path, current + 1, encoded.digest, new.author, now, session)
    await connection.execute(_UPDATE_DOCUMENT, new.space, new.path, current + 1, encoded.digest is None)


async def read_document(connection: Connection, space: str, path: str, *, version: int | None = None) -> Document | None:
    check_path(path)
    row = await connection.fetchrow(_SELECT_VERSION, space, path, version)
    if row is None:
        return None
    content = None if row["digest"] is None else await read_blob(connection, row["digest"])
    return to_document(row, None if content is None else content.decode())


async def list_documents(
    connection: Connection, space: str, *, prefix: str = "", cursor: str | None = None, limit: int = 50
) -> Page[Document]:
    size = clamp_page_size(limit)
    rows = await connection.fetch(_SELECT_PAGE, space, prefix, decode_text_cursor(cursor, "documents") or "", size + 1)
    return to_page("documents", rows, size, to_document)


_SELECT_OF_SESSION = f"""
SELECT {VERSION} FROM document_versions WHERE session = $1 AND (space, path, version) > ($2, $3, $4)
ORDER BY space, path, version LIMIT $5
"""


async def list_versions_of(
    connection: Connection, session: str, *, after: Document | None = None, limit: int = 1000
) -> tuple[Document, ...]:
    last = ("", "", 0) if after is None else (after.space, after.path, after.version)
    return tuple(to_document(row) for row in await connection.fetch(_SELECT_OF_SESSION, session, *last, clamp_page_size(limit)))


async def list_versions(connection: Connection, space: str, path: str, *, limit: int = 50) -> tuple[Document, ...]:
    check_path(path)
    return tuple(to_document(row) for row in await connection.fetch(_SELECT_HISTORY, space, path, clamp_page_size(limit)))
