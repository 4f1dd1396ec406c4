"""`fidelio runtime`: define agents, send them messages, follow and answer them, and look at what they do."""

from __future__ import annotations

import click

from fidelio.surfaces.cli.context import CommandGroup
from fidelio.surfaces.cli.runtime.agents import define_command, list_agents_command
from fidelio.surfaces.cli.runtime.budget import budget_command, readers_command
from fidelio.surfaces.cli.runtime.messages import (
    confirm_command,
    deny_command,
    follow_command,
    interrupt_command,
    result_command,
    send_command,
)
from fidelio.surfaces.cli.runtime.outcomes import outcome_group
from fidelio.surfaces.cli.runtime.sessions import (
    archive_command,
    download_command,
    end_command,
    list_sessions_command,
    memory_group,
    status_command,
)
from fidelio.surfaces.cli.runtime.snapshots import fork_command, snapshots_group
from fidelio.surfaces.cli.runtime.times import schedule_group, wakes_command
from fidelio.surfaces.cli.runtime.worker import worker_command


@click.group("runtime", cls=CommandGroup)
def runtime_command() -> None:
    """Define agents, send them messages, follow and answer them.

    An agent of the runtime is durable: it works in wakes, waits for people, comes back when it said it would, and every step
    is in the ledger. SESSION is the name or the id of a session, or the name of an agent, which stands for its newest session
    in the project. `fidelio chat` is the easiest way to talk to one.
    """


for _command in (
    define_command,
    list_agents_command,
    send_command,
    follow_command,
    confirm_command,
    deny_command,
    result_command,
    interrupt_command,
    status_command,
    list_sessions_command,
    budget_command,
    readers_command,
    archive_command,
    end_command,
    fork_command,
    download_command,
    memory_group,
    outcome_group,
    wakes_command,
    schedule_group,
    snapshots_group,
    worker_command,
):
    runtime_command.add_command(_command)
