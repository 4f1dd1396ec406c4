"""Errors of the ledger. `fidelio.errors` shows the whole tree."""

from __future__ import annotations

from fidelio.errors.base import FidelioError
from fidelio.errors.hints import Command, Hint


class LedgerError(FidelioError):
    """Base of refusals and failures of the ledger."""

    code = "ledger"


class SessionNotFound(LedgerError):
    """No session has this id or name."""

    code = "ledger.session-not-found"
    exit_code = 4


class SessionExists(LedgerError):
    """The session id, or the name in its namespace, is taken."""

    code = "ledger.session-exists"


class SequenceConflict(LedgerError):
    """Other events were appended since the caller read the session. Read, decide and append again."""

    code = "ledger.sequence-conflict"

    def __init__(self, session: str, expected: int, actual: int) -> None:
        super().__init__(
            f"Session {session} is at event {actual}, not at {expected}.",
            remedy="Read the session again and repeat the decision.",
        )
        self.session, self.expected, self.actual = session, expected, actual


class RequestNotFound(LedgerError):
    """No request has this id."""

    code = "ledger.request-not-found"
    exit_code = 4


class RequestExists(LedgerError):
    """The session already has this request. `request` and `state` are those of the existing request."""

    code = "ledger.request-exists"

    def __init__(self, request: str, state: str) -> None:
        super().__init__(f"This was asked before as request {request}, which is {state}.", remedy="Use that request.")
        self.request, self.state = request, state


class RequestClosed(LedgerError):
    """The request is no longer open. `state` says why, and `answer` which answer it has and from whom."""

    code = "ledger.request-closed"

    def __init__(self, request: str, state: str, answer: str = "") -> None:
        super().__init__(
            f"Request {request} is {state} already{f', {answer}' if answer else ''}.",
            remedy=Hint("See what was answered with ", Command("inbox", "--all"), "."),
        )
        self.request, self.state = request, state


class DocumentConflict(LedgerError):
    """The document has a newer version than the caller expected."""

    code = "ledger.document-conflict"

    def __init__(self, path: str, expected: int, actual: int) -> None:
        super().__init__(
            f"Document {path} is at version {actual}, not at {expected}.",
            remedy="Read it again and write on top of the newer version.",
        )
        self.path, self.expected, self.actual = path, expected, actual


class StaleLease(LedgerError):
    """The lease has expired and another worker has the job. Nothing was stored."""

    code = "ledger.stale-lease"

    def __init__(self, job: str, fence: int) -> None:
        super().__init__(
            f"Job {job} is no longer held under fencing number {fence}; nothing was written.",
            remedy="Drop the work: the worker that holds the lease now continues it.",
        )
        self.job, self.fence = job, fence


class BadRecord(LedgerError):
    """A value that cannot be stored: not JSON, too large, or with an invalid name."""

    code = "ledger.bad-record"
    exit_code = 2


class BadQuery(LedgerError):
    """A search text without anything to search for."""

    code = "ledger.bad-query"
    exit_code = 2


class LedgerBusy(LedgerError):
    """Another process locked the database for longer than the timeout. Nothing was stored."""

    code = "ledger.busy"
    exit_code = 5


class LedgerFull(LedgerError):
    """The disk is full. Nothing of this call was stored; everything acknowledged before is safe."""

    code = "ledger.full"
    exit_code = 5


# What to do about a damaged ledger.
RESTORE = Hint(
    "Keep a copy of it, and restore it from a backup. ",
    Command("verify", "--all"),
    " lists the sessions that are intact, and ",
    Command("events", "SESSION", "--json"),
    " prints what can still be read.",
)


class LedgerDamaged(LedgerError):
    """The file is damaged: truncated or overwritten."""

    code = "ledger.damaged"
    exit_code = 5


def damaged_value(what: str, error: Exception) -> LedgerDamaged:
    """The error for a stored value that cannot be decoded."""
    return LedgerDamaged(f"The ledger is damaged: the {what} cannot be decoded ({error}).", remedy=RESTORE)


def unreadable_event(session: str, seq: int, event_type: str, error: Exception) -> LedgerDamaged:
    """The error for an event whose body does not have the form of its type, although its hash may be right."""
    sentence = f"Event {seq} ({event_type}) of session {session} cannot be read: its body has another form ({error!r:.100})."
    wrong = Hint("No version of Fidelio writes such an event. ", Command("events", session, "--json"), " prints it.")
    return LedgerDamaged(sentence, remedy=wrong)


class LedgerUnavailable(LedgerError):
    """The database is unavailable."""

    code = "ledger.unavailable"
    exit_code = 5


class SchemaMismatch(LedgerError):
    """The database has a schema that this version does not know."""

    code = "ledger.schema"
    exit_code = 5


class LedgerClosed(LedgerError):
    """The ledger was closed while or before it was used."""

    code = "ledger.closed"


class RecordMismatch(LedgerError):
    """A row or a content differs from what the events say; the events are chained, it is not."""

    code = "ledger.mismatch"
    exit_code = 3

    def __init__(self, sentence: str, session: str = "") -> None:
        target = Command("verify", session) if session else Command("verify", "--all")
        super().__init__(
            f"{sentence} The ledger was changed outside of Fidelio.", remedy=Hint("See what else differs with ", target, ".")
        )


class LedgerPutBack(LedgerError):
    """A genuine token knows of events that the ledger does not have: it was replaced by an older copy."""

    code = "ledger.put-back"
    exit_code = 3

    def __init__(self, session: str, known: int, last: int) -> None:
        super().__init__(
            f"This token is of event {known} of its session, but the ledger has only {last}: it was put back to an older copy.",
            remedy="Ask a person to restore the newer ledger, or start a new session.",
        )
        self.session, self.known, self.last = session, known, last


class ChainBroken(FidelioError):
    """The record differs from what was acknowledged. `seq` is the first event that does not hold."""

    code = "chain.broken"
    exit_code = 3

    def __init__(self, session: str, seq: int, reason: str) -> None:
        super().__init__(
            f"Session {session} does not verify: event {seq} {reason}.",
            remedy="Everything before that event holds. Compare the file with a backup or an exported head.",
        )
        self.session, self.seq, self.reason = session, seq, reason
