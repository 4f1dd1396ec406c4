"""Parameters of the tools for delegation."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from fidelio.runtime.tools.parameters import Name, ToolParameters

MAX_CYCLES = 10


class SessionDelegate(ToolParameters, frozen=True, kw_only=True):
    """The task. With a title it also becomes an outcome, whose criteria are checked."""

    message: Annotated[str, Meta(min_length=1, max_length=100_000)]
    title: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    detail: Annotated[str, Meta(max_length=10_000)] | None = None
    successCriteria: Annotated[tuple[str | dict[str, Any], ...], Meta(max_length=50)] = ()


class SessionRunChild(ToolParameters, frozen=True, kw_only=True):
    """The child to wait for, and how many of its wakes at most."""

    sessionId: Name
    maxCycles: Annotated[int, Meta(ge=1, le=MAX_CYCLES)] = 3
