"""SQL for jobs and leases.

The table `lanes` has a row for every session and kind of job with queued jobs. Its `ready_at` is the time at which the first of
these jobs can be claimed: its due time, or the expiry of the current lease of the session, whichever is later. A claim reads
the lane with the smallest `ready_at` from an index, so its cost does not grow with the number of jobs.

Every change of the jobs, lanes or lease of a session locks the row of the session. A claim skips locked rows, so concurrent
workers get different sessions; only if all are locked does it wait for a lock.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from fidelio.errors import BadRecord, StaleLease
from fidelio.ledger.encoding import EncodedJob, decode
from fidelio.ledger.model import Completion, DeadLetter, Job, Lease, Retry, Settlement
from fidelio.ledger.paging import clamp_page_size
from fidelio.ledger.postgres.database import Connection
from fidelio.ledger.rows import to_job

_INSERT_JOB = """
INSERT INTO jobs (id, session, kind, payload, key, due, attempts, state, error, waiting)
VALUES ($1, $2, $3, $4, $5, $6, 0, 'queued', '', true)
ON CONFLICT (session, kind, key) WHERE waiting AND key IS NOT NULL DO UPDATE SET due = least(jobs.due, excluded.due)
"""
_REFRESH_READY_TIMES = """
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
_SELECT_READY = """
SELECT s.id FROM unnest($1::text[]) AS wanted (kind) CROSS JOIN LATERAL (
    SELECT session, ready_at FROM lanes WHERE lanes.kind = wanted.kind AND ready_at <= $2 ORDER BY ready_at LIMIT 64
) AS ready JOIN sessions AS s ON s.id = ready.session
ORDER BY ready.ready_at, s.id LIMIT 1
"""
_LOCK_READY = f"{_SELECT_READY} FOR UPDATE OF s SKIP LOCKED"
_SELECT_READY_KIND = """
SELECT kind FROM lanes WHERE session = $1 AND kind = ANY($2::text[]) AND ready_at <= $3 ORDER BY ready_at, kind LIMIT 1
"""
_CLAIM_JOB = """
WITH taken AS (
    UPDATE jobs SET attempts = attempts + 1, waiting = false WHERE id = (
        SELECT id FROM jobs WHERE session = $1 AND kind = $2 AND state = 'queued' ORDER BY due, number LIMIT 1
    ) RETURNING id, payload, attempts, error
), held AS (
    INSERT INTO leases (session, fence, job, owner, expires) SELECT $1, 1, id, $3, $4 FROM taken
    ON CONFLICT (session) DO UPDATE
    SET fence = leases.fence + 1, job = excluded.job, owner = excluded.owner, expires = excluded.expires
    RETURNING fence
) SELECT id, payload, attempts, error, fence FROM taken, held
"""
_RETRY = """
UPDATE jobs SET due = $2, error = $3, waiting = NOT EXISTS (
    SELECT 1 FROM jobs AS other
    WHERE other.session = jobs.session AND other.kind = jobs.kind AND other.key = jobs.key AND other.waiting
) WHERE id = $1
"""
_SELECT_NEXT_DUE = """
SELECT min(soonest) FROM (
    SELECT (SELECT min(ready_at) FROM lanes WHERE lanes.kind = wanted.kind) AS soonest FROM unnest($1::text[]) AS wanted (kind)
) AS lane
"""
_SELECT_JOBS = """
SELECT j.id, j.kind, j.session, j.payload, j.due, j.attempts, j.state, j.error,
    coalesce(l.owner, '') AS lease_owner, coalesce(l.expires, 0) AS lease_expires, coalesce(l.fence, 0) AS lease_fence
FROM jobs AS j LEFT JOIN leases AS l ON l.job = j.id AND l.session = j.session
WHERE j.state = $1 AND ($2::text IS NULL OR j.session = $2) AND ($3::text IS NULL OR j.kind = $3)
    AND ($4::text IS NULL OR (j.due, j.number) > ($5, (SELECT number FROM jobs WHERE id = $4)))
ORDER BY j.due, j.number LIMIT $6
"""


async def enqueue(connection: Connection, encoded: EncodedJob) -> None:
    """Insert a job. The caller has locked the row of its session."""
    job = encoded.job
    try:
        await connection.execute(_INSERT_JOB, encoded.id, job.session, job.kind, encoded.payload, job.key, job.due)
    except asyncpg.UniqueViolationError as error:
        raise BadRecord(f"The job id {encoded.id} is taken.", remedy="Choose another id, or leave it out.") from error
    await connection.execute(_REFRESH_READY_TIMES, job.session, job.kind)


async def claim(
    connection: Connection, owner: str, kinds: Sequence[str], *, session: str | None, now: int, expires: int
) -> Lease | None:
    """Try to claim a job; None if none is ready or another worker claimed it first."""
    kind_list = list(kinds)
    locked = None if session else await connection.fetchval(_LOCK_READY, kind_list, now)
    session = session or locked or await connection.fetchval(_SELECT_READY, kind_list, now)
    if session is None:
        return None
    if locked is None:
        await _lock_session(connection, session)
    # Read again under the lock: another worker may have claimed the job meanwhile.
    kind = await connection.fetchval(_SELECT_READY_KIND, session, kind_list, now)
    return None if kind is None else await _claim_job(connection, session, kind, owner, expires)


async def _claim_job(connection: Connection, session: str, kind: str, owner: str, expires: int) -> Lease:
    row = await connection.fetchrow(_CLAIM_JOB, session, kind, owner, expires)
    assert row is not None
    await connection.execute(_REFRESH_READY_TIMES, session, None)
    return Lease(
        job=row["id"],
        kind=kind,
        session=session,
        payload=decode(row["payload"]),
        attempt=row["attempts"],
        fence=row["fence"],
        owner=owner,
        expires=expires,
        error=row["error"],
    )


async def require_held(connection: Connection, lease: Lease) -> None:
    """Raise `StaleLease` if the lease is not held. The caller has locked the row of the session until it commits."""
    current = await connection.fetchrow("SELECT fence, job FROM leases WHERE session = $1", lease.session)
    if current is None or (current["fence"], current["job"]) != (lease.fence, lease.job):
        raise StaleLease(lease.job, lease.fence)


async def renew_lease(connection: Connection, lease: Lease, expires: int) -> None:
    await _lock_session(connection, lease.session)
    await require_held(connection, lease)
    await connection.execute("UPDATE leases SET expires = $2 WHERE session = $1", lease.session, expires)
    await connection.execute(_REFRESH_READY_TIMES, lease.session, None)


async def settle(connection: Connection, lease: Lease, settlement: Settlement) -> None:
    """End a lease and settle its job. The caller has locked the row of the session."""
    await require_held(connection, lease)
    match settlement:
        case Completion():
            await connection.execute("DELETE FROM jobs WHERE id = $1", lease.job)
        case Retry(due=due, error=error):
            await connection.execute(_RETRY, lease.job, due, error)
        case DeadLetter(error=error):
            await connection.execute("UPDATE jobs SET state = 'dead', error = $2 WHERE id = $1", lease.job, error)
    await connection.execute("UPDATE leases SET job = NULL, owner = '', expires = 0 WHERE session = $1", lease.session)
    await connection.execute(_REFRESH_READY_TIMES, lease.session, None)


async def lock_and_settle(connection: Connection, lease: Lease, settlement: Settlement) -> None:
    await _lock_session(connection, lease.session)
    await settle(connection, lease, settlement)


async def _lock_session(connection: Connection, session: str) -> None:
    await connection.execute("SELECT 1 FROM sessions WHERE id = $1 FOR UPDATE", session)


async def next_due(connection: Connection, kinds: Sequence[str]) -> int | None:
    soonest: int | None = await connection.fetchval(_SELECT_NEXT_DUE, list(kinds))
    return soonest


async def list_jobs(
    connection: Connection,
    *,
    session: str | None = None,
    kind: str | None = None,
    dead: bool = False,
    after: Job | None = None,
    limit: int = 50,
) -> tuple[Job, ...]:
    state, previous = "dead" if dead else "queued", (after.id, after.due) if after else (None, None)
    rows = await connection.fetch(_SELECT_JOBS, state, session, kind, *previous, clamp_page_size(limit))
    return tuple(to_job(row) for row in rows)
