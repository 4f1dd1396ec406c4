"""`fidelio runtime budget` and `readers`: change the limits of a session, and who may read its log."""

from __future__ import annotations

import click
import msgspec

from fidelio.errors import UsageProblem
from fidelio.inbox import require_person
from fidelio.runtime.agents.definition import check_agent_name
from fidelio.runtime.navigation.widening import NETWORKS, Widening, list_widenings, widen_agent, widen_session
from fidelio.surfaces.cli.context import (
    CliContext,
    json_option,
    json_reply_option,
    output_layout,
    print_items,
    print_json,
    print_line,
    print_table,
    quote_name,
    wants_json_reply,
    with_cli_context,
)
from fidelio.surfaces.cli.runtime.status_lines import describe_status
from fidelio.surfaces.cli.runtime.targets import open_target, project_option, session_argument
from fidelio.surfaces.cli.sandbox import real_project


@click.command("budget", short_help="Change the limits of a session.")
@session_argument
@click.option("--tokens", type=click.IntRange(0), help="Tokens of all requests; 0 for no limit.")
@click.option("--usd", type=click.FloatRange(0), help="US dollars; 0 for no limit.")
@click.option("--wakes-per-day", type=click.IntRange(0), help="Wakes a day; 0 for no limit.")
@click.option("--wall-seconds", type=click.IntRange(0), help="Seconds of work; 0 for no limit.")
@project_option
@json_reply_option
@with_cli_context
async def budget_command(cli: CliContext, session: str, project: str | None, **limits: float | None) -> None:
    """Change the limits of SESSION, and show its status. If it has stopped at a limit, it goes on."""
    person = require_person()
    budget = {name: limit for name, limit in limits.items() if limit is not None}
    async with open_target(cli, session, project) as target:
        await target.service.set_budget(target.session, budget, by=person)
        about = await target.service.describe(target.session)
    if wants_json_reply():
        print_json(about)
        return
    for line in describe_status(about, output_layout()):
        click.echo(line)


@click.command("readers", short_help="Let sessions with a more open network read a log.")
@click.argument("session", metavar="[SESSION]", required=False)
@click.option("--agent", metavar="NAME", help="Instead of SESSION: the logs of all sessions of this agent of the project.")
@click.option("--network", type=click.Choice(NETWORKS), help="Sessions with a network up to this one may read.")
@click.option("--undo", is_flag=True, help="Only sessions with the same or a more closed network may read again.")
@project_option
@json_option
@with_cli_context
async def readers_command(
    cli: CliContext,
    session: str | None,
    agent: str | None,
    network: str | None,
    undo: bool,
    project: str | None,
    as_json: bool,
) -> None:
    """Let sessions of the same agent whose network is more open read the log of SESSION, or list what is widened.

    By default a session reads only logs of sessions whose network is at least as open as its own, so that what an offline
    session has seen does not leave the machine through one that is online.
    """
    if session is None and agent is None and network is None and not undo:
        async with cli.open(create=True) as app:
            found = await list_widenings((await app.runtime()).context, real_project(project))
        _print_widenings(found, as_json=as_json)
        return
    if (session is None) == (agent is None):
        raise UsageProblem("Which logs are meant is not clear.", remedy="Pass either SESSION or --agent NAME.")
    if (network is None) != undo:
        raise UsageProblem("What to change is not clear.", remedy="Pass either --network NETWORK or --undo.")
    person, readers = require_person(), network or ""
    if session is not None:
        async with open_target(cli, session, project) as target:
            await widen_session(target.service.context, target.session, readers, by=person)
            changed = Widening((await target.record()).agent, target.session, readers)
    else:
        changed = Widening(check_agent_name(agent or ""), "", readers)
        async with cli.open(create=True) as app:
            context = (await app.runtime()).context
            await widen_agent(context, real_project(project), changed.agent, readers, by=person)
    _print_change(changed, as_json=as_json)


def _print_change(changed: Widening, *, as_json: bool) -> None:
    what = f"The log of session {changed.session}" if changed.session else f"The logs of agent {quote_name(changed.agent)}"
    if as_json:
        print_json(msgspec.to_builtins(changed))
    elif changed.readers:
        print_line(f"{what} may be read by sessions of the agent with a network up to {quote_name(changed.readers)}.")
    else:
        print_line(f"{what} may be read only by sessions of the agent with the same or a more closed network.")


def _print_widenings(found: tuple[Widening, ...], *, as_json: bool) -> None:
    if as_json:
        print_items(msgspec.to_builtins(found))
    elif found:
        rows = [{"agent": each.agent, "session": each.session or "all", "readers": each.readers} for each in found]
        print_table(rows, ["agent", "session", "readers"])
    else:
        print_line("Nothing is widened: logs are read by sessions of the agent with the same or a more closed network.")
