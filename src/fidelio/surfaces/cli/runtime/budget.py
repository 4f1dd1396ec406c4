"""`fidelio runtime budget`: change the limits of a session."""

from __future__ import annotations

import click

from fidelio.inbox import require_person
from fidelio.surfaces.cli.context import CliContext, output_layout, with_cli_context
from fidelio.surfaces.cli.runtime.status_lines import describe_status
from fidelio.surfaces.cli.runtime.targets import open_target, project_option, session_argument


@click.command("budget", short_help="Change the limits of a session.")
@session_argument
@click.option("--tokens", type=click.IntRange(0), help="Tokens of all requests; 0 for no limit.")
@click.option("--usd", type=click.FloatRange(0), help="US dollars; 0 for no limit.")
@click.option("--wakes-per-day", type=click.IntRange(0), help="Wakes a day; 0 for no limit.")
@click.option("--wall-seconds", type=click.IntRange(0), help="Seconds of work; 0 for no limit.")
@project_option
@with_cli_context
async def budget_command(cli: CliContext, session: str, project: str | None, **limits: float | None) -> None:
    """Change the limits of SESSION, and show its status. If it has stopped at a limit, it goes on."""
    person = require_person()
    budget = {name: limit for name, limit in limits.items() if limit is not None}
    async with open_target(cli, session, project) as target:
        await target.service.set_budget(target.session, budget, by=person)
        about = await target.service.describe(target.session)
    for line in describe_status(about, output_layout()):
        click.echo(line)
