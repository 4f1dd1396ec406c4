"""Due work in SQL: who may take which job, found by one look into an index.

A lane is the queue of one session and one kind of job. Its `ready_at` is the moment its first job can be claimed: when the
job is due, or when the lease that somebody holds on the session runs out, whichever is later. A claim asks an index for the
lane that has been ready longest, so its cost does not grow with the number of jobs.

Everything that changes the jobs, lanes or lease of a session holds the session's row. A claim passes over rows that
somebody holds at this moment, so many workers that ask at once get different sessions; only when all are held does it
wait for one.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from fidelio.errors import BadRecord, StaleLease
from fidelio.ledger.codec import decode
from fidelio.ledger.encoding import PreparedJob
from fidelio.ledger.model import Dead, Done, Job, Lease, Retry, Settlement
from fidelio.ledger.paging import page_size
from fidelio.ledger.postgres.database import Link
from fidelio.ledger.postgres.rows import to_job

_ENQUEUE = """
INSERT INTO jobs (id, session, kind, payload, key, due, attempts, state, error, waiting)
VALUES ($1, $2, $3, $4, $5, $6, 0, 'queued', '', true)
ON CONFLICT (session, kind, key) WHERE waiting AND key IS NOT NULL DO UPDATE SET due = least(jobs.due, excluded.due)
"""
_REFRESH = """
WITH firsts AS MATERIALIZED (
    SELECT known.kind, (SELECT min(due) FROM jobs WHERE session = $1 AND kind = known.kind AND state = 'queued') AS due
    FROM (SELECT kind FROM lanes WHERE session = $1 UNION SELECT $2::text WHERE $2 IS NOT NULL) AS known
), emptied AS (
    DELETE FROM lanes WHERE session = $1 AND kind IN (SELECT kind FROM firsts WHERE due IS NULL)
)
INSERT INTO lanes (session, kind, ready_at)
SELECT $1, kind, greatest(due, (SELECT expires FROM leases WHERE session = $1 AND job IS NOT NULL))
FROM firsts WHERE due IS NOT NULL
ON CONFLICT (session, kind) DO UPDATE SET ready_at = excluded.ready_at
"""
_READY = """
SELECT s.id FROM unnest($1::text[]) AS wanted (kind) CROSS JOIN LATERAL (
    SELECT session, ready_at FROM lanes WHERE lanes.kind = wanted.kind AND ready_at <= $2 ORDER BY ready_at LIMIT 64
) AS ready JOIN sessions AS s ON s.id = ready.session
ORDER BY ready.ready_at, s.id LIMIT 1
"""
_LOCK_ONE_READY = f"{_READY} FOR UPDATE OF s SKIP LOCKED"
_STILL_READY = """
SELECT kind FROM lanes WHERE session = $1 AND kind = ANY($2::text[]) AND ready_at <= $3 ORDER BY ready_at, kind LIMIT 1
"""
_TAKE = """
WITH taken AS (
    UPDATE jobs SET attempts = attempts + 1, waiting = false WHERE id = (
        SELECT id FROM jobs WHERE session = $1 AND kind = $2 AND state = 'queued' ORDER BY due, number LIMIT 1
    ) RETURNING id, payload, attempts
), held AS (
    INSERT INTO leases (session, fence, job, owner, expires) SELECT $1, 1, id, $3, $4 FROM taken
    ON CONFLICT (session) DO UPDATE
    SET fence = leases.fence + 1, job = excluded.job, owner = excluded.owner, expires = excluded.expires
    RETURNING fence
) SELECT id, payload, attempts, fence FROM taken, held
"""
_RETRY = """
UPDATE jobs SET due = $2, error = $3, waiting = NOT EXISTS (
    SELECT 1 FROM jobs AS other
    WHERE other.session = jobs.session AND other.kind = jobs.kind AND other.key = jobs.key AND other.waiting
) WHERE id = $1
"""
_NEXT = """
SELECT min(soonest) FROM (
    SELECT (SELECT min(ready_at) FROM lanes WHERE lanes.kind = wanted.kind) AS soonest FROM unnest($1::text[]) AS wanted (kind)
) AS lane
"""
_JOBS = """
SELECT j.id, j.kind, j.session, j.payload, j.due, j.attempts, j.state, j.error,
    coalesce(l.owner, '') AS lease_owner, coalesce(l.expires, 0) AS lease_expires, coalesce(l.fence, 0) AS lease_fence
FROM jobs AS j LEFT JOIN leases AS l ON l.job = j.id AND l.session = j.session
WHERE j.state = $1 AND ($2::text IS NULL OR j.session = $2) ORDER BY j.due, j.number LIMIT $3
"""


async def enqueue(link: Link, prepared: PreparedJob) -> None:
    """The caller holds the row of the job's session."""
    job = prepared.job
    try:
        await link.execute(_ENQUEUE, prepared.id, job.session, job.kind, prepared.payload, job.key, job.due)
    except asyncpg.UniqueViolationError as error:
        raise BadRecord(f"The job id {prepared.id} is taken.", remedy="Choose another id, or leave it out.") from error
    await link.execute(_REFRESH, job.session, job.kind)


async def claim(link: Link, owner: str, kinds: Sequence[str], *, now: int, expires: int) -> Lease | None:
    """One try: None when somebody else was faster, or when nothing is ready."""
    wanted = list(kinds)
    session = await link.fetchval(_LOCK_ONE_READY, wanted, now)
    if session is None:
        session = await link.fetchval(_READY, wanted, now)
        if session is None:
            return None
        await _lock_session(link, session)
    # Somebody may have claimed it and gone while we were looking: only what is read under the lock counts.
    kind = await link.fetchval(_STILL_READY, session, wanted, now)
    return None if kind is None else await _take(link, session, kind, owner, expires)


async def _take(link: Link, session: str, kind: str, owner: str, expires: int) -> Lease:
    row = await link.fetchrow(_TAKE, session, kind, owner, expires)
    assert row is not None
    await link.execute(_REFRESH, session, None)
    return Lease(
        job=row["id"],
        kind=kind,
        session=session,
        payload=decode(row["payload"]),
        attempt=row["attempts"],
        fence=row["fence"],
        owner=owner,
        expires=expires,
    )


async def require_held(link: Link, lease: Lease) -> None:
    """The caller holds the row of the session, so the answer stays true until it commits."""
    held = await link.fetchrow("SELECT fence, job FROM leases WHERE session = $1", lease.session)
    if held is None or (held["fence"], held["job"]) != (lease.fence, lease.job):
        raise StaleLease(lease.job, lease.fence)


async def prolong(link: Link, lease: Lease, expires: int) -> None:
    await _lock_session(link, lease.session)
    await require_held(link, lease)
    await link.execute("UPDATE leases SET expires = $2 WHERE session = $1", lease.session, expires)
    await link.execute(_REFRESH, lease.session, None)


async def settle(link: Link, lease: Lease, how: Settlement) -> None:
    """The caller holds the row of the session."""
    await require_held(link, lease)
    match how:
        case Done():
            await link.execute("DELETE FROM jobs WHERE id = $1", lease.job)
        case Retry(due=due, error=error):
            await link.execute(_RETRY, lease.job, due, error)
        case Dead(error=error):
            await link.execute("UPDATE jobs SET state = 'dead', error = $2 WHERE id = $1", lease.job, error)
    await link.execute("UPDATE leases SET job = NULL, owner = '', expires = 0 WHERE session = $1", lease.session)
    await link.execute(_REFRESH, lease.session, None)


async def lock_and_settle(link: Link, lease: Lease, how: Settlement) -> None:
    await _lock_session(link, lease.session)
    await settle(link, lease, how)


async def _lock_session(link: Link, session: str) -> None:
    await link.execute("SELECT 1 FROM sessions WHERE id = $1 FOR UPDATE", session)


async def next_due(link: Link, kinds: Sequence[str]) -> int | None:
    soonest: int | None = await link.fetchval(_NEXT, list(kinds))
    return soonest


async def listed(link: Link, *, session: str | None, dead: bool, limit: int) -> tuple[Job, ...]:
    rows = await link.fetch(_JOBS, "dead" if dead else "queued", session, page_size(limit))
    return tuple(to_job(row) for row in rows)
