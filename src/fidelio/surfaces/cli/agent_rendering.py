"""Terminal output of `fidelio agents`: sessions, events, and errors that name commands instead of tools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from fidelio.clock import format_iso
from fidelio.errors import FidelioError
from fidelio.ledger.model import Event, Request
from fidelio.orchestrator.record.model import AgentSession
from fidelio.surfaces.cli.context import CliContext, escape_line, json_text, print_json
from fidelio.surfaces.commands import substitute_program
from fidelio.surfaces.views import status_json

# Tool of the orchestrator: the command that does the same.
_COMMANDS = {
    "start_agent_session": "agents start",
    "resume_agent_session": "agents resume",
    "send_agent_message": "agents send",
    "stop_agent_session": "agents stop",
    "list_agent_sessions": "agents list",
    "get_agent_session_status": "agents status",
    "get_agent_session_result": "agents result",
    "wait_for_agent_sessions": "agents wait",
}
_TOOL_MENTION = re.compile("`(" + "|".join((*_COMMANDS, "project_dir")) + ")`")


class AgentGroup(click.Group):
    """A click group whose errors name commands and options instead of the tools and parameters of the orchestrator."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FidelioError as error:
            error.remedy = replace_tool_names(error.remedy, ctx.ensure_object(CliContext).program)
            raise


def replace_tool_names(remedy: str, program: str) -> str:
    """Replace the tools and parameters that a remedy mentions by commands and options."""

    def name_command(mention: re.Match[str]) -> str:
        return "`--project`" if mention[1] == "project_dir" else f"`{program} {_COMMANDS[mention[1]]}`"

    return _TOOL_MENTION.sub(name_command, remedy)


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
    body = status_json(session, requests)
    # Both may mention commands.
    body |= {key: substitute_program(body[key], cli.program) for key in ("detail", "question") if key in body}
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
