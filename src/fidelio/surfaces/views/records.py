"""JSON of sessions, events, hits of search, verifications and the keys of people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from fidelio.app.records import ChainVerdict, describe_store
from fidelio.clock import format_iso
from fidelio.errors import ChainBroken
from fidelio.ledger.model import Event, FieldMatch, Hit, Session, SessionKind

if TYPE_CHECKING:
    from fidelio.app.passkeys import PersonKey

Moment: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
# What a session does, in a word for people.
SessionState: TypeAlias = Literal["working", "waiting", "done", "failed", "ended", "idle"]
_STATES: Mapping[str, SessionState] = {
    "active": "working",
    "running": "working",
    "starting": "working",
    "queued": "working",
    "rescheduling": "working",
    "blocked": "waiting",
    "waiting": "waiting",
    "completed": "done",
    "succeeded": "done",
    "failed": "failed",
    "lost": "failed",
    "stopped": "ended",
    "cancelled": "ended",
    "terminated": "ended",
}


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A session in a list. `about`: the workflow and its current activity, what a store holds, or the name."""

    id: str
    kind: SessionKind
    namespace: str
    name: str | None
    about: str
    parent: str | None
    status: str
    reason: str
    events: int
    head: str
    created_at: Moment
    updated_at: Moment


class EventDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An event: `seq` is its number in its session, `position` that in the ledger. An erased body is `{"redacted": true}`."""

    session: str
    seq: int
    position: int
    id: str
    type: str
    actor: str
    time: Moment
    body: dict[str, Any]
    hash: str


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """A hit of search, with the words that matched in each field, and an excerpt."""

    source: Literal["event", "document"]
    session: str | None
    seq: int | None
    type: str
    space: str | None
    path: str | None
    version: int | None
    time: Moment
    rank: float = msgspec.field(name="score")
    matches: tuple[FieldMatch, ...]


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What verifying a session has found. A broken chain has only the event where it breaks, and why."""

    session: str
    holds: bool
    events: int | UnsetType = UNSET
    redacted: int | UnsetType = UNSET
    head: str | UnsetType = UNSET
    problems: tuple[str, ...] | UnsetType = UNSET
    not_covered: tuple[str, ...] | UnsetType = UNSET
    seq: int | UnsetType | None = UNSET
    reason: str | UnsetType = UNSET


def session_fields(session: Session) -> dict[str, Any]:
    """The values of a `SessionSummary`."""
    return {
        "id": session.id,
        "kind": session.kind,
        "namespace": session.namespace,
        "name": session.name,
        "about": describe_session(session),
        "parent": session.parent,
        "status": session.status,
        "reason": session.reason,
        "events": session.last_seq,
        "head": session.head.hex(),
        "created_at": format_iso(session.created_at),
        "updated_at": format_iso(session.updated_at),
    }


def describe_session(session: Session) -> str:
    """The workflow and its current activity, what a store holds, or the name."""
    record = session.record
    if store := describe_store(session):
        return store
    position = [str(part) for part in (record.get("workflow"), record.get("here", {}).get("activity")) if part]
    return ", ".join(position) or session.name or str(record.get("agent") or "")


def describe_state(status: str) -> SessionState:
    """What a session with this status does, in a word."""
    return _STATES.get(status, "idle")


def view_event(event: Event, body: Mapping[str, Any] | None = None) -> EventDetail:
    """`body`: with the texts that are stored apart from the event."""
    return EventDetail(
        session=event.session,
        seq=event.seq,
        position=event.position,
        id=event.id,
        type=event.type,
        actor=event.actor,
        time=format_iso(event.time),
        body={"redacted": True} if event.redacted else dict(event.body if body is None else body),
        hash=event.hash.hex(),
    )


def view_hit(hit: Hit) -> SearchResult:
    return SearchResult(
        source=hit.source,
        session=hit.session,
        seq=hit.seq,
        type=hit.type,
        space=hit.space,
        path=hit.path,
        version=hit.version,
        time=format_iso(hit.time),
        rank=hit.rank,
        matches=hit.matches,
    )


def view_verdict(verdict: ChainVerdict | ChainBroken) -> Verification:
    if isinstance(verdict, ChainBroken):
        return Verification(session=verdict.session, holds=False, seq=verdict.seq, reason=verdict.reason)
    return Verification(
        session=verdict.session,
        holds=verdict.holds,
        events=verdict.events,
        redacted=verdict.redacted,
        head=verdict.head.hex(),
        problems=tuple(verdict.problems),
        not_covered=tuple(verdict.not_covered),
    )


def key_json(key: PersonKey) -> dict[str, Any]:
    """The key of a person, and how it was registered."""
    about = {"name": key.name, "fingerprint": key.fingerprint, "state": key.state, "by": key.by}
    times = {"since": format_iso(key.time), "confirmed": format_iso(key.confirmed_at) if key.confirmed_at else None}
    return {
        **about,
        "host": key.host,
        "origin": key.origin,
        "confirmed_with": key.confirmed_with,
        **times,
        "removed": format_iso(key.removed_at) if key.removed_at else None,
    }
