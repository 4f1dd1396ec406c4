"""Everything Fidelio raises on purpose, in one tree.

Each error has a stable `code`, a sentence that says what is wrong, and a `remedy` that says what to do about it. Surfaces show
both; programs match on `code` or on the class. The sentence may improve, the code does not change.

    FidelioError
    ├── UsageProblem              the call itself is wrong: an argument, an option, a name
    ├── HomeProblem               the home directory cannot be found, created or written
    ├── TokenError
    │   ├── BadToken              forged, truncated, oversized or not canonical; says nothing about which
    │   ├── ExpiredToken          genuine, but past its expiry
    │   └── KeyRingProblem        the key file is missing, unreadable, damaged or open to others
    ├── LedgerError
    │   ├── SessionNotFound       no session has this id or name
    │   ├── SessionExists         the id or the name is taken
    │   ├── SequenceConflict      somebody else appended first; carries the real sequence number
    │   ├── RequestNotFound       nothing with this id waits for anybody
    │   ├── RequestExists         the same thing was asked before in this session; carries that request
    │   ├── RequestClosed         answered, dismissed or expired already; carries the request
    │   ├── DocumentConflict      the document has moved on since it was read
    │   ├── StaleLease            the work was taken over by somebody else; nothing was written
    │   ├── BadRecord             a value the ledger does not take: not JSON, too large, a bad name
    │   ├── BadQuery              a search text that cannot be searched for
    │   ├── LedgerBusy            another process held the database for too long
    │   ├── LedgerFull            the disk is full; nothing was acknowledged
    │   ├── LedgerDamaged         the file is not what was written: truncated, overwritten, bit-rotten
    │   ├── LedgerUnavailable     the database cannot be opened or reached
    │   ├── SchemaMismatch        the database was written by a newer Fidelio, or is not ours
    │   └── LedgerClosed          used after close
    ├── ChainBroken               the record is not what was acknowledged; names the first event that differs
    ├── DefinitionError
    │   ├── BadId                 an id with separators, dot segments or other unsafe characters
    │   ├── WorkflowNotFound      no root has it; names near ones
    │   ├── PartNotFound          the workflow is there, the activity, skill, resource or template is not
    │   └── UnreadableDefinition  a file that cannot be read whole; carries the findings with file and line
    └── WorkflowRefusal           the rules of a workflow session forbid it; says what is allowed
        └── PersonNeeded          only a person may answer the question; carries it, for whoever can ask one
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol


class FidelioError(Exception):
    """Base of every error raised on purpose. `exit_code` is what the command line ends with.

    `reason` is a stable word that is more precise than the class, where whoever raises it has one.
    """

    code: ClassVar[str] = "fidelio"
    exit_code: ClassVar[int] = 1

    def __init__(self, sentence: str, *, remedy: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.remedy = remedy
        self.reason = ""

    def __str__(self) -> str:
        return f"{self.sentence} {self.remedy}".rstrip()


class UsageProblem(FidelioError):
    """The call is wrong before anything was tried."""

    code = "usage"
    exit_code = 2


class HomeProblem(FidelioError):
    """The home directory cannot be used."""

    code = "home"


class TokenError(FidelioError):
    """Base of what can be wrong with a sealed token or its keys."""

    code = "token"


class BadToken(TokenError):
    """Not a token of this key ring. Deliberately does not say which check failed."""

    code = "token.bad"


class ExpiredToken(TokenError):
    """A genuine token that is past its expiry."""

    code = "token.expired"


class KeyRingProblem(TokenError):
    """The keys cannot be read, written or trusted."""

    code = "token.keys"


class LedgerError(FidelioError):
    """Base of what the ledger refuses or suffers."""

    code = "ledger"


class SessionNotFound(LedgerError):
    """No session has this id or name."""

    code = "ledger.session-not-found"
    exit_code = 4


class SessionExists(LedgerError):
    """The session id, or the name in its namespace, is taken."""

    code = "ledger.session-exists"


class SequenceConflict(LedgerError):
    """The session has moved on since the caller read it. Read again, decide again, append again."""

    code = "ledger.sequence-conflict"

    def __init__(self, session: str, expected: int, actual: int) -> None:
        super().__init__(
            f"Session {session} is at event {actual}, not at {expected}.",
            remedy="Read the session again and repeat the decision.",
        )
        self.session, self.expected, self.actual = session, expected, actual


class RequestNotFound(LedgerError):
    """Nothing with this id waits for anybody."""

    code = "ledger.request-not-found"
    exit_code = 4


class RequestExists(LedgerError):
    """A session asks for one thing once. `request` and `state` are those of the request that is there already."""

    code = "ledger.request-exists"

    def __init__(self, request: str, state: str) -> None:
        super().__init__(f"This was asked before as request {request}, which is {state}.", remedy="Use that request.")
        self.request, self.state = request, state


class RequestClosed(LedgerError):
    """The request is no longer open. `state` says why."""

    code = "ledger.request-closed"

    def __init__(self, request: str, state: str) -> None:
        super().__init__(f"Request {request} is {state} already.", remedy="See what was answered with `fidelio inbox --all`.")
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
    """The lease ran out and the work belongs to somebody else. Nothing was written."""

    code = "ledger.stale-lease"

    def __init__(self, job: str, fence: int) -> None:
        super().__init__(
            f"Job {job} is no longer held under fencing number {fence}; nothing was written.",
            remedy="Drop the work: whoever holds the lease now carries on.",
        )
        self.job, self.fence = job, fence


class BadRecord(LedgerError):
    """A value that cannot be kept: not JSON, too large, or with a bad name."""

    code = "ledger.bad-record"
    exit_code = 2


class BadQuery(LedgerError):
    """A search text with nothing in it that could be found."""

    code = "ledger.bad-query"
    exit_code = 2


class LedgerBusy(LedgerError):
    """Another process held the database for longer than we wait. Nothing was written."""

    code = "ledger.busy"
    exit_code = 5


class LedgerFull(LedgerError):
    """The disk is full. Nothing of this call was kept; everything acknowledged before it is safe."""

    code = "ledger.full"
    exit_code = 5


class LedgerDamaged(LedgerError):
    """The file is not what was written."""

    code = "ledger.damaged"
    exit_code = 5


class LedgerUnavailable(LedgerError):
    """The database cannot be opened or reached."""

    code = "ledger.unavailable"
    exit_code = 5


class SchemaMismatch(LedgerError):
    """The database has a schema that this version does not know."""

    code = "ledger.schema"
    exit_code = 5


class LedgerClosed(LedgerError):
    """The ledger was closed while or before it was used."""

    code = "ledger.closed"


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


class DefinitionError(FidelioError):
    """Base of what can be wrong with workflow files."""

    code = "definition"


class BadId(DefinitionError):
    """An id that could name something outside its directory, or nothing at all."""

    code = "definition.bad-id"
    exit_code = 2


class WorkflowNotFound(DefinitionError):
    """No root has a workflow with this id."""

    code = "definition.workflow-not-found"
    exit_code = 4


class PartNotFound(DefinitionError):
    """The workflow exists; the activity, skill, resource or template that was asked for does not."""

    code = "definition.part-not-found"
    exit_code = 4


class Located(Protocol):
    """A problem with its place in a file; definitions call it a finding."""

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...
    @property
    def rule(self) -> str: ...
    @property
    def sentence(self) -> str: ...
    @property
    def remedy(self) -> str: ...


class UnreadableDefinition(DefinitionError):
    """A definition that cannot be read whole. Nothing of it is served. `findings` says where and why, the worst first."""

    code = "definition.unreadable"

    def __init__(self, findings: Sequence[Located]) -> None:
        first = findings[0]
        place = f"{first.file}, line {first.line}" if first.line else first.file
        more = f" ({len(findings) - 1} more findings.)" if len(findings) > 1 else ""
        super().__init__(f"{place}: {first.sentence}{more}", remedy=first.remedy)
        self.findings = tuple(findings)


class WorkflowRefusal(FidelioError):
    """The rules of the session forbid this step."""

    code = "workflow.refused"


class PersonNeeded(WorkflowRefusal):
    """The question takes an answer only from a person. Whoever can reach one asks them; `request` names the question."""

    code = "workflow.person-needed"

    def __init__(self, sentence: str, *, remedy: str = "", request: str, definition: Any) -> None:
        super().__init__(sentence, remedy=remedy)
        self.request, self.definition = request, definition
