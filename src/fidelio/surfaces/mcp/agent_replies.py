"""How the orchestrator words its replies: the keys that its clients read, and the same as Markdown for people and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.clock import iso
from fidelio.surfaces.mcp.tools import Done

if TYPE_CHECKING:
    from fidelio.errors import ExecutorFailure
    from fidelio.ledger.model import Event
    from fidelio.orchestrator.blueprints.model import Blueprint
    from fidelio.orchestrator.model import AgentSession, Run

NO_BLUEPRINTS, NO_SESSIONS = "No agent blueprints found", "No sessions found"
# A reply is somebody's context: one event shows this much of its body, the ledger keeps the rest.
EVENT_CHARACTERS = 1_000
PARTIAL_CHARACTERS = 25_000


def as_json(body: Mapping[str, Any]) -> Done:
    return Done(msgspec.json.format(msgspec.json.encode(body), indent=2).decode(), structured=body)


def blueprints_json(agents: Sequence[Blueprint], broken: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    listed = [{"name": one.name, "description": one.description} for one in agents]
    body: dict[str, Any] = {"total": len(listed), "agents": listed}
    return {**body, "broken": list(broken)} if broken else body


def blueprints_markdown(agents: Sequence[Blueprint], broken: Sequence[Mapping[str, str]]) -> str:
    if not agents and not broken:
        return NO_BLUEPRINTS
    parts = ["# Agent blueprints" if agents else NO_BLUEPRINTS]
    parts += [f"## {one.name}\n\n{one.description}" for one in agents]
    if broken:
        parts.append("# Broken blueprints")
        parts += [f"## {one['name']}\n\n{one['error']}" for one in broken]
    return "\n\n".join(parts)


def sessions_json(sessions: Sequence[AgentSession], cursor: str | None) -> dict[str, Any]:
    """`total` counts this reply; `next_cursor` is there when it is not all."""
    body: dict[str, Any] = {"total": len(sessions), "sessions": [session_json(one) for one in sessions]}
    return {**body, "next_cursor": cursor} if cursor else body


def session_json(session: AgentSession) -> dict[str, Any]:
    return {
        "name": session.name,
        "session_id": session.id,
        "project_dir": session.project,
        "status": session.status,
        "state": session.run.state,
        "blueprint": session.blueprint or None,
        "updated_at": iso(session.updated_at),
    }


def sessions_markdown(sessions: Sequence[AgentSession], cursor: str | None) -> str:
    if not sessions:
        return NO_SESSIONS
    parts = ["# Agent sessions", f"Total: {len(sessions)}"]
    for one in sessions:
        lines = [f"- Session id: {one.id}", f"- Project directory: {one.project}", f"- Status: {one.status} ({one.run.state})"]
        parts.append("\n".join([f"## {one.name}", "", *lines]))
    if cursor:
        parts.append(f"There are more: call list_agent_sessions with cursor {cursor}")
    return "\n\n".join(parts)


def status_json(session: AgentSession) -> dict[str, Any]:
    """The word that every client reads first, then what is behind it; only what there is something to say of."""
    body: dict[str, Any] = {
        "status": session.status,
        "session_name": session.name,
        "session_id": session.id,
        "run": session.run.number,
        **run_json(session.run),
        "question": None if session.question is None else asking(session.question),
        "queued_messages": session.queued_messages or None,
        "changes": session.changes or None,
    }
    return {key: value for key, value in body.items() if value is not None}


def run_json(run: Run) -> dict[str, Any]:
    usage = run.usage
    spent = {"turns": usage.turns, "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    return {
        "state": run.state,
        "reason": run.reason or None,
        "detail": run.detail or None,
        "last_activity": run.last_activity or None,
        "tool_calls": run.tool_calls or None,
        "usage": {**spent, "cost_usd": round(usage.cost_usd, 6)} if any(spent.values()) or usage.cost_usd else None,
        "started_at": None if run.started_at is None else iso(run.started_at),
        "ended_at": None if run.ended_at is None else iso(run.ended_at),
    }


def asking(request: str) -> str:
    return f"a person has to answer request {request}: with answer_agent_question, or `fidelio answer {request}`"


def begun_json(session: AgentSession, message: str) -> dict[str, Any]:
    return {
        "session_name": session.name,
        "session_id": session.id,
        "run": session.run.number,
        "status": session.status,
        "state": session.run.state,
        "message": message,
    }


def unsuccessful(failure: ExecutorFailure, limit: int = PARTIAL_CHARACTERS) -> Done:
    """The reason, and the end of what the agent had said until then."""
    said = f"\n\nUntil then it had said:\n\n{failure.partial[-limit:]}" if failure.partial else ""
    return Done(f"{failure}{said}", is_error=True)


def events_json(events: Sequence[Event], after: int, *, more: bool) -> dict[str, Any]:
    listed = [{"seq": one.seq, "type": one.type, "time": iso(one.time), "body": _short(one.body)} for one in events]
    return {"events": listed, "next_after": events[-1].seq if events else after, "more": more}


def _short(body: dict[str, Any]) -> dict[str, Any]:
    return {key: _cut(value) for key, value in body.items()}


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        whole = value
    elif isinstance(value, (dict, list)):
        whole = msgspec.json.encode(value).decode()
        if len(whole) <= EVENT_CHARACTERS:
            return value
    else:
        return value
    return whole if len(whole) <= EVENT_CHARACTERS else f"{whole[:EVENT_CHARACTERS]}… ({len(whole)} characters)"
