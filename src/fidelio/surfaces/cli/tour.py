"""`fidelio tour`: shows the bundled workflows, a drawing, and a session that is really recorded and verified."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from fidelio.surfaces.cli.context import (
    CliContext,
    json_option,
    pass_cli,
    print_json,
    relative,
    run_async,
    terminal_width,
    wants_color,
)

if TYPE_CHECKING:
    from fidelio.app.application import Application
    from fidelio.app.records import ChainVerdict
    from fidelio.definitions.library import Library
    from fidelio.ledger.model import Event


@dataclass(frozen=True, slots=True)
class Recorded:
    """The session that the tour has made."""

    events: Sequence[Event]
    verdict: ChainVerdict


@click.command("tour")
@json_option
@pass_cli
def tour_command(cli: CliContext, as_json: bool) -> None:
    """Look around: the bundled workflows, a drawing, a session in the ledger, and what to type next."""
    from fidelio.app.application import open_bundled

    cli.settings.home.ensure()
    application = open_bundled(cli.settings)
    library = application.open_library()
    if as_json:
        print_json(_summary(application, library))
        return
    _heading("Workflows that agents can be led through")
    _show_workflows(library)
    _heading("One of them, drawn")
    _show_drawing(library)
    _heading("A session, recorded and proven")
    recorded = run_async(_record_session(application))
    _show_session(cli, recorded)
    _heading("What to type next")
    _show_next(cli.program, recorded.verdict.session)


def _summary(application: Application, library: Library) -> dict[str, object]:
    errors, warnings = _lint(library)
    verdict = run_async(_record_session(application)).verdict
    return {
        "workflows": [entry.id for entry in library.list()],
        "lint": {"errors": errors, "warnings": warnings},
        "session": {"id": verdict.session, "holds": True, "events": verdict.events, "head": verdict.head.hex()},
        "home": str(application.settings.home.path),
    }


def _heading(text: str) -> None:
    click.echo()
    click.echo(click.style(text, bold=True) if wants_color() else text)
    click.echo("-" * len(text))


def _lint(library: Library) -> tuple[int, int]:
    from fidelio.definitions.lint import lint

    findings = lint(library)
    errors = sum(finding.severity == "error" for finding in findings)
    return errors, len(findings) - errors


def _show_workflows(library: Library) -> None:
    for entry in library.list():
        click.echo(f"  {entry.id:<16} {entry.version:<8} {entry.title}")
    errors, warnings = _lint(library)
    click.echo(f"  lint: {errors} errors, {warnings} warnings")


def _show_drawing(library: Library) -> None:
    from fidelio.definitions.drawing.graph import build_graph
    from fidelio.definitions.drawing.text import choose_signs, draw_text

    graph = build_graph(library.workflow("hello"))
    click.echo(draw_text(graph, min(terminal_width(), 100), signs=choose_signs(sys.stdout.encoding)))


async def _record_session(application: Application) -> Recorded:
    """Begins `hello` exactly as an agent would, and verifies what was recorded."""
    from fidelio.workflows.moves import Move
    from fidelio.workflows.start import StartInput

    async with application:
        service, records = await application.workflows(), await application.records()
        token = (await service.sessions.start(StartInput("hello", "tour"))).token
        first = service.library.workflow("hello").activities[0]
        entered = await service.moves.move(token, Move(first.id))
        return Recorded(await records.events(entered.session), await records.verify(entered.session))


def _show_session(cli: CliContext, recorded: Recorded) -> None:
    for event in recorded.events:
        click.echo(f"  {event.seq}  {event.type:<20} by {event.actor}, hash {event.hash.hex()[:16]}...")
    count = recorded.verdict.events
    click.echo(f"  The chain of {count} events holds. It is kept in {relative(cli.settings.home.path)}.")


def _show_next(program: str, session: str) -> None:
    for words, what in (
        (f"events {session}", "what happened in that session"),
        ("verify --all", "prove that nothing was changed"),
        ("show hello", "the workflow in words"),
        ("draw hello -o hello.svg", "the workflow as a picture"),
        ("demo", "an agent at work, and a question for you"),
        ("init", "tell your agents about Fidelio"),
        ("--help", "everything else"),
    ):
        click.echo(f"  {program} {words:<26} {what}")
    click.echo()
