"""Agent sessions and what happens in them, as a person at a prompt reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fidelio.clock import iso
from fidelio.surfaces.cli.context import json_text, print_json, printable

if TYPE_CHECKING:
    from fidelio.ledger.model import Event
    from fidelio.orchestrator.model import AgentSession


def row(session: AgentSession) -> dict[str, str]:
    return {
        "name": session.name,
        "state": session.run.state,
        "blueprint": session.blueprint or "-",
        "runs": str(session.run.number),
        "changed": iso(session.updated_at)[:19].replace("T", " "),
        "project": session.project,
    }


def show(session: AgentSession, *, as_json: bool) -> None:
    from fidelio.surfaces.mcp.agent_replies import status_json

    body = status_json(session)
    if as_json:
        print_json(body)
        return
    click.echo(f"{session.name}  {session.run.state}" + (f" ({session.run.reason})" if session.run.reason else ""))
    for key in ("detail", "last_activity", "question", "queued_messages", "changes", "usage"):
        if key in body:
            click.echo(f"  {key.replace('_', ' ')}: {printable(str(body[key]))}")


def print_event(event: Event, *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text({"seq": event.seq, "type": event.type, "time": iso(event.time), "body": event.body}))
        return
    body = {key: value for key, value in event.body.items() if key != "run"}
    said = body.get("text") or body.get("detail") or body.get("tool") or ", ".join(f"{k}={v}" for k, v in body.items())
    click.echo(f"{event.seq:>5}  {iso(event.time)[11:19]}  {event.type:<18} {printable(str(said))[:160]}")
