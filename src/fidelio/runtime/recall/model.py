"""Values of recall, and the protocol of its backends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, get_args

import msgspec

from fidelio.ledger.model import RankedHit, Session
from fidelio.runtime.navigation.parameters import Lineage
from fidelio.runtime.recall.query import RecallQuery
from fidelio.runtime.record import RuntimeRecord

BackendName = Literal["memory", "session_context", "session_trace", "vector"]
Source = Literal[
    "learning",
    "workspace_memory",
    "workspace_memory_notes",
    "session_checkpoint",
    "session_evaluation",
    "session_outcome",
    "session_state",
    "working_buffer",
    "shell_state",
    "session_context",
    "session_trace",
    "vector",
]
Confidence = Literal["high", "medium", "low"]
BACKENDS: tuple[BackendName, ...] = get_args(BackendName)


class RecallScope(msgspec.Struct, frozen=True, kw_only=True):
    """What a search covers. `types` narrows the events of `session_context`.

    `lineage` limits it to relatives of the session, and thereby to what belongs to sessions. `is_automatic`: nobody asked for
    it, so it costs less, and the memory file, which is in the prompt, is left out.
    """

    limit: int = 8
    include_current: bool = False
    lineage: Lineage | None = None
    backends: tuple[BackendName, ...] = BACKENDS
    types: tuple[str, ...] = ()
    is_automatic: bool = False


class VisibleSession(msgspec.Struct, frozen=True):
    """A session that the searching session may read."""

    session: Session
    record: RuntimeRecord

    @property
    def id(self) -> str:
        return self.session.id


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A text that a backend has found. `relevance` is in the unit of its `scale` and is compared with the best there.

    `origin` is the session that a text of the whole agent, such as a learning, came from; `learning` is the id of the latter.
    """

    backend: BackendName
    source: Source
    relevance: float
    text: str
    snippet: str
    time: int = 0
    session: VisibleSession | None = None
    event: str = ""
    wake: str = ""
    origin: str = ""
    learning: str = ""
    scale: str = "ledger"


class LedgerHit(msgspec.Struct, frozen=True):
    """A hit of the ledger with its session, which can be read; None for what the agent as a whole has."""

    hit: RankedHit
    session: VisibleSession | None
    # Of the event, decoded once for all backends.
    body: Mapping[str, Any] = {}


class BackendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend gets: the query, the hits of the ledger for the types it wants, and how it finds a session by its id.

    `find_session` returns None for a session that does not exist, may not be read, or is outside of the lineage.
    """

    query: RecallQuery
    own: VisibleSession
    scope: RecallScope
    hits: tuple[LedgerHit, ...]
    find_session: Callable[[str], Awaitable[VisibleSession | None]]


class RecallBackend(Protocol):
    """A backend that finds texts. Three are built in; `app` may bind more, such as vectors."""

    @property
    def name(self) -> BackendName: ...

    def list_types(self, types: tuple[str, ...]) -> tuple[str, ...]:
        """The types of events that the ledger shall search for it. `types`: those that the caller wants; empty for all."""
        ...

    async def find(self, request: BackendRequest) -> Sequence[Found]:
        """The texts that fit the query."""
        ...


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A text with its final relevance. `evidences` are the pairs of backend and source that found it."""

    found: Found
    relevance: float
    text_relevance: float
    reasons: tuple[str, ...]
    setup_matches: bool | None = None
    relation: str | None = None
    evidences: tuple[tuple[str, str], ...] = ()
    # Of all evidences.
    texts: tuple[str, ...] = ()

    @property
    def confidence(self) -> Confidence:
        if len(self.evidences) > 1 or self.relevance >= 10:
            return "high"
        return "medium" if self.relevance >= 6 else "low"


class RecallResult(msgspec.Struct, frozen=True, kw_only=True):
    """The hits as JSON, best first, the calls that show more of them, and what each backend has found."""

    hits: tuple[Mapping[str, Any], ...] = ()
    plan: tuple[Mapping[str, Any], ...] = ()
    backends: tuple[Mapping[str, Any], ...] = ()

    def describe(self) -> dict[str, Any]:
        """The result as `retrieval_search` returns it."""
        return {"backendSummary": list(self.backends), "expansionPlan": list(self.plan), "hits": list(self.hits)}
