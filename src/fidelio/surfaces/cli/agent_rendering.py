"""Terminal output of `fidelio agents`: sessions and events."""

from __future__ import annotations

from collections.abc import Sequence

import click

from fidelio.clock import format_iso
from fidelio.ledger.model import Event, Request
from fidelio.orchestrator.record.model import AgentSession
from fidelio.surfaces.cli.context import CliContext, escape_line, json_text, print_json
from fidelio.surfaces.views import status_json


def session_row(session: AgentSession) -> dict[str, str]:
    """The cells of a session in a table."""
    return {
        "name": session.name,
        "state": session.run.state,
        "blueprint": session.blueprint or "-",
        "runs": str(session.run.number),
        "changed": format_iso(session.updated_at)[:19].replace("T", " "),
        "project": session.project,
    }


def print_session(cli: CliContext, session: AgentSession, *, as_json: bool, requests: Sequence[Request] = ()) -> None:
    """Print the status of a session and the requests that wait for a person."""
    body = status_json(session, requests, render=cli.render)
    if as_json:
        print_json(body)
        return
    click.echo(f"{session.name}  {session.run.state}" + (f" ({session.run.reason})" if session.run.reason else ""))
    for key in ("detail", "last_activity", "queued_messages", "changes", "usage"):
        if key in body:
            click.echo(f"  {key.replace('_', ' ')}: {escape_line(str(body[key]))}")
    for request in requests:
        click.echo(f"  waits for you: {escape_line(request.question)}")
        for option in request.options:
            click.echo(f"    {escape_line(option['id'])}: {escape_line(option.get('label', ''))}")
        click.echo(f"    Answer with: {cli.program} answer {request.id} {'OPTION' if request.options else '--text TEXT'}")


def print_event(event: Event, *, as_json: bool) -> None:
    """Print an event of an agent session as a line."""
    if as_json:
        click.echo(json_text({"seq": event.seq, "type": event.type, "time": format_iso(event.time), "body": event.body}))
        return
    body = {key: value for key, value in event.body.items() if key != "run"}
    content = body.get("text") or body.get("detail") or body.get("tool") or ", ".join(f"{k}={v}" for k, v in body.items())
    click.echo(f"{event.seq:>5}  {format_iso(event.time)[11:19]}  {event.type:<18} {escape_line(str(content))[:160]}")
