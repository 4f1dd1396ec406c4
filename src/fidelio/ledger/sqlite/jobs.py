"""SQL for jobs and leases.

The table `lanes` has a row for every session and kind of job with queued jobs. Its `ready_at` is the time at which the first of
these jobs can be claimed: its due time, or the expiry of the current lease of the session, whichever is later. A claim reads
the lane with the smallest `ready_at` from an index, so its cost does not grow with the number of jobs that are leased, not yet
due or of another kind.

The row in `leases` stays when a session has no jobs left, because its fencing token must never start again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import apsw
from msgspec import structs

from fidelio.errors import BadRecord, SessionNotFound, StaleLease
from fidelio.ledger.encoding import DELETED, EncodedJob, decode, session_deleted
from fidelio.ledger.model import Completion, DeadLetter, Job, Lease, Retry, Settlement
from fidelio.ledger.paging import clamp_page_size
from fidelio.ledger.rows import to_job
from fidelio.ledger.sqlite.schema import fetch, join_sql

_INSERT_JOB = """
INSERT INTO jobs (id, session, kind, payload, about, due, attempts, state, error, waiting)
VALUES (?, ?, ?, ?, ?, ?, 0, 'queued', '', 1)
ON CONFLICT (session, kind, about) WHERE waiting AND about IS NOT NULL DO UPDATE SET due = min(due, excluded.due)
"""
_UPSERT_LANE = """
INSERT INTO lanes SELECT ?1, ?2, max(j.due, coalesce((SELECT expires FROM leases WHERE session = ?1 AND job IS NOT NULL), 0))
FROM jobs AS j WHERE j.session = ?1 AND j.kind = ?2 AND j.state = 'queued' ORDER BY j.due LIMIT 1
ON CONFLICT DO UPDATE SET ready_at = excluded.ready_at
"""
_SELECT_READY = "SELECT ready_at, session FROM lanes WHERE kind = ? AND ready_at <= ? ORDER BY ready_at LIMIT 1"
_SELECT_READY_SESSION = "SELECT ready_at, session FROM lanes WHERE kind = ? AND ready_at <= ? AND session = ?"
_CLAIM_FIRST = """
UPDATE jobs SET attempts = attempts + 1, waiting = 0
WHERE key = (SELECT key FROM jobs WHERE session = ? AND kind = ? AND state = 'queued' ORDER BY due, key LIMIT 1)
RETURNING id, payload, attempts, error
"""
_INSERT_LEASE = """
INSERT INTO leases VALUES (?, 1, ?, ?, ?)
ON CONFLICT DO UPDATE SET fence = fence + 1, job = excluded.job, owner = excluded.owner, expires = excluded.expires
RETURNING fence
"""
_RETRY = """
UPDATE jobs SET due = ?1, error = ?2, waiting = NOT EXISTS (
    SELECT 1 FROM jobs AS other
    WHERE other.session = jobs.session AND other.kind = jobs.kind AND other.about = jobs.about AND other.waiting
) WHERE id = ?3
"""
_JOBS = """
SELECT j.id, j.kind, j.session, j.payload, j.due, j.attempts, j.state, j.error,
    coalesce(l.owner, ''), coalesce(l.expires, 0), coalesce(l.fence, 0)
FROM jobs AS j LEFT JOIN leases AS l ON l.job = j.id AND l.session = j.session
"""
# If the job with this id has ended meanwhile, the jobs that are due at the same time are left out; the next list has them.
_AFTER = "AND (j.due, j.key) > (?, (SELECT key FROM jobs WHERE id = ?))"


def enqueue(connection: apsw.Connection, encoded: EncodedJob) -> None:
    job = encoded.job
    status = connection.execute("SELECT status FROM sessions WHERE id = ?", (job.session,)).get
    if status is None:
        raise SessionNotFound(
            f"The job {job.kind} is for session {job.session}, which does not exist.", remedy="Create the session first."
        )
    if status == DELETED:
        raise session_deleted(job.session)
    if connection.execute("SELECT 1 FROM jobs WHERE id = ?", (encoded.id,)).get is not None:
        raise BadRecord(f"The job id {encoded.id} is taken.", remedy="Choose another id, or leave it out.")
    connection.execute(_INSERT_JOB, (encoded.id, job.session, job.kind, encoded.payload, job.key, job.due))
    _refresh_lane(connection, job.session, job.kind)


def claim(
    connection: apsw.Connection, owner: str, kinds: Sequence[str], *, session: str | None, now: int, expires: int
) -> Lease | None:
    select, values = (_SELECT_READY, (now,)) if session is None else (_SELECT_READY_SESSION, (now, session))
    ready = [(*row, kind) for kind in kinds if (row := connection.execute(select, (kind, *values)).get)]
    if not ready:
        return None
    _, session, kind = min(ready)
    job, payload, attempt, error = connection.execute(_CLAIM_FIRST, (session, kind)).get
    fence = connection.execute(_INSERT_LEASE, (session, job, owner, expires)).get
    _refresh_session(connection, session)
    return Lease(
        job=job,
        kind=kind,
        session=session,
        payload=decode(payload),
        attempt=attempt,
        fence=fence,
        owner=owner,
        expires=expires,
        error=error,
    )


def require_held(connection: apsw.Connection, lease: Lease) -> None:
    current = connection.execute("SELECT fence, job FROM leases WHERE session = ?", (lease.session,)).get
    if current != (lease.fence, lease.job):
        raise StaleLease(lease.job, lease.fence)


def renew_lease(connection: apsw.Connection, lease: Lease, expires: int) -> Lease:
    require_held(connection, lease)
    connection.execute("UPDATE leases SET expires = ? WHERE session = ?", (expires, lease.session))
    _refresh_session(connection, lease.session)
    return structs.replace(lease, expires=expires)


def settle(connection: apsw.Connection, lease: Lease, settlement: Settlement) -> None:
    require_held(connection, lease)
    match settlement:
        case Completion():
            connection.execute("DELETE FROM jobs WHERE id = ?", (lease.job,))
        case Retry(due=due, error=error):
            connection.execute(_RETRY, (due, error, lease.job))
        case DeadLetter(error=error):
            connection.execute("UPDATE jobs SET state = 'dead', error = ? WHERE id = ?", (error, lease.job))
    connection.execute("UPDATE leases SET job = NULL, owner = '', expires = 0 WHERE session = ?", (lease.session,))
    _refresh_session(connection, lease.session)


def next_due(connection: apsw.Connection, kinds: Sequence[str]) -> int | None:
    ready_times = (connection.execute("SELECT min(ready_at) FROM lanes WHERE kind = ?", (kind,)).get for kind in kinds)
    return min((ready for ready in ready_times if ready is not None), default=None)


def list_jobs(
    connection: apsw.Connection,
    *,
    session: str | None = None,
    kind: str | None = None,
    dead: bool = False,
    after: Job | None = None,
    limit: int = 50,
) -> tuple[Job, ...]:
    conditions: dict[str, tuple[object, ...]] = {"WHERE j.state = ?": ("dead" if dead else "queued",)}
    if session is not None:
        conditions["AND j.session = ?"] = (session,)
    if kind is not None:
        conditions["AND j.kind = ?"] = (kind,)
    if after is not None:
        conditions[_AFTER] = (after.due, after.id)
    values = (*chain.from_iterable(conditions.values()), clamp_page_size(limit))
    rows = fetch(connection, join_sql(_JOBS, *conditions, "ORDER BY j.due, j.key LIMIT ?"), values)
    return tuple(to_job(row) for row in rows)


def _refresh_session(connection: apsw.Connection, session: str) -> None:
    for (kind,) in fetch(connection, "SELECT kind FROM lanes WHERE session = ?", (session,)):
        _refresh_lane(connection, session, kind)


def _refresh_lane(connection: apsw.Connection, session: str, kind: str) -> None:
    connection.execute(_UPSERT_LANE, (session, kind))
    if not connection.changes():
        connection.execute("DELETE FROM lanes WHERE session = ? AND kind = ?", (session, kind))
