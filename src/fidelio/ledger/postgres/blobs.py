"""Content by its digest, kept as long as something refers to it.

Whoever refers to a blob locks its row until it has committed, and whoever would erase it locks it first: so a blob cannot
vanish between being found and being referred to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fidelio.ledger.postgres.database import Link

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


async def one(link: Link, digest: str) -> bytes | None:
    content: bytes | None = await link.fetchval("SELECT content FROM blobs WHERE digest = $1", digest)
    return content


async def _hold(link: Link, digests: Iterable[str]) -> set[str]:
    wanted = list(digests)
    return {row["digest"] for row in await link.fetch(_HOLD, wanted)} if wanted else set()
