"""`fidelio tour`: the first minute. Everything it shows is real: the files, the findings, the ledger, the proof."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from fidelio.surfaces.cli.context import (
    App,
    json_option,
    pass_app,
    print_json,
    relative,
    run_async,
    terminal_width,
    wants_color,
)

if TYPE_CHECKING:
    from fidelio.definitions.library import Library
    from fidelio.ledger.chain import Verdict
    from fidelio.ledger.model import Event


@dataclass(frozen=True, slots=True)
class Recorded:
    """The session that the tour has made."""

    events: Sequence[Event]
    verdict: Verdict


@click.command("tour")
@json_option
@pass_app
def tour_command(app: App, as_json: bool) -> None:
    """Look around: the bundled workflows, a drawing, a session in the ledger, and what to type next."""
    app.settings.home.ensure()
    library = app.bundled_library()
    if as_json:
        print_json(_summary(app, library))
        return
    _heading("Workflows that agents can be led through")
    _show_workflows(library)
    _heading("One of them, drawn")
    _show_drawing(library)
    _heading("A session, recorded and proven")
    recorded = run_async(_record_session(app, library))
    _show_session(app, recorded)
    _heading("What to type next")
    _show_next(app.program, recorded.verdict.session)


def _summary(app: App, library: Library) -> dict[str, object]:
    errors, warnings = _lint(library)
    verdict = run_async(_record_session(app, library)).verdict
    return {
        "workflows": [entry.id for entry in library.list()],
        "lint": {"errors": errors, "warnings": warnings},
        "session": {"id": verdict.session, "holds": True, "events": verdict.events, "head": verdict.head.hex()},
        "home": str(app.settings.home.path),
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
    from fidelio.definitions.drawing.building import build_graph
    from fidelio.definitions.drawing.text import choose_signs, draw_text

    graph = build_graph(library.workflow("hello"))
    click.echo(draw_text(graph, min(terminal_width(), 100), signs=choose_signs(sys.stdout.encoding)))


async def _record_session(app: App, library: Library) -> Recorded:
    """Begins `hello` exactly as an agent would, and verifies what was recorded."""
    from fidelio.clock import now_ms
    from fidelio.ledger.audit import verify_session
    from fidelio.tokens.keyring import open_keys
    from fidelio.workflows.moves import Move
    from fidelio.workflows.service import WorkflowService
    from fidelio.workflows.start import Asked
    from fidelio.workflows.tokens import SessionTokens

    async with app.ledger() as ledger:
        tokens = SessionTokens(open_keys(app.settings.home.keys), now_ms)
        service = WorkflowService(ledger, library, tokens)
        token = (await service.sessions.start(Asked("hello", "tour"))).token
        first = library.workflow("hello").activities[0]
        entered = await service.moves.move(token, Move(first.id))
        return Recorded(await ledger.events(entered.session), await verify_session(ledger, entered.session))


def _show_session(app: App, recorded: Recorded) -> None:
    for event in recorded.events:
        click.echo(f"  {event.seq}  {event.type:<20} by {event.actor}, hash {event.hash.hex()[:16]}...")
    count = recorded.verdict.events
    click.echo(f"  The chain of {count} events holds. It is kept in {relative(app.settings.home.path)}.")


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
