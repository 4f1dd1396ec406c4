"""`fidelio work`: carries out agents whose starter is gone. Started by other commands, and hidden from the list."""

from __future__ import annotations

import click

from fidelio.surfaces.cli.context import App, pass_app, run_async


@click.command("work", hidden=True)
@click.option(
    "--idle-seconds", type=click.FloatRange(0), default=10.0, show_default=True, help="End after so long without work."
)
@pass_app
def work_command(app: App, idle_seconds: float) -> None:
    """Carry out agents for as long as there is something to carry out."""
    from fidelio.orchestrator.runs.host_process import work_until_idle
    from fidelio.orchestrator.service.service import open_agents

    async def work() -> None:
        async with app.ledger() as ledger:
            await work_until_idle(open_agents(app.settings, ledger).context, idle_seconds)

    run_async(work())
