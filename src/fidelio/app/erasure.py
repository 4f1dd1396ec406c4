"""Erasure for a person: which sessions a deletion takes, and which events a redaction.

Both are planned first, so that a surface can show what will be erased before it asks. Nothing that works or waits is deleted:
it is named, and a person ends it first.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from fidelio.errors import Command, Hint, SessionNotFound, UsageProblem
from fidelio.ids import is_short_handle
from fidelio.ledger import Ledger
from fidelio.ledger.encoding import DELETED, REDACTED, SESSION_DELETED
from fidelio.ledger.model import Document, Event, Request, Session
from fidelio.ledger.paging import all_pages, event_pages
from fidelio.ledger.redaction import find_request_events

# The states in which a session can be deleted.
DELETABLE = {
    "workflow": frozenset({"completed", "cancelled"}),
    "agent": frozenset({"succeeded", "failed", "stopped", "lost"}),
    # Its sandbox is stopped and its requests are withdrawn by the deletion.
    "runtime": frozenset({"idle", "terminated"}),
}
# As many as one transaction erases, and as one redaction names.
BATCH = 1_000
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAMED = 10


class RedactionPlan(msgspec.Struct, frozen=True):
    """The events to erase. `unerasable` are those that have the text in a field that the chain needs.

    `remains` names what contains the text although there is no event to erase.
    """

    session: Session
    events: tuple[Event, ...]
    unerasable: tuple[Event, ...] = ()
    remains: tuple[str, ...] = ()

    def batches(self) -> Iterator[list[int]]:
        """The numbers of the events, as many as are erased at once."""
        seqs = [event.seq for event in self.events]
        return (seqs[first : first + BATCH] for first in range(0, len(seqs), BATCH))


async def plan_deletion(ledger: Ledger, session: Session) -> list[Session]:
    """The session and all that it has started, directly or not, and the workers of those that were conducted.

    Raises `UsageProblem` if any of them works or waits.
    """
    if session.status == DELETED:
        raise SessionNotFound(
            f"Session {session.id} was deleted before.", remedy=Hint(Command("sessions"), " lists the others.")
        )
    found = [session, *[child async for child in _iter_descendants(ledger, session.id)]]
    found += [worker async for worker in _iter_workers(ledger, found)]
    if unfinished := [each for each in found if each.status not in DELETABLE.get(each.kind, ())]:
        raise _refuse_unfinished(session, unfinished)
    return found


def split_by_kind(sessions: Iterable[Session]) -> tuple[list[Session], list[Session], list[Session]]:
    """Agents and runtime sessions, whose processes and files are deleted with them, and all others."""
    agents, runtimes, others = list[Session](), list[Session](), list[Session]()
    kinds = {"agent": agents, "runtime": runtimes}
    for session in sessions:
        (kinds.get(session.kind, others) if session.has_record else others).append(session)
    return agents, runtimes, others


async def _iter_descendants(ledger: Ledger, session: str) -> AsyncIterator[Session]:
    async for child in all_pages(partial(ledger.sessions, parent=session)):
        yield child
        async for descendant in _iter_descendants(ledger, child.id):
            yield descendant


async def _iter_workers(ledger: Ledger, sessions: Sequence[Session]) -> AsyncIterator[Session]:
    """The workers of conducted sessions. Their names begin with the id of the session; it is not their parent."""
    # An id that somebody has chosen could be the beginning of another name.
    prefixes = tuple(f"{session.id}-" for session in sessions if session.kind == "workflow" and is_short_handle(session.id))
    known = {session.id for session in sessions}
    async for worker in all_pages(partial(ledger.sessions, kind="agent")):
        if worker.id in known or not (worker.name or "").startswith(prefixes):
            continue
        yield worker
        async for descendant in _iter_descendants(ledger, worker.id):
            yield descendant


def _refuse_unfinished(session: Session, unfinished: Sequence[Session]) -> UsageProblem:
    named = ", ".join(f"{_name(each)} is {each.status}" for each in unfinished[:_NAMED])
    more = f" and {len(unfinished) - _NAMED} more" if len(unfinished) > _NAMED else ""
    first = unfinished[0]
    end = Command("agents", "stop", first.id) if first.kind == "agent" else Command("sessions", "--end", first.id)
    return UsageProblem(
        f"Session {_name(session)} cannot be deleted: {named}{more}.", remedy=Hint("End it first with ", end, ".")
    )


def _name(session: Session) -> str:
    return f"{session.name} ({session.id})" if session.name else session.id


async def plan_redaction(ledger: Ledger, session: Session, seqs: Collection[int], text: str) -> RedactionPlan:
    """Find the events with these numbers, or with this text anywhere in their bodies or in what is erased with them.

    That is the contents that belong to them, and the requests that they opened or closed: a question may quote a variable.
    Events that are redacted already are left out, and so are those that say what was redacted.
    """
    wanted, found, unerasable = set(seqs), list[Event](), list[Event]()
    owners = await _find_owners(ledger, session.id, text) if text else set()
    async for page in event_pages(ledger, session.id):
        for event in page:
            if text and text in event.actor:
                unerasable.append(event)
            if event.redacted or event.type in (REDACTED, SESSION_DELETED):
                continue
            if event.seq in wanted | owners or (text and await _contains(ledger, event.body, text)):
                found.append(event)
    if unknown := sorted(seq for seq in wanted if not 1 <= seq <= session.last_seq):
        raise UsageProblem(
            f"Session {_name(session)} has no event {unknown[0]}.", remedy=Hint(Command("events", session.id), " lists them.")
        )
    remains = await find_remains(ledger, session.id, text) if text and not found else []
    return RedactionPlan(session, tuple(found), tuple(unerasable), tuple(remains))


async def _find_owners(ledger: Ledger, session: str, text: str) -> set[int]:
    """The events with which the requests that contain a text are erased."""
    owners = set[int]()
    async for request in all_pages(partial(ledger.requests, session=session, state=None)):
        in_question, in_answer = _is_in(text, _question_of(request)), _is_in(text, request.answer)
        if in_question or in_answer:
            opening, closing = await find_request_events(ledger, request)
            owners |= (opening if in_question else set()) | (closing if in_answer else set())
    return owners


def _question_of(request: Request) -> list[object]:
    return [request.question, request.subject, *request.options, request.detail]


def _is_in(text: str, value: object) -> bool:
    return any(text in each for each in _iter_texts(value))


async def _contains(ledger: Ledger, body: dict[str, Any], text: str) -> bool:
    for value in _iter_texts(body):
        if text in value:
            return True
        # A long text is stored as a blob, and the body holds only its digest.
        if _DIGEST.fullmatch(value) and text.encode(errors="replace") in (await ledger.blob(value) or b""):
            return True
    return False


def _iter_texts(value: object) -> Iterator[str]:
    """All keys and values of a JSON value as texts."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _iter_texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _iter_texts(inner)
    elif isinstance(value, str):
        yield value
    elif value is not None:
        yield msgspec.json.encode(value).decode()


async def find_remains(ledger: Ledger, session: str, text: str) -> list[str]:
    """Name what still contains a text after a redaction: ids and names that the session needs, and what no redaction erases."""
    row = await ledger.session(session)
    found = [f"the name of session {session}"] if text in (row.name or "") else []
    found += [f"the record of session {session}"] if _is_in(text, row.record) else []
    async for request in all_pages(partial(ledger.requests, session=session, state=None)):
        found += [f"request {request.id}"] if _is_in(text, [*_question_of(request), request.key, request.answer]) else []
    async for page in event_pages(ledger, session, types=(REDACTED,)):
        # With what the ledger keeps of the erased events, which `Event.body` leaves out.
        found += [f"event {event.seq}, which says what was erased" for event in page if _is_in(text, _decode(event))]
    found += [f"document {each.space}/{each.path}" async for each in _iter_documents(ledger, session, text)]
    return found


def _decode(event: Event) -> object:
    return msgspec.json.decode(event.raw or "{}")


async def _iter_documents(ledger: Ledger, session: str, text: str) -> AsyncIterator[Document]:
    """The versions of documents of a session that contain a text."""
    last: Document | None = None
    while page := await ledger.versions_of(session, after=last):
        for document in page:
            content = await ledger.blob(document.digest) if document.digest else None
            if text in document.path or text.encode(errors="replace") in (content or b""):
                yield document
        last = page[-1]


async def find_unfinished(ledger: Ledger, agent: str, workflow: str) -> list[Session]:
    """The unfinished sessions of a bundled workflow that an agent of this name has started."""
    return [
        session
        for status in ("active", "blocked")
        async for session in all_pages(partial(ledger.sessions, kind="workflow", status=status))
        if session.record.get("workflow") == workflow
        and session.record.get("found_in") == "bundled"
        and [event.actor for event in await ledger.events(session.id, limit=1)] == [agent]
    ]
