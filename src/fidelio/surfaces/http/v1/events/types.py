"""Types and ids of events on the wire. Pure."""

from __future__ import annotations

from typing import Any, TypeAlias

from fidelio.runtime import events as e
from fidelio.surfaces.http.v1.ids import to_wire

Wire: TypeAlias = dict[str, Any]
OWN_PREFIX = "fidelio."
DELETED = "session.deleted"
# Ends of the ids of events that are rendered from the same stored event as another.
SENT, USAGE = "_sent", "_usage"
# The types that the vendor's clients know. `workflow_run.*` are never sent.
VENDOR_TYPES = frozenset(
    f"{group}.{name}"
    for group, names in {
        "user": "message interrupt tool_confirmation custom_tool_result tool_result define_outcome",
        "system": "message",
        "agent": "message thinking tool_use tool_result mcp_tool_use mcp_tool_result custom_tool_use thread_message_sent "
        "thread_message_received thread_context_compacted",
        "session": "status_running status_idle status_rescheduled status_terminated error updated usage deleted thread_created "
        "thread_status_running thread_status_idle thread_status_rescheduled thread_status_terminated",
        "span": "model_request_start model_request_end outcome_evaluation_start outcome_evaluation_ongoing "
        "outcome_evaluation_end",
        "workflow_run": "created status_running status_idle status_ended error phase_started phase_ended",
    }.items()
    for name in names.split()
)
USER_TOOL_RESULT = "user.tool_result"
# Events that wait for a wake before they are processed. All others are processed when they are stored.
QUEUED = (e.USER_MESSAGE, e.SYSTEM_MESSAGE)
# What is shown of a child in the stream of its session.
POSTED = (
    *(e.STATUS_RUNNING, e.STATUS_IDLE, e.STATUS_RESCHEDULED, e.ENDED),
    *(e.APPROVAL_REQUESTED, e.CUSTOM_TOOL_USE, e.CHILD_CREATED),
)
# The events of a status, and how the vendor calls it.
STATUS = {
    e.STATUS_RUNNING: "running",
    e.STATUS_IDLE: "idle",
    e.STATUS_RESCHEDULED: "rescheduled",
    e.ENDED: "terminated",
}


def to_event_id(stored: str) -> str:
    """The id of an event on the wire. A call of a tool has the id that its answers name."""
    for prefix in ("evt_", "toolu_", "e_"):
        if stored.startswith(prefix):
            return f"sevt_{stored.removeprefix(prefix)}"
    return stored


def strip_suffix(id_: str) -> str:
    """The id of the stored event that an event on the wire is rendered from."""
    return id_.removesuffix(SENT).removesuffix(USAGE)


def to_call(id_: str) -> str:
    """The call that an id on the wire names."""
    return f"toolu_{id_.removeprefix('sevt_')}" if id_.startswith("sevt_") else id_


def to_thread(session: str) -> str:
    return to_wire("sthr", session)
