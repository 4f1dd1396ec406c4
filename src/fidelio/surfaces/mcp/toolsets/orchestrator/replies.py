"""Replies of the orchestrator's tools: JSON for clients, and the same as Markdown for people and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fidelio.clock import format_iso
from fidelio.errors import ExecutorFailure
from fidelio.ledger.model import Event, Request
from fidelio.orchestrator.record.model import AgentSession, Run, RunResult
from fidelio.surfaces.views.agents import requests_json, shorten_values
from fidelio.toolkit import CallContext, Done

NO_BLUEPRINTS, NO_SESSIONS = "No agent blueprints found", "No sessions found"
# Characters of a result in a reply.
RESULT_CHARACTERS = 25_000


def render_json(body: Mapping[str, Any]) -> Done:
    return Done(msgspec.json.format(msgspec.json.encode(body), indent=2).decode(), structured=body)


def render_blueprints(body: Mapping[str, Any]) -> str:
    agents, broken = body["agents"], body.get("broken", ())
    sections = ["# Agent blueprints" if agents else NO_BLUEPRINTS]
    sections += [f"## {entry['name']}\n\n{entry['description']}\n\n- Permissions: {entry['permissions']}" for entry in agents]
    if broken:
        sections.append("# Broken blueprints")
        sections += [f"## {entry['name']}\n\n{entry['error']}" for entry in broken]
    return "\n\n".join([*sections, *_render_more("list_agent_blueprints", body)])


def render_sessions(sessions: Sequence[AgentSession], body: Mapping[str, Any]) -> str:
    if not sessions:
        return NO_SESSIONS
    sections = ["# Agent sessions", f"Total: {body['total']}"]
    for entry, shown in zip(sessions, body["sessions"], strict=True):
        lines = [
            f"- Session id: {entry.id}",
            f"- Project directory: {entry.project}",
            f"- Status: {entry.status} ({entry.run.state})",
            *([f"- Waits: {shown['waits_because']}"] if "waits_because" in shown else []),
        ]
        sections.append("\n".join([f"## {entry.name}", "", *lines]))
    return "\n\n".join([*sections, *_render_more("list_agent_sessions", body)])


def _render_more(tool: str, body: Mapping[str, Any]) -> list[str]:
    return [f"There are more: call {tool} with cursor {body['next_cursor']}"] if "next_cursor" in body else []


def describe_background_run(session: AgentSession) -> str:
    """Say how a session continues in the background."""
    if session.run.state == "queued":
        return "is queued: it runs in the background as soon as there is a place for it"
    return "runs in the background"


def started_json(session: AgentSession, message: str, questions: Sequence[Request] = ()) -> dict[str, Any]:
    return {**_run_json(session, session.run), "message": message, **requests_json(questions)}


def _run_json(session: AgentSession, run: Run) -> dict[str, Any]:
    names = {"session_name": session.name, "session_id": session.id}
    return {**names, "run": run.number, "status": session.status, "state": run.state}


def render_result_part(result: RunResult, offset: int = 0, limit: int = RESULT_CHARACTERS) -> Done:
    """Return a part of the result and the offset of the next, also as structured content for clients that show only that."""
    part = result.text[offset : offset + limit]
    end, size = offset + len(part), len(result.text)
    body: dict[str, Any] = {
        **_run_json(result.session, result.run),
        "result": part,
        "data": result.data,
        "next_offset": end if end < size else None,
    }
    remark = f"Characters {offset} to {end} of {size}; get_agent_session_result with offset {end} gives more."
    structured = {key: value for key, value in body.items() if value is not None}
    return Done(part, structured=structured, remarks=(remark,) if end < size else ())


def render_failure(context: CallContext, failure: ExecutorFailure, limit: int = RESULT_CHARACTERS) -> Done:
    """Return the reason of a failure, and the end of the agent's output until then."""
    partial_output = f"\n\nUntil then it had said:\n\n{failure.partial[-limit:]}" if failure.partial else ""
    return Done(f"{context.render(failure.text)}{partial_output}", is_error=True)


def events_json(events: Sequence[Event], after: int, *, more: bool, questions: Sequence[Request] = ()) -> dict[str, Any]:
    entries = [
        {"seq": entry.seq, "type": entry.type, "time": format_iso(entry.time), "body": shorten_values(entry.body)}
        for entry in events
    ]
    return {"events": entries, "next_after": events[-1].seq if events else after, "more": more, **requests_json(questions)}
