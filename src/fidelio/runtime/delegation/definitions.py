"""Definitions of the tools for delegation, and their parameters."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from fidelio.runtime.tools.model import ToolDefinition
from fidelio.runtime.tools.parameters import Name, ToolParameters

MAX_CYCLES = 10


class SessionDelegate(ToolParameters, frozen=True, kw_only=True):
    """The task. With a title it also becomes an outcome, whose criteria are checked."""

    # An agent of the roster, or `self`; None: the agent itself.
    agent: Name | None = None
    message: Annotated[str, Meta(min_length=1, max_length=100_000)]
    title: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    detail: Annotated[str, Meta(max_length=10_000)] | None = None
    successCriteria: Annotated[tuple[str | dict[str, Any], ...], Meta(max_length=50)] = ()


class SessionRunChild(ToolParameters, frozen=True, kw_only=True):
    """The child to wait for, and how many of its wakes at most."""

    sessionId: Name
    maxCycles: Annotated[int, Meta(ge=1, le=MAX_CYCLES)] = 3


DEFINITIONS = (
    ToolDefinition(
        name="session_delegate",
        title="Delegate a task",
        description=(
            "Give a task to a new child session, of this agent or of one of its roster. It starts by itself, with its own "
            "workspace and at most your rights."
        ),
        parameters=SessionDelegate,
        group="delegation",
        effects=("session_write",),
        output=("parentSessionId", "childSession", "seededEventIds", "nextStep"),
    ),
    ToolDefinition(
        name="session_run_child",
        title="Wait for a child",
        description="Wait up to 45 s for a child session, and return its last message and state.",
        parameters=SessionRunChild,
        group="delegation",
        effects=("session_write", "session_read", "memory_read"),
        output=(
            "parentSessionId",
            "childSession",
            "executedCycles",
            "loopStopReason",
            "childStopReason",
            "response",
            "queuedWakeIds",
            "processedEventIds",
            "nextStep",
        ),
        interrupt="cancel",
        repeatable=True,
    ),
)
