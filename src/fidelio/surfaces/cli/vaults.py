"""`fidelio vaults`: secrets of a person that sessions can be attached to. A value is read from standard input only."""

from __future__ import annotations

import sys
from typing import Any

import click

from fidelio.errors import Command, Hint, UsageProblem
from fidelio.inbox import require_person
from fidelio.runtime.vaults import MAX_VALUE, describe_vault
from fidelio.surfaces.cli.context import (
    CliContext,
    CommandGroup,
    json_option,
    json_reply_option,
    print_items,
    print_json,
    print_line,
    print_reply,
    print_sentence,
    print_table,
    quote_name,
    run_async,
    with_cli_context,
)
from fidelio.surfaces.cli.references import project_option, session_option
from fidelio.surfaces.cli.sandbox import find_session


@click.group("vaults", cls=CommandGroup)
def vaults_command() -> None:
    """Keep secrets that sessions can be attached to.

    A value is sealed with the keys of this home and never enters a sandbox, an event or a prompt: an agent sees only that
    the vault exists, as the empty directory /vaults/NAME. This protects a copied database, not a stolen home, which has the
    keys too.
    """


@vaults_command.command("add")
@click.argument("name")
@click.option("--replace", is_flag=True, help="Replace the value of a vault that exists. The former one is erased.")
@json_option
@with_cli_context
def add(cli: CliContext, name: str, replace: bool, as_json: bool) -> None:
    """Store a secret under NAME. Its value is read from standard input, so that no process list shows it.

    \b
    fidelio vaults add github < token.txt
    pass show github | fidelio vaults add github
    """
    person, value = require_person(), _read_value()
    vault = run_async(_add(cli, name, value, person, replace=replace))
    if as_json:
        print_json(vault)
    else:
        attach_it = f"{cli.program} vaults attach {name} --session NAME"
        print_line(f"Vault {quote_name(name)} is stored. `{attach_it}` shows it to a session.")


async def _add(cli: CliContext, name: str, value: str, person: str, *, replace: bool) -> dict[str, Any]:
    async with cli.open(create=True) as app:
        return describe_vault(await (await app.runtime()).vaults.add(name, value, by=person, replaces=replace))


def _read_value() -> str:
    """The value: a hidden line at a terminal, else all of standard input without its last line end."""
    if sys.stdin.isatty():
        return str(click.prompt("Value", hide_input=True, err=True))
    value = sys.stdin.read(MAX_VALUE + 2)
    if not value.strip():
        remedy = Hint("Send the value: ", Command("vaults", "add", "NAME"), " < FILE")
        raise UsageProblem("Standard input is empty.", remedy=remedy)
    return value.removesuffix("\n").removesuffix("\r")


@vaults_command.command("list")
@json_option
@with_cli_context
async def list_vaults(cli: CliContext, as_json: bool) -> None:
    """List the vaults of this home, without their values."""
    async with cli.open(create=True) as app:
        vaults = [describe_vault(vault) for vault in await (await app.runtime()).vaults.list()]
    if as_json:
        print_items(vaults)
    elif not vaults:
        print_sentence(f"No vaults. `{cli.program} vaults add NAME` stores a value that it reads from standard input.")
    else:
        rows = [{"name": each["displayName"], "id": each["id"], "changed": each["changedAt"]} for each in vaults]
        print_table(rows, ["name", "id", "changed"])


@vaults_command.command("remove")
@click.argument("name")
@json_reply_option
@with_cli_context
async def remove(cli: CliContext, name: str) -> None:
    """Delete the vault NAME, and erase its value from the ledger. Sessions that are attached to it no longer see it."""
    person = require_person()
    async with cli.open(create=True) as app:
        await (await app.runtime()).vaults.remove(name, by=person)
    print_reply(f"Vault {quote_name(name)} is removed.", vault=name, removed=True)


@vaults_command.command("attach")
@click.argument("name")
@click.option("--detach", is_flag=True, help="Do the opposite: the session no longer sees the vault.")
@session_option
@project_option
@json_reply_option
@with_cli_context
async def attach(cli: CliContext, name: str, detach: bool, session: str, project: str | None) -> None:
    """Attach the vault NAME to a session.

    The session then sees that the vault exists, and Fidelio's own clients may use its value for that session.
    """
    person = require_person()
    async with cli.open() as app:
        found, vaults = await find_session(app, session, project), (await app.runtime()).vaults
        await (vaults.detach if detach else vaults.attach)(found.id, name, by=person)
    state = "is no longer attached to" if detach else "is attached to"
    print_reply(f"Vault {quote_name(name)} {state} session {found.id}.", vault=name, session=found.id, attached=not detach)
