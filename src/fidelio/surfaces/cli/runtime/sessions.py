"""`fidelio runtime status`, `sessions`, `archive`, `end`, `download` and `memory`: a session as a whole, and what it keeps."""

from __future__ import annotations

import asyncio
import sys
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import click
import yaml

from fidelio.errors import ToolRefused, UsageProblem
from fidelio.inbox import require_person
from fidelio.runtime.calls import Finished
from fidelio.runtime.memory.parameters import Store
from fidelio.runtime.reading import list_sessions
from fidelio.runtime.tools.definitions import RUNTIME_TOOL_NAMES
from fidelio.runtime.transfers import download_file
from fidelio.surfaces.cli.context import (
    CliContext,
    CommandGroup,
    complete_path,
    escape_line,
    json_option,
    json_reply_option,
    output_layout,
    print_items,
    print_json,
    print_line,
    print_quote,
    print_reply,
    print_table,
    quote_name,
    with_cli_context,
)
from fidelio.surfaces.cli.runtime.status_lines import describe_status, session_json, session_row
from fidelio.surfaces.cli.runtime.targets import RUNTIME_AGENT, Target, open_target, project_option, session_argument
from fidelio.surfaces.cli.sandbox import real_project


@click.command("status", short_help="Show what a session does, waits for and has used.")
@session_argument
@project_option
@json_option
@with_cli_context
async def status_command(cli: CliContext, session: str, project: str | None, as_json: bool) -> None:
    """Show what SESSION does and waits for, what it has used and cost, and when it wakes."""
    async with open_target(cli, session, project) as target:
        about = await target.service.describe(target.session)
    if as_json:
        print_json(about)
        return
    for line in describe_status(about, output_layout()):
        click.echo(line)


@click.command("sessions")
@click.option("--agent", type=RUNTIME_AGENT, help="Only sessions of this agent.")
@click.option("--all", "everything", is_flag=True, help="Also list sessions that have ended or are archived.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many to list at most.")
@project_option
@json_option
@with_cli_context
async def list_sessions_command(
    cli: CliContext, agent: str | None, everything: bool, limit: int, project: str | None, as_json: bool
) -> None:
    """List the sessions of the project, newest first."""
    found = []
    async with cli.open(create=True) as app:
        service = await app.runtime()
        async for session, record in list_sessions(service.context, real_project(project), ended=everything):
            if agent in (None, record.agent) and (everything or not record.is_archived):
                found.append((session, record))
            if len(found) == limit:
                break
    if as_json:
        print_items([session_json(session, record) for session, record in found])
    elif not found:
        print_line(f"No sessions in this project. `{cli.program} chat` begins one.")
    else:
        rows = [session_row(session, record) for session, record in found]
        print_table(rows, ["id", "agent", "status", "waits", "tokens", "about"])


@click.command("archive", short_help="Keep a session as it is.")
@session_argument
@project_option
@json_reply_option
@with_cli_context
async def archive_command(cli: CliContext, session: str, project: str | None) -> None:
    """Archive SESSION: it stays as it is, takes no messages and is not woken."""
    person = require_person()
    async with open_target(cli, session, project) as target:
        await target.service.archive_session(target.session, by=person)
    print_reply(f"Session {target.session} is archived.", session=target.session, archived=True)


@click.command("end")
@session_argument
@project_option
@json_reply_option
@with_cli_context
async def end_command(cli: CliContext, session: str, project: str | None) -> None:
    """End SESSION and its sandbox. Its record stays; `fidelio sessions --delete` erases it."""
    person = require_person()
    async with open_target(cli, session, project) as target:
        await target.service.end_session(target.session, by=person)
    print_reply(f"Session {target.session} has ended.", session=target.session, ended=True)


@click.command("download", short_help="Copy a file out of the sandbox.")
@session_argument
@click.argument("path")
@click.option(
    "--to", metavar="FILE", shell_complete=complete_path, help="Write it here (default: the name of PATH; - prints it)."
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@project_option
@json_reply_option
@with_cli_context
async def download_command(cli: CliContext, session: str, path: str, to: str | None, force: bool, project: str | None) -> None:
    """Copy the file PATH of SESSION's sandbox to your machine. A relative PATH begins in /workspace."""
    require_person()
    file = None if to == "-" else Path(to or Path(path).name)
    async with open_target(cli, session, project) as target:
        content = await download_file(target.service.context, target.session, path)
    if file is None:
        sys.stdout.buffer.write(content)
    else:
        await asyncio.to_thread(_write, file, content, force=force)
        print_reply(f"{quote_name(str(file), 200)} has {len(content)} bytes.", file=str(file), bytes=len(content))


def _write(file: Path, content: bytes, *, force: bool) -> None:
    """Write a file of the person's machine. What is there is replaced only with `force`."""
    try:
        with file.open("wb" if force else "xb") as output:
            output.write(content)
    except FileExistsError as error:
        raise UsageProblem(f"{file} exists.", remedy="Pass --force to replace it, or --to FILE.") from error
    except OSError as error:
        raise UsageProblem(f"{file} cannot be written: {error.strerror}.", remedy="Choose another place with --to.") from error


@click.group("memory", cls=CommandGroup)
def memory_group() -> None:
    """Look at what a session and its agent remember."""


@memory_group.command("list")
@session_argument
@project_option
@json_option
@with_cli_context
async def list_memory(cli: CliContext, session: str, project: str | None, as_json: bool) -> None:
    """List the memory stores of SESSION, and what its agent has learned."""
    async with open_target(cli, session, project) as target:
        stores, learned = await _call(target, "memory_list", {}), await _call(target, "learning_list", {"limit": 200})
    if as_json:
        print_json({"stores": stores.get("stores", []), "learnings": learned.get("learnings", [])})
        return
    for store in stores.get("stores", []):
        print_line(_describe_store(store))
    for learning in islice(learned.get("learnings", []), 200):
        print_line(f"Learned: {quote_name(str(learning.get('learning', {}).get('title', '')), 200)}")


def _describe_store(store: dict[str, Any]) -> str:
    about = store.get("purpose") or store.get("description") or ""
    return f"{quote_name(str(store.get('target') or store.get('name') or ''))}: {escape_line(str(about))}".rstrip(": ")


@memory_group.command("read")
@session_argument
@click.argument("store", type=click.Choice(get_args(Store)), metavar="STORE")
@project_option
@json_option
@with_cli_context
async def read_memory(cli: CliContext, session: str, store: str, project: str | None, as_json: bool) -> None:
    """Print the memory STORE of SESSION; `memory list` names the stores."""
    async with open_target(cli, session, project) as target:
        found = await _call(target, "memory_read", {"target": store})
    if as_json:
        print_json(found)
        return
    content = found.get("content")
    if content:
        text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        print_quote(text, max_lines=None)
    else:
        print_line(f"The store {quote_name(store)} is empty.")


async def _call(target: Target, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call a tool that only reads."""
    outcome = await target.service.call(target.session, tool, arguments, tools=RUNTIME_TOOL_NAMES, waits=False)
    if not isinstance(outcome, Finished) or outcome.is_error:
        error = outcome.output.get("error", {})
        raise ToolRefused(str(error.get("message", "The call failed.")), reason=str(error.get("code", "")))
    return dict(outcome.output)
