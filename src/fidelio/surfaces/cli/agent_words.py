"""Rendering of agent sessions and their events for a terminal; remedies name commands instead of tools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fidelio.clock import format_iso
from fidelio.errors import FidelioError
from fidelio.surfaces.cli.context import CliContext, json_text, print_json, printable
from fidelio.surfaces.commands import as_typed

if TYPE_CHECKING:
    from fidelio.ledger.model import Event, Request
    from fidelio.orchestrator.record.model import AgentSession

# What a person types where the tools have these names.
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
_NAMED = re.compile("`(" + "|".join((*_COMMANDS, "project_dir")) + ")`")


class InCommands(click.Group):
    """Its errors name commands and options, where those of the orchestrator name tools and parameters."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FidelioError as error:
            error.remedy = in_commands(error.remedy, ctx.ensure_object(CliContext).program)
            raise


def in_commands(remedy: str, program: str) -> str:
    def typed(name: re.Match[str]) -> str:
        return "`--project`" if name[1] == "project_dir" else f"`{program} {_COMMANDS[name[1]]}`"

    return _NAMED.sub(typed, remedy)


def row(session: AgentSession) -> dict[str, str]:
    return {
        "name": session.name,
        "state": session.run.state,
        "blueprint": session.blueprint or "-",
        "runs": str(session.run.number),
        "changed": format_iso(session.updated_at)[:19].replace("T", " "),
        "project": session.project,
    }


def show(cli: CliContext, session: AgentSession, *, as_json: bool, questions: Sequence[Request] = ()) -> None:
    from fidelio.surfaces.views import status_json

    body = status_json(session, questions)
    # Both may name commands, in the words of an error or of a tool.
    body |= {key: as_typed(body[key], cli.program) for key in ("detail", "question") if key in body}
    if as_json:
        print_json(body)
        return
    click.echo(f"{session.name}  {session.run.state}" + (f" ({session.run.reason})" if session.run.reason else ""))
    for key in ("detail", "last_activity", "queued_messages", "changes", "usage"):
        if key in body:
            click.echo(f"  {key.replace('_', ' ')}: {printable(str(body[key]))}")
    for one in questions:
        click.echo(f"  waits for you: {printable(one.question)}")
        for option in one.options:
            click.echo(f"    {printable(option['id'])}: {printable(option.get('label', ''))}")
        click.echo(f"    Answer with: {cli.program} answer {one.id} {'OPTION' if one.options else '--text TEXT'}")


def print_event(event: Event, *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text({"seq": event.seq, "type": event.type, "time": format_iso(event.time), "body": event.body}))
        return
    body = {key: value for key, value in event.body.items() if key != "run"}
    said = body.get("text") or body.get("detail") or body.get("tool") or ", ".join(f"{k}={v}" for k, v in body.items())
    click.echo(f"{event.seq:>5}  {format_iso(event.time)[11:19]}  {event.type:<18} {printable(str(said))[:160]}")
