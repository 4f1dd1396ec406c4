"""How the orchestrator words its replies: the keys that its clients read, and the same as Markdown for people and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.clock import format_iso
from fidelio.surfaces.mcp.hints import typed_here
from fidelio.toolkit.tools import Done

if TYPE_CHECKING:
    from fidelio.errors import ExecutorFailure
    from fidelio.ledger.model import Event, Request
    from fidelio.orchestrator.blueprints.catalogue import Listing
    from fidelio.orchestrator.record.model import AgentSession, Result, Run

NO_BLUEPRINTS, NO_SESSIONS = "No agent blueprints found", "No sessions found"
# A reply is somebody's context: one event shows this much of its body, the ledger keeps the rest.
EVENT_CHARACTERS = 1_000
# As many characters of a result as go into one reply.
RESULT_CHARACTERS = 25_000


def as_json(body: Mapping[str, Any]) -> Done:
    return Done(msgspec.json.format(msgspec.json.encode(body), indent=2).decode(), structured=body)


def blueprints_json(listing: Listing, after: str = "", limit: int | None = None) -> dict[str, Any]:
    """A page of them by name, the broken ones in their places. `total` counts all that can be used."""
    sound = {one.name: {"description": one.description, "permissions": one.permissions.mode} for one in listing.agents}
    broken = {one.name: one.error for one in listing.broken}
    names = sorted(name for name in {*sound, *broken} if name > after)
    shown = names[:limit]
    body: dict[str, Any] = {
        "total": len(sound),
        "agents": [{"name": name, **sound[name]} for name in shown if name in sound],
        "broken": [{"name": name, "error": broken[name]} for name in shown if name in broken],
        "next_cursor": shown[-1] if len(shown) < len(names) else None,
    }
    return {key: value for key, value in body.items() if value or key in ("total", "agents")}


def blueprints_markdown(body: Mapping[str, Any]) -> str:
    agents, broken = body["agents"], body.get("broken", ())
    parts = ["# Agent blueprints" if agents else NO_BLUEPRINTS]
    parts += [f"## {one['name']}\n\n{one['description']}\n\n- Permissions: {one['permissions']}" for one in agents]
    if broken:
        parts.append("# Broken blueprints")
        parts += [f"## {one['name']}\n\n{one['error']}" for one in broken]
    return "\n\n".join([*parts, *_more("list_agent_blueprints", body)])


def sessions_json(sessions: Sequence[AgentSession], cursor: str | None, total: int) -> dict[str, Any]:
    """`total` counts all that there are to page through; `next_cursor` is there when this is not the last page."""
    body: dict[str, Any] = {"total": total, "sessions": [session_json(one) for one in sessions]}
    return {**body, "next_cursor": cursor} if cursor else body


def session_json(session: AgentSession, questions: Sequence[Request] = ()) -> dict[str, Any]:
    return {
        "name": session.name,
        "session_id": session.id,
        "project_dir": session.project,
        "status": session.status,
        "state": session.run.state,
        "blueprint": session.blueprint or None,
        "updated_at": format_iso(session.updated_at),
        **_asked(questions),
    }


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


def status_json(session: AgentSession, questions: Sequence[Request] = ()) -> dict[str, Any]:
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
        **_asked(questions),
    }
    return {key: value for key, value in body.items() if value is not None}


def run_json(run: Run) -> dict[str, Any]:
    usage = run.usage
    spent = {"turns": usage.turns, "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    return {
        "state": run.state,
        "reason": run.reason or None,
        "detail": typed_here(run.detail) or None,
        "last_activity": run.last_activity or None,
        "tool_calls": run.tool_calls or None,
        "usage": {**spent, "cost_usd": round(usage.cost_usd, 6)} if any(spent.values()) or usage.cost_usd else None,
        "started_at": None if run.started_at is None else format_iso(run.started_at),
        "ended_at": None if run.ended_at is None else format_iso(run.ended_at),
    }


def asking(request: str) -> str:
    how = typed_here(f"`fidelio answer {request}`")
    return f"a person has to answer request {request}: with answer_agent_question, or {how}"


def going_on(session: AgentSession) -> str:
    """What becomes of a session that nobody waits for."""
    if session.run.state == "queued":
        return "is queued: it runs in the background as soon as there is a place for it"
    return "runs in the background"


def _asked(questions: Sequence[Request]) -> dict[str, Any]:
    """What waits for an answer, so that whoever has to decide need not look elsewhere."""
    return {"questions": [_question_json(one) for one in questions]} if questions else {}


def _question_json(request: Request) -> dict[str, Any]:
    return {
        "request_id": request.id,
        "kind": request.kind,
        "text": request.question,
        "options": list(request.options),
        "detail": _short(request.detail),
    }


def begun_json(session: AgentSession, message: str, questions: Sequence[Request] = ()) -> dict[str, Any]:
    return {
        "session_name": session.name,
        "session_id": session.id,
        "run": session.run.number,
        "status": session.status,
        "state": session.run.state,
        "message": message,
        **_asked(questions),
    }


def result_part(result: Result, offset: int = 0, limit: int = RESULT_CHARACTERS) -> Done:
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


def unsuccessful(failure: ExecutorFailure, limit: int = RESULT_CHARACTERS) -> Done:
    """The reason, and the end of what the agent had said until then."""
    said = f"\n\nUntil then it had said:\n\n{failure.partial[-limit:]}" if failure.partial else ""
    return Done(f"{typed_here(failure)}{said}", is_error=True)


def events_json(events: Sequence[Event], after: int, *, more: bool, questions: Sequence[Request] = ()) -> dict[str, Any]:
    listed = [{"seq": one.seq, "type": one.type, "time": format_iso(one.time), "body": _short(one.body)} for one in events]
    return {"events": listed, "next_after": events[-1].seq if events else after, "more": more, **_asked(questions)}


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
