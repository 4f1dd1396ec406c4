"""The calls that show more of a hit, and the plan of all hits. Pure. Every call is valid for its own tool."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from fidelio.runtime.navigation.verdicts import Standing
from fidelio.runtime.recall.model import Candidate, Found, VisibleSession
from fidelio.runtime.shell.plans import Suggestion, suggest

MAX_HISTORY = 6
MAX_STEPS = 6
_LEARNINGS = 10
_AROUND = 2
_STALLED = ("stable", "regressing")
# Of equally supported calls the first of these.
PRIORITY = (
    *("outcome_read", "outcome_history", "outcome_evaluate", "agent_compare_setup", "session_get_snapshot"),
    *("session_get_trace", "memory_read", "shell_describe", "shell_read_last_output", "shell_history"),
    *("session_get_events", "learning_list"),
)
# While the own outcome is not reached, calls that verify come first; when it gets no better, its history does.
_URGENCY = {
    "outcome_history": 3,
    "outcome_evaluate": 2,
    "outcome_read": 1,
    "agent_compare_setup": 1,
    "session_get_snapshot": 1,
    "session_get_trace": 1,
}
# A tool, its arguments, and why it helps.
Call: TypeAlias = tuple[str, dict[str, Any], str]
_BY_SOURCE = {
    "session_checkpoint": ("session_get_snapshot", "See where this session stands."),
    "session_outcome": ("outcome_read", "Read the outcome of this session."),
    "shell_state": ("shell_describe", "See the shell of this session."),
    "shell_output": ("shell_read_last_output", "Read what the last command of this session printed."),
}
_STALLED_URGENCY = {**_URGENCY, "outcome_history": 5, "outcome_evaluate": 1}


def expand(candidate: Candidate, tools: Collection[str]) -> Suggestion | None:
    """The call that shows more of a hit; None if the caller has no tool for it."""
    found = candidate.found
    if found.session is not None and candidate.setup_matches is False:
        why = "It was found in a session with another setup: see what differs before relying on it."
        compare = suggest(tools, "agent_compare_setup", {"sessionId": found.session.id}, why)
        if compare is not None:
            return compare
    tool, args, why = _choose(found)
    return suggest(tools, tool, args, why)


def _choose(found: Found) -> Call:
    session = found.session
    if session is None:
        if found.source == "learning":
            return "learning_list", {"limit": _LEARNINGS}, "Read the learning and the newest others."
        return "memory_read", {"target": found.source}, "Read the memory of this agent."
    match found.source:
        case "session_evaluation":
            return _choose_evaluation(session)
        case "session_state" | "working_buffer":
            return "memory_read", {"target": found.source, "sessionId": session.id}, "Read the notes of this session."
        case "session_context" | "session_trace" | "vector":
            return _choose_in_log(found, session)
    has_output = found.source == "shell_state" and session.record.shell.last is not None
    tool, why = _BY_SOURCE["shell_output" if has_output else found.source]
    return tool, {"sessionId": session.id}, why


def _choose_in_log(found: Found, session: VisibleSession) -> Call:
    name = {"sessionId": session.id}
    if found.wake:
        return "session_get_trace", {**name, "wakeId": found.wake}, "Read what happened in this wake."
    if not found.event:
        return "session_get_snapshot", name, "See where this session stands."
    around = {"aroundEventId": found.event, "beforeLimit": _AROUND, "afterLimit": _AROUND, "includeProcessed": True}
    return "session_get_events", {**name, **around}, "Read what was before and after it."


def _choose_evaluation(session: VisibleSession) -> Call:
    outcome = session.record.outcomes.active
    count = len(outcome.evaluations) if outcome is not None else 0
    if count > 1:
        return "outcome_history", {"sessionId": session.id, "limit": min(count, MAX_HISTORY)}, "Compare its verdicts."
    return "outcome_evaluate", {"sessionId": session.id}, "Read the verdict about its outcome."


class _Step(msgspec.Struct):
    call: Suggestion
    support: int
    urgency: int


def plan_expansion(steps: Iterable[Suggestion | None], standing: Standing) -> tuple[Mapping[str, Any], ...]:
    """The calls that show more, most useful first: supported by most hits, and urgent for the own outcome."""
    grouped: dict[bytes, _Step] = {}
    urgency: Mapping[str, int] = {}
    if not standing.promotion_ready:
        urgency = _STALLED_URGENCY if standing.trend in _STALLED else _URGENCY
    for call in steps:
        if call is not None:
            key = msgspec.json.encode([call["tool"], call["args"]], order="sorted")
            grouped.setdefault(key, _Step(call, 0, urgency.get(call["tool"], 0))).support += 1
    ordered = sorted(grouped.values(), key=_order)
    return tuple({**step.call, "support": step.support} for step in ordered[:MAX_STEPS])


def _order(step: _Step) -> tuple[int, int]:
    tool = step.call["tool"]
    return -(step.support + step.urgency), PRIORITY.index(tool) if tool in PRIORITY else len(PRIORITY)


def summarize_backends(hits: Sequence[Candidate], backends: Iterable[str]) -> tuple[Mapping[str, Any], ...]:
    """How many hits each backend has found, and its best of them."""
    summary = []
    for backend in backends:
        found = [hit.relevance for hit in hits if any(name == backend for name, _ in hit.evidences)]
        summary.append({"backend": backend, "count": len(found), "topScore": max(found, default=None)})
    return tuple(summary)
