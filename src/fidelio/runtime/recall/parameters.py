"""Parameters of the tools for recall. A wrong type, an unknown name or value is refused by name."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from fidelio.runtime.navigation.parameters import EventTypes, Lineage
from fidelio.runtime.recall.model import BackendName
from fidelio.runtime.tools.parameters import ToolParameters

QueryText = Annotated[str, Meta(min_length=1, max_length=2_000)]
HitLimit = Annotated[int, Meta(ge=1, le=20)]


class MemorySearch(ToolParameters, frozen=True, kw_only=True):
    """What to look for. `lineage` limits it to relatives of this session."""

    query: QueryText
    limit: HitLimit = 8
    lineage: Lineage | None = None


class TraceSearch(MemorySearch, frozen=True, kw_only=True):
    """What to look for, and whether this session counts too."""

    includeCurrent: bool = False


class ContextSearch(TraceSearch, frozen=True, kw_only=True):
    """What to look for, and in events of which types."""

    types: EventTypes = ()


class RetrievalSearch(TraceSearch, frozen=True, kw_only=True):
    """What to look for, and by which backends; none named means all."""

    backends: Annotated[tuple[BackendName, ...], Meta(max_length=4)] = ()
