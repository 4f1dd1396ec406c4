"""Replies of the orchestrator's tools: JSON for clients, and the same as Markdown for people and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.clock import format_iso
from fidelio.surfaces.views import requests_json, shorten
from fidelio.toolkit import CallContext, Done

if TYPE_CHECKING:
    from fidelio.errors import ExecutorFailure
    from fidelio.ledger.model import Event, Request
    from fidelio.orchestrator.record.model import AgentSession, RunResult

NO_BLUEPRINTS, NO_SESSIONS = "No agent blueprints found", "No sessions found"
# As many characters of a result as go into one reply.
RESULT_CHARACTERS = 25_000


def as_json(body: Mapping[str, Any]) -> Done:
    return Done(msgspec.json.format(msgspec.json.encode(body), indent=2).decode(), structured=body)


def blueprints_markdown(body: Mapping[str, Any]) -> str:
    agents, broken = body["agents"], body.get("broken", ())
    parts = ["# Agent blueprints" if agents else NO_BLUEPRINTS]
    parts += [f"## {one['name']}\n\n{one['description']}\n\n- Permissions: {one['permissions']}" for one in agents]
    if broken:
        parts.append("# Broken blueprints")
        parts += [f"## {one['name']}\n\n{one['error']}" for one in broken]
    return "\n\n".join([*parts, *_more("list_agent_blueprints", body)])


def sessions_markdown(sessions: Sequence[AgentSession], body: Mapping[str, Any]) -> str:
    if not sessions:
        return NO_SESSIONS
    parts = ["# Agent sessions", f"Total: {body['total']}"]
    for one in sessions:
        lines = [f"- Session id: {one.id}", f"- Project directory: {one.project}", f"- Status: {one.status} ({one.run.state})"]
        parts.append("\n".join([f"## {one.name}", "", *lines]))
    return "\n\n".join([*parts, *_more("list_agent_sessions", body)])


def _more(tool: str, body: Mapping[str, Any]) -> list[str]:
    return [f"There are more: call {tool} with cursor {body['next_cursor']}"] if "next_cursor" in body else []


def describe_background_run(session: AgentSession) -> str:
    """What becomes of a session that nobody waits for."""
    if session.run.state == "queued":
        return "is queued: it runs in the background as soon as there is a place for it"
    return "runs in the background"


def started_json(session: AgentSession, message: str, questions: Sequence[Request] = ()) -> dict[str, Any]:
    return {
        "session_name": session.name,
        "session_id": session.id,
        "run": session.run.number,
        "status": session.status,
        "state": session.run.state,
        "message": message,
        **requests_json(questions),
    }


def result_part(result: RunResult, offset: int = 0, limit: int = RESULT_CHARACTERS) -> Done:
    """A part of the result, and where the next one begins. A client that shows only what is structured shows it, too."""
    session, part = result.session, result.text[offset : offset + limit]
    end, size = offset + len(part), len(result.text)
    body: dict[str, Any] = {
        "session_name": session.name,
        "session_id": session.id,
        "run": result.run.number,
        "status": session.status,
        "state": result.run.state,
        "result": part,
        "data": result.data,
        "next_offset": end if end < size else None,
    }
    more = f"Characters {offset} to {end} of {size}; get_agent_session_result with offset {end} gives more."
    said = {key: value for key, value in body.items() if value is not None}
    return Done(part, structured=said, remarks=(more,) if end < size else ())


def failure_reply(context: CallContext, failure: ExecutorFailure, limit: int = RESULT_CHARACTERS) -> Done:
    """The reason, and the end of what the agent had said until then."""
    said = f"\n\nUntil then it had said:\n\n{failure.partial[-limit:]}" if failure.partial else ""
    return Done(f"{context.render(failure)}{said}", is_error=True)


def events_json(events: Sequence[Event], after: int, *, more: bool, questions: Sequence[Request] = ()) -> dict[str, Any]:
    listed = [{"seq": one.seq, "type": one.type, "time": format_iso(one.time), "body": shorten(one.body)} for one in events]
    return {"events": listed, "next_after": events[-1].seq if events else after, "more": more, **requests_json(questions)}
