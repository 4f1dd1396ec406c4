"""Parameters of the navigation tools. A wrong type, an unknown name or value is refused by name."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from fidelio.runtime.outcomes.record import Trend, VerdictStatus
from fidelio.runtime.tools.parameters import Name, SessionParameters, ToolParameters

Lineage = Literal["related", "parent", "children", "siblings"]
# `requires_action` is no status of its own: the session is idle and waits for a person or a caller.
StatusFilter = Literal["idle", "running", "rescheduling", "terminated", "requires_action"]
ListLimit = Annotated[int, Meta(ge=1, le=50)]
EventLimit = Annotated[int, Meta(ge=1, le=100)]
Around = Annotated[int, Meta(ge=0, le=50)]
Minutes = Annotated[int, Meta(ge=1, le=5_256_000)]
EventTypes = Annotated[tuple[Name, ...], Meta(max_length=40)]


class _SessionFilters(ToolParameters, frozen=True, kw_only=True):
    limit: ListLimit = 10
    activeMinutes: Minutes | None = None
    hasOutcome: bool | None = None
    promotionReady: bool | None = None
    outcomeStatus: VerdictStatus | None = None
    outcomeTrend: Trend | None = None
    status: StatusFilter | None = None


class FindSessions(_SessionFilters, frozen=True, kw_only=True):
    """Which sessions to list. `lineage` is their relation to this session."""

    includeCurrent: bool = True
    lineage: Lineage | None = None


class FindChildren(_SessionFilters, frozen=True, kw_only=True):
    """Which children to list; `sessionId` is their parent."""

    sessionId: Name | None = None


class ListTraces(SessionParameters, frozen=True, kw_only=True):
    """Whose wakes to list."""

    limit: ListLimit = 8


class ReadEvents(SessionParameters, frozen=True, kw_only=True):
    """Which part of a log to read. Anchors are ids of events of that session."""

    afterEventId: Name | None = None
    beforeEventId: Name | None = None
    aroundEventId: Name | None = None
    beforeLimit: Around = 0
    afterLimit: Around = 0
    wakeId: Name | None = None
    includeProcessed: bool = True
    types: EventTypes = ()
    limit: EventLimit = 20


class ReadTrace(SessionParameters, frozen=True, kw_only=True):
    """Which wake to read."""

    wakeId: Name
    types: EventTypes = ()
    limit: EventLimit = 100
