"""`fidelio runtime wakes` and `worker`: when a session wakes, and the process that carries it out."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from fidelio.inbox import require_person
from fidelio.surfaces.cli.context import (
    CliContext,
    json_option,
    print_json,
    print_line,
    print_table,
    with_cli_context,
)
from fidelio.surfaces.cli.runtime.status_lines import describe_seconds
from fidelio.surfaces.cli.runtime.targets import open_target, project_option, session_argument


@click.command("wakes", short_help="List when a session wakes by itself.")
@session_argument
@project_option
@json_option
@with_cli_context
async def wakes_command(cli: CliContext, session: str, project: str | None, as_json: bool) -> None:
    """List when SESSION wakes by itself: what it has queued, and what was scheduled for it."""
    async with open_target(cli, session, project) as target:
        about = await target.service.describe(target.session)
    if as_json:
        print_json({key: about[key] for key in ("sessionId", "nextWakeAt", "queuedWakes", "schedules")})
        return
    rows = [*map(_wake_row, about["queuedWakes"]), *map(_schedule_row, about["schedules"])]
    if not rows:
        print_line("Nothing is queued: the session wakes when somebody sends something.")
        return
    print_table(sorted(rows, key=lambda row: row["when"]), ["when", "kind", "reason", "note"])


def _wake_row(wake: dict[str, Any]) -> dict[str, str]:
    return {"when": wake["due"], "kind": f"once, {wake['priority']}", "reason": wake["reason"], "note": wake["note"]}


def _schedule_row(schedule: dict[str, Any]) -> dict[str, str]:
    every = f"every {describe_seconds(schedule['everySeconds'])}"
    return {"when": schedule["next"], "kind": every, "reason": schedule["name"], "note": schedule["note"]}


@click.command("worker", short_help="Carry out wakes until Ctrl-C.")
@with_cli_context
async def worker_command(cli: CliContext) -> None:
    """Carry out the wakes of all sessions of this home until Ctrl-C.

    Any number of workers may run. Without one, the commands that send something start one in the background; `fidelio up` is
    one too. What a worker leaves unfinished is finished by the next, from the record.
    """
    require_person()
    async with cli.open(create=True) as app:
        await app.host_sandboxes()
        await app.host_runtime()
        click.echo("Carrying out wakes. Ctrl-C ends it.", err=True)
        await asyncio.Event().wait()
