"""The rules of agent sessions, as pure functions: states, transitions, names, filters.

    queued ──▶ starting ──▶ running ◀──▶ waiting
      │           │            │            │
      └───────────┴────────────┴────────────┴──▶ succeeded | failed | stopped | lost

A run changes its state only along these arrows, and an end state is final. A run that has left `queued` is never started
again, whatever happened to its host: that is why no turn runs twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from types import MappingProxyType

from fidelio.orchestrator.record.model import ACTIVE_STATES, RunState

END_STATES: frozenset[RunState] = frozenset({"succeeded", "failed", "stopped", "lost"})
TRANSITIONS: Mapping[RunState, frozenset[RunState]] = MappingProxyType(
    {
        "queued": frozenset({"starting", "failed", "stopped"}),
        "starting": END_STATES | {"running", "waiting"},
        "running": END_STATES | {"running", "waiting"},
        "waiting": END_STATES | {"running", "waiting"},
        "succeeded": frozenset(),
        "failed": frozenset(),
        "stopped": frozenset(),
        "lost": frozenset(),
    }
)

# Reason codes of ended runs. Executors add others, such as `exit.N`.
STOPPED_ON_REQUEST = "stop.requested"
STOPPED_WITH_PARENT = "stop.parent"
STOPPED_WITH_HOME = "stop.home"
STOPPED_WITH_HOST = "stop.host"
LOST_WITH_PROCESS = "lost.process"
LOST_WITH_HOST = "lost.host"
BEGIN_FAILED = "begin.failed"
DIRECTORY_MISSING = "directory.missing"
WORKTREE_FAILED = "worktree.failed"
BAD_OUTPUT = "output.schema"

MAX_NAME_LENGTH = 60
# A run that crashes its host or its process every time must not be resumed for ever.
MAX_CONSECUTIVE_RESUMES = 3
MAX_QUEUED_MESSAGES = 100
# Values of the status filter: the two that every client knows, and the states of a run.
STATUSES = ("running", "finished", *(state for state in TRANSITIONS if state != "running"))
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_LENGTH}}}")
_NAMESPACE_LENGTH = 200


def is_session_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_person_actor(actor: str) -> bool:
    """Whether a message or a run comes from a person or a person's program, not from an agent or the agent host."""
    return not actor.startswith("agent:") and actor not in ("agent", "host")


def can_transition(state: RunState, following: RunState) -> bool:
    return following in TRANSITIONS[state]


def is_active(state: str) -> bool:
    return state in ACTIVE_STATES


def was_cut_off(state: str, reason: str) -> bool:
    """Whether a run ended with its process or its host, and not because somebody wanted that run to end."""
    return state == "lost" or (state == "stopped" and reason == STOPPED_WITH_HOST)


def matches_status(state: str, wanted: str | None) -> bool:
    """Whether a run in this state matches a filter: `running` (active), `finished` (ended), or a state."""
    if wanted is None:
        return True
    if wanted == "running":
        return state in ACTIVE_STATES
    return state in END_STATES if wanted == "finished" else state == wanted


def namespace_of(project: str) -> str:
    """The namespace of a directory: its path, or as much of it as a namespace holds and a digest of the whole."""
    printable = project if project.isprintable() else ascii(project)
    if project == printable and len(project) <= _NAMESPACE_LENGTH:
        return project
    return f"{printable[: _NAMESPACE_LENGTH - 20]}~{hashlib.sha256(project.encode(errors='surrogateescape')).hexdigest()[:16]}"
