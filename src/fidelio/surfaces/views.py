"""JSON of agent sessions, runs, requests and blueprints, shared by the surfaces.

One place, so that the command line, the tools and the page show the same keys. Translation only: no rules, no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.clock import format_iso

if TYPE_CHECKING:
    from fidelio.ledger.model import Request
    from fidelio.orchestrator.blueprints.catalogue import BlueprintListing
    from fidelio.orchestrator.record.model import AgentSession, Run
    from fidelio.toolkit import Render

# A reply is somebody's context: one value of a body shows this much, the ledger keeps the rest.
VALUE_CHARACTERS = 1_000


def blueprints_json(listing: BlueprintListing, after: str = "", limit: int | None = None) -> dict[str, Any]:
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
        **requests_json(questions),
    }


def status_json(session: AgentSession, questions: Sequence[Request] = (), *, render: Render = str) -> dict[str, Any]:
    """The word that every client reads first, then what is behind it; only what there is something to say of."""
    body: dict[str, Any] = {
        "status": session.status,
        "session_name": session.name,
        "session_id": session.id,
        "run": session.run.number,
        **run_json(session.run, render=render),
        "question": None if session.question is None else answer_hint(session.question, render=render),
        "queued_messages": session.queued_messages or None,
        "changes": session.changes or None,
        **requests_json(questions),
    }
    return {key: value for key, value in body.items() if value is not None}


def run_json(run: Run, *, render: Render = str) -> dict[str, Any]:
    usage = run.usage
    spent = {"turns": usage.turns, "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    return {
        "state": run.state,
        "reason": run.reason or None,
        "detail": render(run.detail) or None,
        "last_activity": run.last_activity or None,
        "tool_calls": run.tool_calls or None,
        "usage": {**spent, "cost_usd": round(usage.cost_usd, 6)} if any(spent.values()) or usage.cost_usd else None,
        "started_at": None if run.started_at is None else format_iso(run.started_at),
        "ended_at": None if run.ended_at is None else format_iso(run.ended_at),
    }


def answer_hint(request: str, *, render: Render = str) -> str:
    how = render(f"`fidelio answer {request}`")
    return f"a person has to answer request {request}: with answer_agent_question, or {how}"


def requests_json(questions: Sequence[Request]) -> dict[str, Any]:
    """The open requests, so that a client can decide without a second call."""
    return {"questions": [_request_json(one) for one in questions]} if questions else {}


def _request_json(request: Request) -> dict[str, Any]:
    return {
        "request_id": request.id,
        "kind": request.kind,
        "text": request.question,
        "options": list(request.options),
        "detail": shorten(request.detail),
    }


def shorten(body: dict[str, Any]) -> dict[str, Any]:
    return {key: _cut(value) for key, value in body.items()}


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        whole = value
    elif isinstance(value, (dict, list)):
        whole = msgspec.json.encode(value).decode()
        if len(whole) <= VALUE_CHARACTERS:
            return value
    else:
        return value
    return whole if len(whole) <= VALUE_CHARACTERS else f"{whole[:VALUE_CHARACTERS]}… ({len(whole)} characters)"
