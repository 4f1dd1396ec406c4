"""Validation of every value in a `Change`, before it is queued for the database.

The databases would refuse some of these values too, but with different errors and in the middle of a transaction that may be
shared with other callers. Checked here, the error is the same for both databases and names the value and its limit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fidelio.errors import BadRecord, Command, Hint, RequestNotFound, SessionNotFound
from fidelio.ledger.model import MARK, Change, CloseRequest, NewEvent, NewJob, NewSession, OpenRequest, PutDocument

ID_LENGTH = 200
TEXT_LENGTH = 100_000
MAX_BLOB = 64 << 20
MAX_ITEMS = 10_000
TIMESTAMPS = range(1 << 53)

_ID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:~/@+-]{{0,{ID_LENGTH - 1}}}")
_SESSION = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._:~-]{{0,{ID_LENGTH - 1}}}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LABEL = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]*")
_TEXT = re.compile(r"[^\x00\ud800-\udfff]*")
_KINDS = ("workflow", "agent", "runtime")
_CLOSED = ("answered", "dismissed", "expired")


def check_change(change: Change) -> None:
    """Raise `BadRecord` for the first value that cannot be stored."""
    check_session_id(change.session)
    if change.create:
        _check_new_session(change.create)
    if change.settle and not change.lease:
        raise BadRecord("A job can be settled only by the holder of its lease.", remedy="Pass the lease with the settlement.")
    if change.expect is not None and change.expect < 0:
        raise BadRecord(
            f"The expected sequence number is {change.expect}, which is negative.", remedy="Use 0 for a session without events."
        )
    _check_timestamp(change.time, "time of a change")
    check_label(change.status, "status")
    check_text(change.reason, "reason")
    _check_items(change)


def check_session_id(session: str) -> None:
    if not _SESSION.fullmatch(session):
        raise BadRecord(f"{session!r:.80} is not a session id.", remedy=f"Use up to {ID_LENGTH} of A-Z a-z 0-9 . _ : ~ -")


def check_label(value: str | None, what: str) -> None:
    """Check a short text without line breaks, such as a name, an actor or a channel."""
    if value is not None and (len(value) > ID_LENGTH or not _LABEL.fullmatch(value)):
        raise BadRecord(
            f"The {what} {value!r:.80} cannot be stored.",
            remedy=f"Use up to {ID_LENGTH} characters without control characters.",
        )


def check_text(value: str | None, what: str) -> None:
    if value is not None and (len(value) > TEXT_LENGTH or not _TEXT.fullmatch(value)):
        raise BadRecord(
            f"The {what} ({len(value)} characters) cannot be stored.",
            remedy=f"Use up to {TEXT_LENGTH} characters without NUL and without unpaired surrogates.",
        )


def check_redaction(seqs: Sequence[int], actor: str, reason: str) -> None:
    check_label(actor, "actor")
    check_text(reason, "reason")
    if not seqs or len(seqs) > MAX_ITEMS or any(seq < 1 for seq in seqs):
        raise BadRecord(
            f"The sequence numbers to redact are not valid: {list(seqs)!r:.80}.",
            remedy=f"Pass 1 to {MAX_ITEMS} sequence numbers, each at least 1.",
        )


def _check_items(change: Change) -> None:
    others = len(change.requests) + len(change.documents) + len(change.blobs) + len(change.jobs)
    if len(change.events) + others > MAX_ITEMS:
        raise BadRecord(f"A change has more than {MAX_ITEMS} items.", remedy="Split it into several commits.")
    for event in change.events:
        _check_event(event)
    for request in change.requests:
        _check_request(request)
    for document in change.documents:
        _check_document(document)
    for job in change.jobs:
        _check_job(job)
    for blob in change.blobs:
        check_blob(blob)


def check_blob(content: bytes) -> None:
    if len(content) > MAX_BLOB:
        raise BadRecord(f"A blob has {len(content)} bytes; the limit is {MAX_BLOB}.", remedy="Split it into several blobs.")


def _check_new_session(create: NewSession) -> None:
    if create.kind not in _KINDS:
        raise BadRecord(f"{create.kind!r} is not a kind of session.", remedy=f"Use one of {', '.join(_KINDS)}.")
    check_label(create.namespace, "namespace")
    check_label(create.name, "name")
    if create.name == "":
        raise BadRecord("The name of a session is empty.", remedy="Pass no name for a session without a name.")
    if create.parent is not None:
        check_session_id(create.parent)


def _check_event(event: NewEvent) -> None:
    _check_id(event.type, "event type")
    check_label(event.actor, "actor")
    if event.id is not None:
        _check_id(event.id, "event id")
    _check_timestamp(event.time, "time of an event")
    if MARK in event.body:
        raise BadRecord(f"The body of {event.type} has the key {MARK!r}, which belongs to the ledger.", remedy="Rename it.")
    for digest in event.blobs:
        if not _DIGEST.fullmatch(digest):
            raise BadRecord(f"{digest!r:.80} is not the digest of a blob.", remedy="Use its SHA-256 in lower-case hex.")


def _check_request(request: OpenRequest | CloseRequest) -> None:
    _check_id(request.id, "request id")
    if isinstance(request, CloseRequest):
        if request.state not in _CLOSED:
            raise BadRecord(f"A request cannot be closed as {request.state!r}.", remedy=f"Use one of {', '.join(_CLOSED)}.")
        labels = {"answering person": request.by, "channel": request.channel, "assurance": request.assurance}
    else:
        _check_id(request.kind, "kind of request")
        check_text(request.question, "question")
        check_text(request.subject, "subject")
        _check_timestamp(request.expires_at, "expiry of a request")
        labels = {"key of the request": request.key}
    for what, value in labels.items():
        check_label(value, what)


def _check_document(document: PutDocument) -> None:
    check_label(document.space, "document space")
    check_label(document.author, "author")
    check_path(document.path)
    if document.text is not None:
        check_blob(_utf8(document.text, document.path))


def check_path(path: str) -> None:
    segments = path.split("/")
    if len(path) > 1000 or not _LABEL.fullmatch(path) or any(segment in ("", ".", "..") for segment in segments):
        raise BadRecord(
            f"{path!r:.80} is not a document path.", remedy="Use names joined by single slashes, without dot segments."
        )


def _check_job(job: NewJob) -> None:
    _check_id(job.kind, "kind of job")
    check_session_id(job.session)
    check_label(job.key, "key of the job")
    _check_timestamp(job.due, "due time of a job")
    if job.id is not None:
        _check_id(job.id, "job id")


def _check_id(value: str, what: str) -> None:
    if not _ID.fullmatch(value):
        raise BadRecord(
            f"{value!r:.80} is not a usable {what}.", remedy=f"Use up to {ID_LENGTH} of A-Z a-z 0-9 . _ : ~ / @ + -"
        )


def _check_timestamp(value: int | None, what: str) -> None:
    if value is not None and value not in TIMESTAMPS:
        raise BadRecord(f"The {what} is {value!r:.40}.", remedy="Use integer milliseconds since 1970.")


def _utf8(text: str, path: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadRecord(
            f"The text of {path} has an unpaired surrogate at character {error.start}.",
            remedy="Pass text that UTF-8 can encode.",
        ) from error


def session_not_found(session: str) -> SessionNotFound:
    return SessionNotFound(f"There is no session {session!r:.80}.", remedy=_LIST_SESSIONS)


def name_not_found(name: str) -> SessionNotFound:
    return SessionNotFound(f"No session is called {name!r:.80}.", remedy=_LIST_SESSIONS)


def request_not_found(request: str) -> RequestNotFound:
    remedy = Hint("List them with ", Command("inbox"), ".")
    return RequestNotFound(f"There is no request {request!r:.80}.", remedy=remedy)


_LIST_SESSIONS = Hint("List them with ", Command("sessions"), ".")
