"""Rows of sessions after creation, after a change and after deletion, the same for both databases.

A deleted session keeps its events with their digests, so its chain still verifies; bodies, requests, documents and jobs are
erased. Its last event says who deleted it and why. Its id stays reserved, its name becomes available, and every further change
is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fidelio.errors import SessionNotFound
from fidelio.ledger.chain import hash_session_id
from fidelio.ledger.checks import check_label, check_session_id, check_text
from fidelio.ledger.model import NO_RECORD, Change, Event, NewEvent, NewSession, Session

DELETED = "deleted"
SESSION_DELETED = "session.deleted"
# Sessions per transaction: a large batch shares a single sync, but other writers wait until it ends.
LARGEST_BATCH = 1000


def split_batches(sessions: Sequence[str], *, actor: str, reason: str) -> Iterator[list[str]]:
    """Split unique session ids into batches; raise `BadRecord` for an invalid value before anything is erased."""
    check_label(actor, "actor")
    check_text(reason, "reason")
    for session in sessions:
        check_session_id(session)
    unique_sessions = list(dict.fromkeys(sessions))
    return (unique_sessions[start : start + LARGEST_BATCH] for start in range(0, len(unique_sessions), LARGEST_BATCH))


def build_deletion(session: str, *, actor: str, reason: str, expect: int | None = None) -> Change:
    """Build the last change of a session that is erased. `expect` is its expected sequence number."""
    event = NewEvent(type=SESSION_DELETED, body={"reason": reason}, actor=actor)
    return Change(session=session, expect=expect, events=(event,), status=DELETED, reason=reason, record={})


def session_deleted(session: str) -> SessionNotFound:
    return SessionNotFound(f"Session {session} was deleted.", remedy="Start another session.")


INITIAL_STATUS = "active"


def create_row(session: str, create: NewSession, *, now: int) -> Session:
    """Create the row of a session without events; its head is the hash of its id."""
    return Session(
        id=session,
        kind=create.kind,
        namespace=create.namespace,
        name=create.name,
        parent=create.parent,
        status=INITIAL_STATUS,
        reason="",
        raw=NO_RECORD,
        last_seq=0,
        head=hash_session_id(session),
        created_at=now,
        updated_at=now,
    )


def advance_row(session: Session, change: Change, events: Sequence[Event], *, raw: str | None, now: int) -> Session:
    """Compute the row after `change`; `raw` is the text of the new record, None if it stays.

    A new status without a reason clears the reason, which explained the previous status.
    """
    status, reason = (session.status, session.reason) if change.status is None else (change.status, "")
    return Session(
        session.id,
        session.kind,
        session.namespace,
        session.name,
        session.parent,
        status,
        reason if change.reason is None else change.reason,
        session.raw if raw is None else raw,
        events[-1].seq if events else session.last_seq,
        events[-1].hash if events else session.head,
        session.created_at,
        now,
    )


def changes_row(change: Change) -> bool:
    """Whether the row of the session changes; a change that only queues a job or stores a blob does not change it."""
    return bool(change.events) or change.status is not None or change.reason is not None or change.record is not None
