"""Definitions of the tools for delegation."""

from __future__ import annotations

from fidelio.runtime.delegation import parameters as p
from fidelio.runtime.tools.model import ToolDefinition

DEFINITIONS = (
    ToolDefinition(
        name="session_delegate",
        title="Delegate a task",
        description="Give a task to a new child session. It starts by itself, with its own workspace and at most your rights.",
        parameters=p.SessionDelegate,
        group="delegation",
        effects=("session_write",),
        output=("parentSessionId", "childSession", "seededEventIds", "nextStep"),
    ),
    ToolDefinition(
        name="session_run_child",
        title="Wait for a child",
        description="Wait up to 45 s for a child session, and return its last message and state.",
        parameters=p.SessionRunChild,
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
