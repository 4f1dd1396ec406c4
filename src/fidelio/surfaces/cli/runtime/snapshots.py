"""`fidelio runtime snapshots` and `fork`: earlier states of a session."""

from __future__ import annotations

import sys

import click

from fidelio.errors import Command, UsageProblem
from fidelio.inbox import require_person
from fidelio.surfaces.cli.context import (
    CliContext,
    CommandGroup,
    escape_line,
    json_option,
    json_reply_option,
    print_items,
    print_json,
    print_line,
    print_reply,
    print_table,
    quote_name,
    run_async,
    with_cli_context,
)
from fidelio.surfaces.cli.runtime.targets import open_target, project_option, session_argument

_MARKS = {"added": "+", "removed": "-", "modified": "~"}


@click.group("snapshots", cls=CommandGroup)
def snapshots_group() -> None:
    """Look at earlier states of a session's workspace, and restore them.

    A snapshot is stored before each wake if the workspace may have changed.
    """


@snapshots_group.command("list")
@session_argument
@project_option
@json_option
@with_cli_context
async def list_snapshots(cli: CliContext, session: str, project: str | None, as_json: bool) -> None:
    """List the snapshots of SESSION, newest first."""
    async with open_target(cli, session, project) as target:
        found = await target.service.list_snapshots(target.session)
    if as_json:
        print_items(found)
    elif not found:
        print_line("The session has no snapshot: nothing has changed its workspace before a wake.")
    else:
        rows = [
            {
                "id": entry["snapshotId"],
                "stored": entry["takenAt"][:19].replace("T", " "),
                "files": str(entry["files"]),
                "bytes": f"{entry['bytes']:,}",
                "wake": entry["wakeId"] or "-",
            }
            for entry in found
        ]
        print_table(rows, ["id", "stored", "files", "bytes", "wake"])


@snapshots_group.command("diff")
@session_argument
@click.argument("snapshot")
@click.argument("other", required=False)
@project_option
@json_option
@with_cli_context
async def diff_snapshot(
    cli: CliContext, session: str, snapshot: str, other: str | None, project: str | None, as_json: bool
) -> None:
    """List the files that differ between SNAPSHOT and OTHER, or the present workspace."""
    async with open_target(cli, session, project) as target:
        found = await target.service.diff_snapshot(target.session, snapshot, other)
    if as_json:
        print_json(found)
        return
    for change in found["changes"]:
        click.echo(f"{_MARKS.get(change['kind'], '~')} {escape_line(change['path'])}")
    if found["truncated"]:
        print_line("There are more changes than are listed here.")
    if not found["changes"]:
        print_line("Nothing differs.")


@snapshots_group.command("restore")
@session_argument
@click.argument("snapshot")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation, for scripts.")
@click.option("--discard", is_flag=True, help="Also if the present state is too large to become a snapshot.")
@project_option
@json_reply_option
@with_cli_context
def restore_snapshot(cli: CliContext, session: str, snapshot: str, yes: bool, discard: bool, project: str | None) -> None:
    """Make the workspace of SESSION what it was at SNAPSHOT. The session must be idle; its sandbox is stopped.

    The present state becomes a snapshot first, so that it can be restored too.
    """
    person = require_person()
    if not yes:
        if not sys.stdin.isatty():
            raise UsageProblem("Nothing was changed: there is no terminal to ask at.", remedy="Pass --yes.")
        click.confirm(f"Replace the workspace by the snapshot {snapshot}?", abort=True, err=True)

    async def work() -> None:
        async with open_target(cli, session, project) as target:
            await target.service.restore_snapshot(target.session, snapshot, by=person, discard=discard)
        print_reply(
            f"The workspace of session {target.session} is that of {quote_name(snapshot)}.",
            session=target.session,
            snapshot=snapshot,
        )

    run_async(work())


@click.command("fork", short_help="Begin a session with the conversation of another.")
@session_argument
@click.option("--wake", metavar="ID", help="Up to the end of this wake (default: the last; `fidelio events` shows them).")
@click.option("--model", default="", help="Another model.")
@click.option("--version", type=click.IntRange(1), help="Another version of the agent.")
@project_option
@json_option
@with_cli_context
async def fork_command(
    cli: CliContext, session: str, wake: str | None, model: str, version: int | None, project: str | None, as_json: bool
) -> None:
    """Begin a session with the conversation and the workspace of SESSION up to a wake. SESSION stays as it is."""
    person = require_person()
    async with open_target(cli, session, project) as target:
        forked = await target.service.fork(target.session, wake=wake, model=model, version=version, by=person)
    if as_json:
        print_json({"sessionId": forked, "source": target.session})
    else:
        print_line(f"Session {forked} continues {target.session}. {cli.render(Command('chat', '--session', forked))}")
