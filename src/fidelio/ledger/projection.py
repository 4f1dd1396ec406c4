"""What it means that a session was deleted, the same for every database.

Nothing it said is left, and everything it proves is: its events keep their digests, so its chain verifies as before, and a last
event says who deleted it and why. Its id stays taken for ever, its name is free at once, and nobody can write to it any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fidelio.errors import SessionNotFound
from fidelio.ledger.chain import genesis
from fidelio.ledger.checks import check_label, check_session_id, check_text
from fidelio.ledger.model import NO_RECORD, Change, Event, NewEvent, NewSession, Session

DELETED = "deleted"
SESSION_DELETED = "session.deleted"
# One transaction each: long enough to be worth its sync, short enough for others to wait for.
LARGEST_BATCH = 1000


def batches(sessions: Sequence[str], *, actor: str, reason: str) -> Iterator[list[str]]:
    """The sessions in portions, each of them once; raises `BadRecord` before anything is erased."""
    check_label(actor, "actor")
    check_text(reason, "reason")
    for session in sessions:
        check_session_id(session)
    wanted = list(dict.fromkeys(sessions))
    return (wanted[start : start + LARGEST_BATCH] for start in range(0, len(wanted), LARGEST_BATCH))


def last_change(session: str, *, actor: str, reason: str, expect: int | None = None) -> Change:
    """What is left of a session when it is erased. `expect` is the sequence number it has to be erased at."""
    notice = NewEvent(type=SESSION_DELETED, body={"reason": reason}, actor=actor)
    return Change(session=session, expect=expect, events=(notice,), status=DELETED, reason=reason, record={})


def was_deleted(session: str) -> SessionNotFound:
    return SessionNotFound(f"Session {session} was deleted.", remedy="Start another one.")


FIRST_STATUS = "active"


def born(session: str, create: NewSession, *, now: int) -> Session:
    """The row of a session without events: its head is the hash of its own name."""
    return Session(
        id=session,
        kind=create.kind,
        namespace=create.namespace,
        name=create.name,
        parent=create.parent,
        status=FIRST_STATUS,
        reason="",
        raw=NO_RECORD,
        last_seq=0,
        head=genesis(session),
        created_at=now,
        updated_at=now,
    )


def advanced(session: Session, change: Change, events: Sequence[Event], *, raw: str | None, now: int) -> Session:
    """The row after `change`, whose record has the text `raw`.

    A new status without a reason has none: the old one explained the old status.
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


def touches(change: Change) -> bool:
    """Whether the session's own row changes; a change that only queues a job or stores a blob leaves it alone."""
    return bool(change.events) or change.status is not None or change.reason is not None or change.record is not None
