"""`fidelio passkeys`: the keys with which people prove that an answer is theirs."""

from __future__ import annotations

import click

from fidelio.app.passkeys import PersonKey
from fidelio.app.person_keys import PersonKeys
from fidelio.clock import format_iso
from fidelio.inbox import require_person
from fidelio.surfaces.cli.context import (
    CliContext,
    CommandGroup,
    json_option,
    print_json,
    print_line,
    print_sentence,
    print_table,
    quote_name,
    with_cli_context,
)
from fidelio.surfaces.views.records import key_json


@click.group("passkeys", cls=CommandGroup)
def passkeys_command() -> None:
    """List, confirm and remove the keys that people answer with.

    A checkpoint with `answered_by: proven` takes only an answer that is signed with a registered key. A key is made on the web
    page, and confirmed here with the code that the page shows.
    """


@passkeys_command.command("list")
@json_option
@with_cli_context
async def list_keys(cli: CliContext, as_json: bool) -> None:
    """List the keys that are registered, and those that wait for their confirmation."""
    async with cli.open() as application:
        keys = await PersonKeys((await application.runtime()).context).list()
    if as_json:
        print_json({"items": [key_json(key) for key in keys], "next": None})
    elif not keys:
        print_sentence(f"No passkeys. `{cli.program} open` prints a link to the page; register one under Passkeys.")
    else:
        rows = [
            {
                "name": key.name,
                "fingerprint": key.fingerprint,
                "state": key.state,
                "for": key.page,
                "since": format_iso(key.time),
            }
            for key in keys
        ]
        print_table(rows, ["name", "fingerprint", "state", "for", "since"], cut=["name"])


@passkeys_command.command("confirm")
@click.argument("code")
@json_option
@with_cli_context
async def confirm_key(cli: CliContext, code: str, as_json: bool) -> None:
    """Register the key for which the page shows CODE. Only a person may."""
    person = require_person()
    async with cli.open() as application:
        key = await PersonKeys((await application.runtime()).context).confirm_by_code(code, by=person)
    _print_done(key, "is registered", as_json=as_json)


@passkeys_command.command("remove")
@click.argument("fingerprint")
@json_option
@with_cli_context
async def remove_key(cli: CliContext, fingerprint: str, as_json: bool) -> None:
    """Stop the use of the key whose fingerprint begins with FINGERPRINT. What it has signed stays proven."""
    person = require_person()
    async with cli.open() as application:
        key = await PersonKeys((await application.runtime()).context).remove(fingerprint, by=person)
    _print_done(key, "is removed", as_json=as_json)


def _print_done(key: PersonKey, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(key_json(key))
    else:
        print_line(f"The passkey {quote_name(key.name)}, {key.fingerprint}, for {quote_name(key.page)}, {what}.")
