"""`fidelio tour`: show the bundled workflows, a drawing, a real session that is recorded and verified, and an agent at work."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import msgspec

from fidelio.app.application import Application, open_bundled
from fidelio.app.records import ChainVerdict
from fidelio.definitions.drawing.graph import build_graph
from fidelio.definitions.drawing.text import choose_signs, draw_text
from fidelio.definitions.library import Library
from fidelio.definitions.lint import lint
from fidelio.ledger.model import Event
from fidelio.surfaces.cli.context import (
    CliContext,
    escape_line,
    json_option,
    print_commands,
    print_json,
    print_line,
    relative_path,
    run_async,
    terminal_width,
    uses_color,
    with_cli_context,
)
from fidelio.surfaces.cli.tour_agent import show_agent
from fidelio.surfaces.text import pad
from fidelio.surfaces.timeline import describe_event
from fidelio.workflows.moves import Move
from fidelio.workflows.start import StartInput

_AGENT = "tour"
_REASON = "The tour has shown it, and nothing continues it."


class RecordedSession(msgspec.Struct, frozen=True):
    """The session that the tour has recorded."""

    events: Sequence[Event]
    verdict: ChainVerdict


@click.command("tour")
@json_option
@with_cli_context
def tour_command(cli: CliContext, as_json: bool) -> None:
    """A first look: the bundled workflows, a drawing, a session in the ledger, an agent at work, and the next commands.

    The agent is scripted: it needs no key and no network. It works in a sandbox, asks before it runs a command, and a check
    decides whether it has reached its outcome. Where commands cannot be isolated, and with --json, this part is left out.
    """
    cli.settings.home.ensure()
    application = open_bundled(cli.settings)
    library = application.open_library()
    if as_json:
        print_json(_summary(application, library))
        return
    _print_heading("Workflows for agents")
    _print_workflows(library)
    _print_heading("The workflow hello as a drawing")
    _print_drawing(library)
    session = run_async(_show_sessions(cli, application))
    _print_heading("Commands to try next")
    _print_next_commands(cli.program, session)


async def _show_sessions(cli: CliContext, application: Application) -> str:
    """Show a workflow session, whose id is returned, and an agent."""
    # In one event loop: Ctrl-C between two of them would print warnings of Python.
    _print_heading("A session, recorded and verified")
    recorded = await _record_session(application)
    _print_session(cli, recorded)
    _print_heading("An agent in a sandbox, asked and graded")
    await show_agent(cli, open_bundled(cli.settings))
    return recorded.verdict.session


def _summary(application: Application, library: Library) -> dict[str, object]:
    errors, warnings = _lint(library)
    verdict = run_async(_record_session(application)).verdict
    return {
        "workflows": [entry.id for entry in library.list()],
        "lint": {"errors": errors, "warnings": warnings},
        "session": {"id": verdict.session, "holds": True, "events": verdict.events, "head": verdict.head.hex()},
        "home": str(application.settings.home.path),
    }


def _print_heading(text: str) -> None:
    click.echo()
    click.echo(click.style(text, bold=True) if uses_color() else text)
    click.echo("-" * len(text))


def _lint(library: Library) -> tuple[int, int]:
    findings = lint(library)
    errors = sum(finding.severity == "error" for finding in findings)
    return errors, len(findings) - errors


def _print_workflows(library: Library) -> None:
    for entry in library.list():
        print_line(f"{entry.id:<16} {entry.title}", "  ")
    errors, warnings = _lint(library)
    click.echo(f"  lint: {errors} errors, {warnings} warnings")


def _print_drawing(library: Library) -> None:
    graph = build_graph(library.workflow("hello"))
    click.echo(draw_text(graph, min(terminal_width(), 100), signs=choose_signs(sys.stdout.encoding)))


async def _record_session(application: Application) -> RecordedSession:
    """Start `hello` with the calls that an agent makes, end it, and verify the recorded events."""
    async with application:
        service, records = await application.workflows(), await application.records()
        async with application.ending_sessions(_AGENT, "hello", reason=_REASON):
            token = (await service.sessions.start(StartInput("hello", _AGENT))).token
            first = (await application.library()).workflow("hello").activities[0]
            entered = await service.moves.move(token, Move(first.id))
        # Also where another tour runs and has to be left alone.
        await service.cancel(entered.session, by=_AGENT, reason=_REASON)
        return RecordedSession(await records.events(entered.session), await records.verify(entered.session))


def _print_session(cli: CliContext, recorded: RecordedSession) -> None:
    for event in recorded.events:
        print_line(f"{event.seq}  {pad(escape_line(describe_event(event).what), 22)}  hash {event.hash.hex()[:12]}", "  ")
    print_line(f"Each hash covers the one before it. The chain of {recorded.verdict.events} events holds.", "  ")
    print_line(f"It is kept in {escape_line(relative_path(cli.settings.home.path))}.", "  ")


def _print_next_commands(program: str, session: str) -> None:
    commands = {
        "up --demo": "an agent that asks you",
        "init": "connect your own agents",
        "new mine": "write a workflow of your own",
        f"events {session}": "what is recorded of that session",
        "verify --all": "prove that no event was changed",
        "chat --model scripted:demo": "the agent, with your answers",
        "--help": "everything else",
    }
    print_commands({f"{program} {command}": purpose for command, purpose in commands.items()})
    click.echo()
