"""Documents in SQL: every version stays, and every text is kept once, under its digest."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from fidelio.errors import DocumentConflict
from fidelio.ledger.checks import check_path
from fidelio.ledger.cursors import from_text, page_size, to_cursor
from fidelio.ledger.model import Document, Page
from fidelio.ledger.postgres import blobs
from fidelio.ledger.postgres.database import Link
from fidelio.ledger.postgres.rows import VERSION, marks, to_document
from fidelio.ledger.prepared import PreparedDocument

# A path that is new has no row to lock yet; putting one there makes a second writer wait for the first.
_PLACE = "INSERT INTO documents (space, path, version, deleted) VALUES ($1, $2, 0, true) ON CONFLICT DO NOTHING"
_LOCK = """
SELECT 1 FROM documents AS d JOIN unnest($1::text[], $2::text[]) AS wanted (space, path) USING (space, path)
ORDER BY d.space, d.path FOR UPDATE OF d
"""
_CURRENT = "SELECT version FROM documents WHERE space = $1 AND path = $2"
_ADD = f"INSERT INTO document_versions ({VERSION}, session) VALUES ({marks(7)})"
_NEWEST = "UPDATE documents SET version = $3, deleted = $4 WHERE space = $1 AND path = $2"
_ONE = f"""
SELECT {VERSION} FROM document_versions WHERE space = $1 AND path = $2 AND ($3::bigint IS NULL OR version = $3)
ORDER BY version DESC LIMIT 1
"""
_PAGE = """
SELECT v.* FROM documents AS d JOIN document_versions AS v USING (space, path, version)
WHERE d.space = $1 AND d.path >= $2 AND starts_with(d.path, $2) AND d.path > $3 AND NOT d.deleted ORDER BY d.path LIMIT $4
"""
_VERSIONS = f"SELECT {VERSION} FROM document_versions WHERE space = $1 AND path = $2 ORDER BY version DESC LIMIT $3"


async def hold(link: Link, places: AbstractSet[tuple[str, str]]) -> None:
    """Locks all documents a commit will write, in one order for everybody."""
    if places:
        ordered = sorted(places)
        await link.executemany(_PLACE, ordered)
        await link.execute(_LOCK, [space for space, _ in ordered], [path for _, path in ordered])


async def put(link: Link, session: str, prepared: PreparedDocument, now: int) -> None:
    """The caller holds the document."""
    new = prepared.document
    current = int(await link.fetchval(_CURRENT, new.space, new.path))
    if new.expect is not None and new.expect != current:
        raise DocumentConflict(new.path, new.expect, current)
    await link.execute(_ADD, new.space, new.path, current + 1, prepared.digest, new.author, now, session)
    await link.execute(_NEWEST, new.space, new.path, current + 1, prepared.digest is None)


async def one(link: Link, space: str, path: str, version: int | None) -> Document | None:
    check_path(path)
    row = await link.fetchrow(_ONE, space, path, version)
    if row is None:
        return None
    content = None if row["digest"] is None else await blobs.one(link, row["digest"])
    return to_document(row, None if content is None else content.decode())


async def page(link: Link, space: str, *, prefix: str, cursor: str | None, limit: int) -> Page[Document]:
    size = page_size(limit)
    rows = await link.fetch(_PAGE, space, prefix, from_text(cursor, "documents") or "", size + 1)
    following = to_cursor("documents", rows[size - 1]["path"]) if len(rows) > size else None
    return Page(tuple(to_document(row) for row in rows[:size]), following)


async def versions(link: Link, space: str, path: str, limit: int) -> tuple[Document, ...]:
    check_path(path)
    return tuple(to_document(row) for row in await link.fetch(_VERSIONS, space, path, page_size(limit)))
