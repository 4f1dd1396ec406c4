"""Content by its digest, kept as long as something refers to it.

Whoever refers to a blob locks its row until it has committed, and whoever would erase it locks it first: so a blob cannot
vanish between being found and being referred to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from fidelio.errors import DocumentConflict
from fidelio.ledger.checks import check_path
from fidelio.ledger.encoding import PreparedDocument
from fidelio.ledger.model import Document, Page
from fidelio.ledger.paging import from_text, page_size, to_cursor
from fidelio.ledger.postgres.database import Link
from fidelio.ledger.postgres.rows import VERSION, marks, to_document

_HOLD = "SELECT digest FROM blobs WHERE digest = ANY($1::text[]) ORDER BY digest FOR KEY SHARE"
_SEIZE = "SELECT digest FROM blobs WHERE digest = ANY($1::text[]) ORDER BY digest FOR UPDATE"
_PUT = "INSERT INTO blobs (digest, content) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_DROP = """
DELETE FROM blobs AS b WHERE b.digest = ANY($1::text[])
AND NOT EXISTS (SELECT 1 FROM event_blobs AS e WHERE e.digest = b.digest)
AND NOT EXISTS (SELECT 1 FROM document_versions AS v WHERE v.digest = b.digest)
"""


async def keep(link: Link, contents: Mapping[str, bytes], referred: Iterable[str]) -> frozenset[str]:
    """Stores what is not there yet and holds all of it; returns those that are referred to but neither stored nor given."""
    wanted = {*contents, *referred}
    missing = wanted - await _hold(link, wanted)
    while given := sorted(missing & contents.keys()):
        await link.executemany(_PUT, [(digest, contents[digest]) for digest in given])
        missing -= await _hold(link, given)
    return frozenset(missing)


async def drop_unused(link: Link, digests: Iterable[str]) -> None:
    """Erases those blobs that no event and no document refers to any more."""
    wanted = sorted(set(digests))
    if wanted:
        # The lock first, the question after it: what was referred to while we waited for the lock is seen.
        await seize(link, wanted)
        await link.execute(_DROP, wanted)


async def seize(link: Link, digests: Iterable[str]) -> None:
    """Until the transaction ends nobody can begin to refer to these."""
    await link.fetch(_SEIZE, list(digests))


async def read_blob(link: Link, digest: str) -> bytes | None:
    content: bytes | None = await link.fetchval("SELECT content FROM blobs WHERE digest = $1", digest)
    return content


async def _hold(link: Link, digests: Iterable[str]) -> set[str]:
    wanted = list(digests)
    return {row["digest"] for row in await link.fetch(_HOLD, wanted)} if wanted else set()


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


async def read_document(link: Link, space: str, path: str, version: int | None) -> Document | None:
    check_path(path)
    row = await link.fetchrow(_ONE, space, path, version)
    if row is None:
        return None
    content = None if row["digest"] is None else await read_blob(link, row["digest"])
    return to_document(row, None if content is None else content.decode())


async def page(link: Link, space: str, *, prefix: str, cursor: str | None, limit: int) -> Page[Document]:
    size = page_size(limit)
    rows = await link.fetch(_PAGE, space, prefix, from_text(cursor, "documents") or "", size + 1)
    following = to_cursor("documents", rows[size - 1]["path"]) if len(rows) > size else None
    return Page(tuple(to_document(row) for row in rows[:size]), following)


async def versions(link: Link, space: str, path: str, limit: int) -> tuple[Document, ...]:
    check_path(path)
    return tuple(to_document(row) for row in await link.fetch(_VERSIONS, space, path, page_size(limit)))
