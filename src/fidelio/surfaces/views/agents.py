"""JSON of agent sessions, their runs and open requests, and of blueprints. Translation only: no rules, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from fidelio.clock import format_iso
from fidelio.errors import Command, Text
from fidelio.inbox import PROVEN
from fidelio.ledger.model import Request
from fidelio.orchestrator.blueprints.catalogue import BlueprintListing
from fidelio.orchestrator.blueprints.model import effective_mode
from fidelio.orchestrator.record.model import AgentSession, Run
from fidelio.toolkit import Render

# Replies fill a model's context, so a value of an event body is cut to this length; the ledger has the rest.
VALUE_CHARACTERS = 1_000


def blueprints_json(listing: BlueprintListing, after: str = "", limit: int | None = None) -> dict[str, Any]:
    """A page of blueprints sorted by name, broken ones included. `total` counts the usable ones."""
    usable = {item.name: {"description": item.description, "permissions": effective_mode(item)} for item in listing.agents}
    broken = {item.name: item.error for item in listing.broken}
    names = sorted(name for name in {*usable, *broken} if name > after)
    page = names[:limit]
    body: dict[str, Any] = {
        "total": len(usable),
        "agents": [{"name": name, **usable[name]} for name in page if name in usable],
        "broken": [{"name": name, "error": broken[name]} for name in page if name in broken],
        "next_cursor": page[-1] if len(page) < len(names) else None,
    }
    return {key: value for key, value in body.items() if value or key in ("total", "agents")}


def sessions_json(
    sessions: Sequence[AgentSession], cursor: str | None, total: int, waiting: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """A page of sessions. `total` counts all pages; `next_cursor` is missing on the last page.

    `waiting` says why sessions do not continue, by their ids.
    """
    body: dict[str, Any] = {"total": total, "sessions": [session_json(item, why=waiting.get(item.id, "")) for item in sessions]}
    return {**body, "next_cursor": cursor} if cursor else body


def session_json(session: AgentSession, questions: Sequence[Request] = (), *, why: str = "") -> dict[str, Any]:
    return {
        "name": session.name,
        "session_id": session.id,
        "project_dir": session.project,
        "status": session.status,
        "state": session.run.state,
        "blueprint": session.blueprint or None,
        "updated_at": format_iso(session.updated_at),
        **({"waits_because": why} if why else {}),
        **requests_json(questions),
    }


def status_json(
    session: AgentSession, questions: Sequence[Request] = (), *, render: Render = str, why: Text = ""
) -> dict[str, Any]:
    """Status of a session, with the details of its latest run. Keys without a value are left out."""
    body: dict[str, Any] = {
        "status": session.status,
        "session_name": session.name,
        "session_id": session.id,
        "run": session.run.number,
        **run_json(session.run),
        "question": None if session.question is None else answer_hint(session.question, questions, render=render),
        "queued_messages": session.queued_messages or None,
        "waits_because": render(why) if why else None,
        "changes": session.changes or None,
        **requests_json(questions),
    }
    return {key: value for key, value in body.items() if value is not None}


def run_json(run: Run) -> dict[str, Any]:
    usage = run.usage
    totals = {"turns": usage.turns, "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    return {
        "state": run.state,
        "reason": run.reason or None,
        "detail": run.detail or None,
        "last_activity": run.last_activity or None,
        "tool_calls": run.tool_calls or None,
        "usage": {**totals, "cost_usd": round(usage.cost_usd, 6)} if any(totals.values()) or usage.cost_usd else None,
        "started_at": None if run.started_at is None else format_iso(run.started_at),
        "ended_at": None if run.ended_at is None else format_iso(run.ended_at),
    }


def answer_hint(request: str, questions: Sequence[Request] = (), *, render: Render = str) -> str:
    """How a request is answered; `questions` are the open requests of the session."""
    if any(item.id == request and item.detail.get("answered_by") == PROVEN for item in questions):
        return f"a person has to sign the answer to request {request} on the web page: {render(Command('open'))} prints a link"
    command = render(Command("answer", request))
    return f"a person has to answer request {request}: with answer_agent_question, or {command}"


def requests_json(questions: Sequence[Request]) -> dict[str, Any]:
    """The open requests, so that a client can decide without a second call."""
    return {"questions": [_request_json(item) for item in questions]} if questions else {}


def _request_json(request: Request) -> dict[str, Any]:
    return {
        "request_id": request.id,
        "kind": request.kind,
        "text": request.question,
        "options": list(request.options),
        "detail": shorten_values(request.detail),
    }


def shorten_values(body: dict[str, Any]) -> dict[str, Any]:
    return {key: _truncate(value) for key, value in body.items()}


def _truncate(value: Any) -> Any:
    if isinstance(value, str):
        text = value
    elif isinstance(value, (dict, list)):
        text = msgspec.json.encode(value).decode()
        if len(text) <= VALUE_CHARACTERS:
            return value
    else:
        return value
    return text if len(text) <= VALUE_CHARACTERS else f"{text[:VALUE_CHARACTERS]}… ({len(text)} characters)"
