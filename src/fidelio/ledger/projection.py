"""What a change makes of a session's row. Pure, so that both databases and every replay agree on it."""

from __future__ import annotations

from collections.abc import Sequence

from fidelio.ledger.chain import genesis
from fidelio.ledger.model import NO_RECORD, Change, Event, NewSession, Session

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
