"""Due work in SQL: who may take which job, found by one look into an index.

A lane is the queue of one session and one kind of job. Its `ready_at` is the moment its first job can be claimed: when the job
is due, or when the lease that somebody holds on the session runs out, whichever is later. So a claim asks an index for the lane
that has been ready longest. It does not walk over jobs that are held, not yet due, or of a kind this process does not know, and
its cost does not grow with their number.

The row in `leases` stays when a session has no jobs left: its fencing number must never start again.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw
from msgspec import structs

from fidelio.errors import BadRecord, SessionNotFound, StaleLease
from fidelio.ledger.codec import decode
from fidelio.ledger.encoding import PreparedJob
from fidelio.ledger.model import Dead, Done, Job, Lease, Retry, Settlement
from fidelio.ledger.paging import page_size
from fidelio.ledger.projection import DELETED, was_deleted
from fidelio.ledger.sqlite.rows import fetch, statement, to_job

_ENQUEUE = """
INSERT INTO jobs (id, session, kind, payload, about, due, attempts, state, error, waiting)
VALUES (?, ?, ?, ?, ?, ?, 0, 'queued', '', 1)
ON CONFLICT (session, kind, about) WHERE waiting AND about IS NOT NULL DO UPDATE SET due = min(due, excluded.due)
"""
_REFRESH = """
INSERT INTO lanes SELECT ?1, ?2, max(j.due, coalesce((SELECT expires FROM leases WHERE session = ?1 AND job IS NOT NULL), 0))
FROM jobs AS j WHERE j.session = ?1 AND j.kind = ?2 AND j.state = 'queued' ORDER BY j.due LIMIT 1
ON CONFLICT DO UPDATE SET ready_at = excluded.ready_at
"""
_READY = "SELECT ready_at, session FROM lanes WHERE kind = ? AND ready_at <= ? ORDER BY ready_at LIMIT 1"
_FIRST = """
UPDATE jobs SET attempts = attempts + 1, waiting = 0
WHERE key = (SELECT key FROM jobs WHERE session = ? AND kind = ? AND state = 'queued' ORDER BY due, key LIMIT 1)
RETURNING id, payload, attempts
"""
_TAKE = """
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


def enqueue(connection: apsw.Connection, prepared: PreparedJob) -> None:
    job = prepared.job
    status = connection.execute("SELECT status FROM sessions WHERE id = ?", (job.session,)).get
    if status is None:
        raise SessionNotFound(
            f"The job {job.kind} is for session {job.session}, which is not there.", remedy="Create it first."
        )
    if status == DELETED:
        raise was_deleted(job.session)
    if connection.execute("SELECT 1 FROM jobs WHERE id = ?", (prepared.id,)).get is not None:
        raise BadRecord(f"The job id {prepared.id} is taken.", remedy="Choose another id, or leave it out.")
    connection.execute(_ENQUEUE, (prepared.id, job.session, job.kind, prepared.payload, job.key, job.due))
    _refresh(connection, job.session, job.kind)


def claim(connection: apsw.Connection, owner: str, kinds: Sequence[str], *, now: int, expires: int) -> Lease | None:
    ready = [(*row, kind) for kind in kinds if (row := connection.execute(_READY, (kind, now)).get)]
    if not ready:
        return None
    _, session, kind = min(ready)
    job, payload, attempt = connection.execute(_FIRST, (session, kind)).get
    fence = connection.execute(_TAKE, (session, job, owner, expires)).get
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
    )


def require_held(connection: apsw.Connection, lease: Lease) -> None:
    held = connection.execute("SELECT fence, job FROM leases WHERE session = ?", (lease.session,)).get
    if held != (lease.fence, lease.job):
        raise StaleLease(lease.job, lease.fence)


def prolong(connection: apsw.Connection, lease: Lease, expires: int) -> Lease:
    require_held(connection, lease)
    connection.execute("UPDATE leases SET expires = ? WHERE session = ?", (expires, lease.session))
    _refresh_session(connection, lease.session)
    return structs.replace(lease, expires=expires)


def settle(connection: apsw.Connection, lease: Lease, how: Settlement) -> None:
    require_held(connection, lease)
    match how:
        case Done():
            connection.execute("DELETE FROM jobs WHERE id = ?", (lease.job,))
        case Retry(due=due, error=error):
            connection.execute(_RETRY, (due, error, lease.job))
        case Dead(error=error):
            connection.execute("UPDATE jobs SET state = 'dead', error = ? WHERE id = ?", (error, lease.job))
    connection.execute("UPDATE leases SET job = NULL, owner = '', expires = 0 WHERE session = ?", (lease.session,))
    _refresh_session(connection, lease.session)


def next_due(connection: apsw.Connection, kinds: Sequence[str]) -> int | None:
    found = (connection.execute("SELECT min(ready_at) FROM lanes WHERE kind = ?", (kind,)).get for kind in kinds)
    return min((ready for ready in found if ready is not None), default=None)


def listed(connection: apsw.Connection, *, session: str | None, dead: bool, limit: int) -> tuple[Job, ...]:
    state = "dead" if dead else "queued"
    where = "WHERE j.state = ?" if session is None else "WHERE j.state = ? AND j.session = ?"
    given = (state,) if session is None else (state, session)
    rows = fetch(connection, statement(_JOBS, where, "ORDER BY j.due, j.key LIMIT ?"), (*given, page_size(limit)))
    return tuple(to_job(row) for row in rows)


def _refresh_session(connection: apsw.Connection, session: str) -> None:
    for (kind,) in fetch(connection, "SELECT kind FROM lanes WHERE session = ?", (session,)):
        _refresh(connection, session, kind)


def _refresh(connection: apsw.Connection, session: str, kind: str) -> None:
    connection.execute(_REFRESH, (session, kind))
    if not connection.changes():
        connection.execute("DELETE FROM lanes WHERE session = ? AND kind = ?", (session, kind))
