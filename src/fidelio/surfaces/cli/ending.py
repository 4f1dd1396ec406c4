"""`fidelio sessions --end`: a person ends a session that has lost its definition, so that nobody waits for it any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fidelio.surfaces.cli.context import App, print_json, printable
from fidelio.surfaces.cli.record import find_session
from fidelio.surfaces.commands import as_typed

if TYPE_CHECKING:
    from fidelio.definitions.library import Library


async def end_session(app: App, *, ending: str, directories: tuple[str, ...], with_bundled: bool, as_json: bool) -> None:
    """Whether the definition is gone is found out in the place that it came from, or in the `directories` that are given."""
    from msgspec.structs import replace

    from fidelio.inbox import this_person
    from fidelio.surfaces.mcp.house import House
    from fidelio.workflows.moving import Moving
    from fidelio.workflows.tokens import Claims

    person = this_person()
    async with House(app.settings) as house:
        desk = (await house.workflows()).desk
        session = await find_session(desk.ledger, ending)
        opened = await desk.open_claims(Claims(sid=session.id))
        library = _library(app, opened.record.found_in, directories, with_bundled=with_bundled)
        chosen = replace(desk, library=library, rules=replace(desk.rules, chosen_place=True))
        ended = await Moving(chosen).end(session.id, by=person)
    if as_json:
        print_json({"session": ended.session, "status": ended.record.status, "warnings": list(ended.warnings)})
        return
    click.echo(f"Session {ended.session} is {ended.record.status}.")
    for warning in ended.warnings:
        click.echo(f"  {printable(as_typed(warning, app.program))}")


def _library(app: App, place: str, directories: tuple[str, ...], *, with_bundled: bool) -> Library:
    from fidelio.workflows.search_path import library_at

    if directories or not place:
        return app.library(directories, with_bundled=with_bundled)
    return library_at(app.settings.home, place)
