"""`fidelio tour`: the first minute. Everything it shows is real: the files, the findings, the ledger, the proof."""

from __future__ import annotations

import sys

import click

from fidelio.surfaces.cli.context import App, pass_app, relative, run_async, terminal_width, wants_color


@click.command("tour")
@pass_app
def tour_command(app: App) -> int:
    """Look around: the bundled workflows, a drawing, a session in the ledger, and what to type next."""
    app.settings.home.ensure()
    _heading("Workflows that agents can be led through")
    _show_workflows(app)
    _heading("One of them, drawn")
    _show_drawing(app)
    _heading("A session, recorded and proven")
    session = run_async(_record_session(app))
    _heading("What to type next")
    _show_next(app.program, session)
    return 0


def _heading(text: str) -> None:
    click.echo()
    click.echo(click.style(text, bold=True) if wants_color() else text)
    click.echo("-" * len(text))


def _show_workflows(app: App) -> None:
    from fidelio.definitions.lint import lint

    library = app.library()
    for entry in library.list():
        click.echo(f"  {entry.id:<16} {entry.version:<8} {entry.title}")
    findings = lint(library)
    errors = sum(finding.severity == "error" for finding in findings)
    click.echo(f"  lint: {errors} errors, {len(findings) - errors} warnings")


def _show_drawing(app: App) -> None:
    from fidelio.definitions.drawing.building import graph_of
    from fidelio.definitions.drawing.text import draw_text, signs_for

    graph = graph_of(app.library().workflow("hello"))
    click.echo(draw_text(graph, min(terminal_width(), 100), signs=signs_for(sys.stdout.encoding)))


async def _record_session(app: App) -> str:
    """Begins `hello` exactly as an agent would, and verifies what was recorded."""
    from fidelio.clock import now_ms
    from fidelio.ledger.audit import verify_session
    from fidelio.tokens.keyring import open_keys
    from fidelio.workflows.moving import Move
    from fidelio.workflows.service import WorkflowService
    from fidelio.workflows.starting import Asked
    from fidelio.workflows.tokens import SessionTokens

    async with app.ledger() as ledger:
        tokens = SessionTokens(open_keys(app.settings.home.keys), now_ms)
        service = WorkflowService(ledger, app.library(), tokens)
        token = (await service.sessions.start(Asked("hello", "tour"))).token
        first = service.library.workflow("hello").activities[0]
        entered = await service.moves.move(token, Move(first.id))
        for event in await ledger.events(entered.session):
            click.echo(f"  {event.seq}  {event.type:<20} by {event.actor}, hash {event.hash.hex()[:16]}…")
        verdict = await verify_session(ledger, entered.session)
    click.echo(f"  The chain of {verdict.events} events holds. It is kept in {relative(app.settings.home.path)}.")
    return entered.session


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
