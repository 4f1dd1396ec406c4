"""`fidelio runtime wakes` and `schedule`: when a session wakes."""

from __future__ import annotations

from typing import Any

import click

from fidelio.inbox import require_person
from fidelio.surfaces.cli.context import (
    CliContext,
    CommandGroup,
    json_option,
    json_reply_option,
    parse_duration,
    print_items,
    print_json,
    print_line,
    print_reply,
    print_table,
    quote_name,
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


@click.group("schedule", cls=CommandGroup)
def schedule_group() -> None:
    """Wake a session again and again."""


@schedule_group.command("add")
@session_argument
@click.argument("name")
@click.option("--every", required=True, help="How often: a number and s, m, h or d, at least 60s.")
@click.option("--note", default="", help="What the agent is told when it wakes.")
@project_option
@json_reply_option
@with_cli_context
async def add_schedule(cli: CliContext, session: str, name: str, every: str, note: str, project: str | None) -> None:
    """Wake SESSION regularly, under NAME. The same name replaces a schedule.

    \b
    fidelio runtime schedule add reviewer daily --every 1d --note "Review."
    """
    person, seconds = require_person(), parse_duration(every, "--every")
    async with open_target(cli, session, project) as target:
        await target.service.set_schedule(target.session, name, seconds, note, by=person)
        await target.app.start_runtime_worker()
    sentence = f"Session {target.session} wakes every {describe_seconds(seconds)}: {quote_name(name)}."
    print_reply(sentence, session=target.session, schedule=name, everySeconds=seconds)


@schedule_group.command("remove")
@session_argument
@click.argument("name")
@project_option
@json_reply_option
@with_cli_context
async def remove_schedule(cli: CliContext, session: str, name: str, project: str | None) -> None:
    """End the schedule NAME of SESSION."""
    person = require_person()
    async with open_target(cli, session, project) as target:
        await target.service.cancel_schedule(target.session, name, by=person)
    print_reply(
        f"The schedule {quote_name(name)} of session {target.session} has ended.",
        session=target.session,
        schedule=name,
        removed=True,
    )


@schedule_group.command("list")
@session_argument
@project_option
@json_option
@with_cli_context
async def list_schedules(cli: CliContext, session: str, project: str | None, as_json: bool) -> None:
    """List the schedules of SESSION."""
    async with open_target(cli, session, project) as target:
        schedules = (await target.service.describe(target.session))["schedules"]
    if as_json:
        print_items(schedules)
    elif not schedules:
        print_line("The session has no schedule.")
    else:
        rows = [{**_schedule_row(schedule), "name": schedule["name"]} for schedule in schedules]
        print_table(rows, ["name", "kind", "when", "note"])
