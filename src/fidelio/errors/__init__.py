"""The tree of all errors that Fidelio raises.

Each error has a stable `code`, a sentence that says what is wrong, and a `remedy` that says what to do about it. Surfaces show
both; programs match on `code` or on the class. The sentence may improve, the code does not change. Text that names a command
is a `Hint`, so that a surface can render it with its own program.

    FidelioError
    ├── UsageProblem              the call itself is wrong: an argument, an option, a name
    ├── HomeProblem               the home directory cannot be found, created or written
    │   ├── HomeNotFound          the named directory does not exist, and a command that only reads does not create it
    │   └── ForeignHome           another user could have written the named directory
    ├── TrustProblem              the list of what is trusted cannot be read, written or believed
    ├── TokenError
    │   ├── BadToken              forged, truncated, oversized or not canonical; says nothing about which
    │   ├── ExpiredToken          genuine, but past its expiry
    │   └── KeyRingProblem        the key file is missing, unreadable, damaged or open to others
    ├── LedgerError
    │   ├── SessionNotFound       no session has this id or name
    │   ├── SessionExists         the id or the name is taken
    │   ├── SequenceConflict      another writer appended first; carries the current sequence number
    │   ├── RequestNotFound       no request has this id
    │   ├── RequestExists         the session already has this request; carries it
    │   ├── RequestClosed         already answered, dismissed or expired; carries the request
    │   ├── DocumentConflict      the document has a newer version than the one that was read
    │   ├── StaleLease            another worker has taken over the job; nothing was written
    │   ├── BadRecord             a value that the ledger does not accept: not JSON, too large, an invalid name
    │   ├── BadQuery              a search text that cannot be searched for
    │   ├── LedgerBusy            another process held the database for too long
    │   ├── LedgerFull            the disk is full; nothing was acknowledged
    │   ├── LedgerDamaged         the file is damaged: truncated or overwritten
    │   ├── LedgerUnavailable     the database cannot be opened or reached
    │   ├── SchemaMismatch        the database was written by a newer Fidelio, or is not ours
    │   ├── LedgerClosed          used after close
    │   ├── LedgerPutBack         a token knows of events that the ledger does not have
    │   └── RecordMismatch        what is stored differs from what the chained events say
    ├── ChainBroken               the events differ from what was acknowledged; names the first one that differs
    ├── AnchorProblem             an anchor cannot be read, written or time-stamped
    ├── DefinitionError
    │   ├── BadId                 an id with separators, dot segments or other unsafe characters
    │   ├── WorkflowNotFound      no root has it; suggests similar names
    │   ├── ComponentNotFound     the workflow exists, the activity, skill, resource or template does not
    │   ├── UnreadableDefinition  a file that cannot be read completely; carries the findings with file and line
    │   │   └── InaccessibleDefinition the system refuses access: permissions, descriptors, the disk; the file may be valid
    │   └── DefinitionUnavailable neither files nor ledger have the definition that a session began with; ends nothing
    ├── WorkflowRefusal           the rules of a workflow session forbid it; says what is allowed
    │   ├── PersonNeeded          only a person may answer; carries the request
    │   └── MoveRefused           the move is not one of those that are possible now; carries which are
    ├── SandboxError
    │   ├── SandboxUnavailable    none can be started, or not at the level that the call needs
    │   ├── SandboxLost           it ended before it replied; whether the action took place is unknown
    │   └── SandboxesBusy         as many as are allowed are live, and all are at work
    ├── ModelProblem              a request to a model failed; defined in `fidelio.providers.model`
    ├── RuntimeProblem
    │   ├── ToolRefused           a tool call that was not carried out, or failed; carries the code that the model gets
    │   ├── AgentDefinitionProblem an agent is unknown, or its definition cannot be used
    │   ├── EnvironmentProblem    an environment is unknown, or cannot be used
    │   ├── PersonKeyProblem      a key of a person cannot be registered, or a signature does not prove an answer
    │   ├── VaultProblem          a vault is unknown, or its value cannot be stored or opened
    │   └── MemoryProblem         a memory store does not accept a path, a content or a condition
    │       ├── MemoryNotFound    the store has no such memory or version
    │       ├── MemoryPathConflict another memory is at the path, above it or below it
    │       └── MemoryPreconditionFailed the content is not the one that the caller has seen
    └── AgentError
        ├── AgentSessionNotFound  no agent session has this name here
        ├── AmbiguousAgentSession sessions of several projects have this name; names them
        ├── AgentSessionExists    the name is taken in this project
        ├── AgentBusy             the session has a run; says how to send it a message
        ├── BlueprintNotFound     no blueprint of this name, or it is switched off
        ├── UntrustedProject      only a project that nobody has trusted has it; also a WorkflowNotFound
        ├── BrokenBlueprint       its files cannot be read completely; says which and why
        ├── BadAgentInput         the input does not fit the blueprint's schema, which the error shows
        ├── UncheckedAgentInput   the input could not be checked; says why
        ├── ExecutorUnavailable   this kind of agent does not work on this machine; says why
        ├── ExecutorFailure       the run of an agent failed; carries a reason and its partial output
        │   ├── ConversationLost  the agent does not know the conversation to continue
        │   └── LimitReached      the run was ended at a limit; names it
        └── ConductorFailure      a worker did not finish its activity; says what is missing and how to continue
"""

from __future__ import annotations

from fidelio.errors.agents import (
    AgentBusy,
    AgentError,
    AgentSessionExists,
    AgentSessionNotFound,
    AmbiguousAgentSession,
    BadAgentInput,
    BlueprintNotFound,
    BrokenBlueprint,
    ConductorFailure,
    ConversationLost,
    ExecutorFailure,
    ExecutorUnavailable,
    LimitReached,
    UncheckedAgentInput,
    UntrustedProject,
)
from fidelio.errors.base import (
    AnchorProblem,
    BadToken,
    ExpiredToken,
    FidelioError,
    ForeignHome,
    HomeNotFound,
    HomeProblem,
    KeyRingProblem,
    TokenError,
    TrustProblem,
    UsageProblem,
)
from fidelio.errors.hints import PROGRAM, Command, Hint, Text, render
from fidelio.errors.ledger import (
    BadQuery,
    BadRecord,
    ChainBroken,
    DocumentConflict,
    LedgerBusy,
    LedgerClosed,
    LedgerDamaged,
    LedgerError,
    LedgerFull,
    LedgerPutBack,
    LedgerUnavailable,
    RecordMismatch,
    RequestClosed,
    RequestExists,
    RequestNotFound,
    SchemaMismatch,
    SequenceConflict,
    SessionExists,
    SessionNotFound,
    StaleLease,
)
from fidelio.errors.runtime import (
    AgentDefinitionProblem,
    EnvironmentProblem,
    MemoryNotFound,
    MemoryPathConflict,
    MemoryPreconditionFailed,
    MemoryProblem,
    PersonKeyProblem,
    RuntimeProblem,
    SandboxError,
    SandboxesBusy,
    SandboxLost,
    SandboxUnavailable,
    ToolRefused,
    VaultProblem,
)
from fidelio.errors.workflows import (
    BadId,
    ComponentNotFound,
    DefinitionError,
    DefinitionUnavailable,
    InaccessibleDefinition,
    Located,
    MoveRefused,
    PersonNeeded,
    UnreadableDefinition,
    WorkflowNotFound,
    WorkflowRefusal,
)

__all__ = [
    "PROGRAM",
    "AgentBusy",
    "AgentDefinitionProblem",
    "AgentError",
    "AgentSessionExists",
    "AgentSessionNotFound",
    "AmbiguousAgentSession",
    "AnchorProblem",
    "BadAgentInput",
    "BadId",
    "BadQuery",
    "BadRecord",
    "BadToken",
    "BlueprintNotFound",
    "BrokenBlueprint",
    "ChainBroken",
    "Command",
    "ComponentNotFound",
    "ConductorFailure",
    "ConversationLost",
    "DefinitionError",
    "DefinitionUnavailable",
    "DocumentConflict",
    "EnvironmentProblem",
    "ExecutorFailure",
    "ExecutorUnavailable",
    "ExpiredToken",
    "FidelioError",
    "ForeignHome",
    "Hint",
    "HomeNotFound",
    "HomeProblem",
    "InaccessibleDefinition",
    "KeyRingProblem",
    "LedgerBusy",
    "LedgerClosed",
    "LedgerDamaged",
    "LedgerError",
    "LedgerFull",
    "LedgerPutBack",
    "LedgerUnavailable",
    "LimitReached",
    "Located",
    "MemoryNotFound",
    "MemoryPathConflict",
    "MemoryPreconditionFailed",
    "MemoryProblem",
    "MoveRefused",
    "PersonKeyProblem",
    "PersonNeeded",
    "RecordMismatch",
    "RequestClosed",
    "RequestExists",
    "RequestNotFound",
    "RuntimeProblem",
    "SandboxError",
    "SandboxLost",
    "SandboxUnavailable",
    "SandboxesBusy",
    "SchemaMismatch",
    "SequenceConflict",
    "SessionExists",
    "SessionNotFound",
    "StaleLease",
    "Text",
    "TokenError",
    "ToolRefused",
    "TrustProblem",
    "UncheckedAgentInput",
    "UnreadableDefinition",
    "UntrustedProject",
    "UsageProblem",
    "VaultProblem",
    "WorkflowNotFound",
    "WorkflowRefusal",
    "render",
]
