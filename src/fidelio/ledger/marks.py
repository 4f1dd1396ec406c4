"""Marks: what the ledger itself adds to the body of each event, so that the hash chain covers the other tables too.

The body of every event has the key `ledger`, which only this module writes. It says which version of the rules wrote the event
and, where they apply, what the change stored beside it: the row of a new session, the digests of the question, options and
answer of its requests, its documents and blobs. `fidelio.ledger.audit` compares the tables with them. An event without a mark
was written by an earlier version: what it stored is not covered. The mark is part of the chained body, so an event cannot lose
it, and nobody above the ledger sees it: `Event.body` leaves it out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from fidelio.ledger.model import MARK, Change, CloseRequest, Event, NewSession, OpenRequest, Request

VERSION = 1
_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(dict[str, Any])
_PLAIN = f'{{"{MARK}":{{"v":{VERSION}}}'

Mark = dict[str, Any]


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def hash_json(value: object) -> str:
    """Compute the digest of a value as JSON; equal values have equal digests, whatever the order of their keys."""
    return hashlib.sha256(_encoder.encode(value)).hexdigest()


def add_marks(change: Change, bodies: Sequence[str], digests: Sequence[str | None], *, now: int) -> list[str]:
    """Add the marks to the encoded bodies of a change. `digests` are those of the texts of its documents."""
    others = change.create or change.requests or change.documents or change.record is not None or change.marks
    if not bodies or not (others or any(event.blobs for event in change.events)):
        return [_join(_PLAIN, body) for body in bodies]
    marks: list[Mark] = [
        {"v": VERSION, "blobs": list(event.blobs)} if event.blobs else {"v": VERSION} for event in change.events
    ]
    if change.create is not None:
        marks[0]["session"] = describe_new(change.create, now)
    for request in change.requests:
        _owner(marks, bodies, request.id).setdefault("requests", []).append(describe_request(request, now))
    if change.documents:
        marks[-1]["documents"] = [[new.space, new.path, digest] for new, digest in zip(change.documents, digests, strict=True)]
    if change.record is not None:
        marks[-1]["row"] = True
    marks[-1] |= change.marks
    return [_join(f'{{"{MARK}":{_encoder.encode(mark).decode()}', body) for mark, body in zip(marks, bodies, strict=True)]


def _join(start: str, body: str) -> str:
    return f"{start}{'' if body == '{}' else ','}{body[1:]}"


def _owner(marks: Sequence[Mark], bodies: Sequence[str], request: str) -> Mark:
    """The mark of the first event that names the request, which is redacted with it; else of the last event."""
    return next((mark for mark, body in zip(marks, bodies, strict=True) if request in body), marks[-1])


def describe_new(create: NewSession, now: int) -> Mark:
    return {"kind": create.kind, "namespace": create.namespace, "name": create.name, "parent": create.parent, "at": now}


def describe_request(request: OpenRequest | CloseRequest, now: int) -> Mark:
    """What the row of a request must say from now on. The texts are only digests here: they may be erased."""
    if isinstance(request, CloseRequest):
        who = {"by": request.by, "channel": request.channel, "assurance": request.assurance}
        return {"id": request.id, "closed": now, "state": request.state, "answer": hash_json(request.answer), **who}
    rest = hash_json([request.kind, request.key, request.subject, request.detail, request.expires_at])
    texts = {"question": hash_text(request.question), "options": hash_json(request.options), "rest": rest}
    return {"id": request.id, "opened": now, **texts}


def describe_row(row: Request) -> Mark:
    """What the row of a request says, in the terms of `describe_request`; without an answer if it is open."""
    rest = hash_json([row.kind, row.key, row.subject, row.detail, row.expires_at])
    texts = {"question": hash_text(row.question), "options": hash_json(row.options), "rest": rest}
    who = {"by": row.answered_by, "channel": row.channel, "assurance": row.assurance}
    closed = {"closed": row.closed_at, "state": row.state, "answer": hash_json(row.answer), **who}
    return {"id": row.id, "opened": row.opened_at, **texts, **closed}


# The row of a request that is open, and what a redaction leaves of the texts of a request.
OPEN: Mapping[str, Any] = {"closed": None, "state": "open", "answer": hash_json({}), "by": "", "channel": "", "assurance": ""}
ERASED_QUESTION: Mapping[str, Any] = {"question": hash_text(""), "options": hash_json([])}
ERASED_ANSWER: Mapping[str, Any] = {"answer": hash_json({})}


def read_mark(event: Event) -> Mark | None:
    """The mark of an event; None if an earlier version wrote it, or if it is redacted."""
    try:
        found = None if event.raw is None else _decoder.decode(event.raw).get(MARK)
    except msgspec.DecodeError:
        # Such a body differs from its digest, which verification reports.
        return None
    return found if isinstance(found, dict) else None


def find_differences(expected: Mapping[str, Any], found: Mapping[str, Any], names: Iterable[str] = ()) -> list[str]:
    """The keys whose values differ; of all expected keys, or of those in `names`."""
    return [key for key in (names or expected) if expected.get(key) != found.get(key)]
