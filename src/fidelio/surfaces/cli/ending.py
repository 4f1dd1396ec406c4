"""`fidelio sessions --end`: a person ends a session that has lost its definition, so that nobody waits for it any more."""

from __future__ import annotations

import click

from fidelio.surfaces.cli.context import App, print_json, printable
from fidelio.surfaces.cli.record import find_session


async def end_session(app: App, *, ending: str, directories: tuple[str, ...], with_bundled: bool, as_json: bool) -> None:
    """Whether the definition is gone is found out where the session's server looks for it: `directories` say where that is."""
    from fidelio.inbox import this_person
    from fidelio.surfaces.mcp.house import House

    person = this_person()
    async with House(app.settings, directories, with_bundled=with_bundled) as house:
        service = await house.workflows()
        session = await find_session(service.desk.ledger, ending)
        ended = await service.moves.end(session.id, by=person)
    if as_json:
        print_json({"session": ended.session, "status": ended.record.status, "warnings": list(ended.warnings)})
        return
    click.echo(f"Session {ended.session} is {ended.record.status}.")
    for warning in ended.warnings:
        click.echo(f"  {printable(warning)}")
