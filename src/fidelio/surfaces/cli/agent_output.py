"""Output of `fidelio agents`: the status, events and results of agent sessions, with what agents wrote quoted."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from fidelio.clock import format_iso, format_local, now_ms
from fidelio.errors import ExecutorFailure, Text
from fidelio.ledger.model import Event, Request
from fidelio.orchestrator.record.model import AgentSession, Run
from fidelio.orchestrator.service.delete import DeletionResult
from fidelio.orchestrator.service.service import AgentService
from fidelio.surfaces.cli.context import (
    CliContext,
    current_directory,
    escape_line,
    escape_text,
    json_text,
    print_json,
    print_line,
    print_quote,
    print_sentence,
    quote_name,
    shorten,
    terminal_width,
)
from fidelio.surfaces.event_words import describe_agent_event, describe_usage, format_duration
from fidelio.surfaces.views.agents import status_json

_MAX_PATH = 200


def print_remains(deleted: DeletionResult) -> None:
    if deleted.erasure_pending:
        print_sentence("Another process still reads: the bytes of the deleted texts are erased once it has ended.")
    for worktree in deleted.retained_worktrees:
        print_line(f"The worktree {quote_name(worktree, _MAX_PATH)} contains changes and was kept.")
    for name in deleted.skipped:
        print_line(f"Session {quote_name(name)} was not deleted: this command is part of its work.")


async def print_result(service: AgentService, session: str, run: int | None = None, *, as_json: bool) -> None:
    """Print the result of a run. If the run failed, print the text that the agent had produced, then raise the error."""
    try:
        found = await service.result(session, run=None if run is None else str(run))
    except ExecutorFailure as failure:
        if failure.partial:
            _print_text(failure.partial)
        raise
    if as_json:
        print_json({"session": found.session.name, "run": found.run.number, "text": found.text, "data": found.data})
    else:
        _print_text(found.text)


def _print_text(text: str) -> None:
    """Print what an agent has produced: quoted on a terminal, else without a gutter, because it may go into a file."""
    if sys.stdout.isatty():
        print_quote(text, max_lines=None)
    else:
        click.echo("\n".join(map(escape_text, text.splitlines())))


def describe_progress(cli: CliContext, session: AgentSession, why: Text) -> str:
    """What a run does now. `why`: what a run that is queued waits for."""
    if session.question:
        return f"waits for you: `{cli.program} inbox`, then `{cli.program} answer {session.question} ...`"
    detail = cli.render(why) if session.run.state == "queued" else session.run.last_activity
    return f"{session.run.state}: {escape_line(detail)}" if detail else session.run.state


def session_row(session: AgentSession) -> dict[str, str]:
    """The cells of a session in a table."""
    return {
        "name": session.name,
        "state": session.run.state,
        "blueprint": session.blueprint or "-",
        "changed": format_local(session.updated_at, seconds=False),
        "project": "." if session.project == current_directory() else session.project,
    }


def print_session(
    cli: CliContext, session: AgentSession, *, as_json: bool, requests: Sequence[Request] = (), why: Text = ""
) -> None:
    """Print the status of a session, why it waits, and the requests that wait for a person."""
    body = status_json(session, requests, render=cli.render, why=why)
    if as_json:
        print_json(body)
        return
    reason = f" ({quote_name(session.run.reason)})" if session.run.reason else ""
    print_line(f"{quote_name(session.name)}  {session.run.state}{reason}")
    run = session.run
    for title, fact in {
        "run": f"{run.number}, {_describe_time(run)}",
        "blueprint": quote_name(session.blueprint) if session.blueprint else "",
        "used": describe_usage(body["usage"]) if "usage" in body else "",
        "tool calls": str(run.tool_calls or ""),
        "messages": f"{session.queued_messages} wait for the next turn" if session.queued_messages else "",
    }.items():
        if fact:
            print_line(f"{title}: {fact}", "  ")
    for key in ("detail", "last_activity", "waits_because", "changes"):
        if key in body:
            print_line(f"{key.replace('_', ' ')}:", "  ")
            print_quote(str(body[key]), "  ")
    for request in requests:
        print_line("waits for you:", "  ")
        print_quote(request.question, "  ")
        for option in request.options:
            print_line(f"Option {quote_name(option['id'])}", "    ")
            print_quote(option.get("label", ""), "      ")
        click.echo(f"    Answer with: {cli.program} answer {request.id} {'OPTION' if request.options else '--text TEXT'}")


def _describe_time(run: Run) -> str:
    """When the run began and how long it has taken."""
    began = run.started_at
    if began is None:
        return f"queued {format_local(run.queued_at)}" if run.queued_at else "not begun"
    end = run.ended_at if run.ended_at is not None else now_ms()
    return f"began {format_local(began)}, {'took' if run.ended_at is not None else 'for'} {format_duration(end - began)}"


def print_event(event: Event, *, as_json: bool) -> None:
    """Print an event of an agent session as a line."""
    if as_json:
        click.echo(json_text({"seq": event.seq, "type": event.type, "time": format_iso(event.time), "body": event.body}))
        return
    start = f"{event.seq:>5}  {format_local(event.time)}  "
    print_line(start + shorten(describe_agent_event(event), max(20, terminal_width() - len(start))))
