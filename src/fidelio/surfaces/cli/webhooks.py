"""`fidelio webhooks`: addresses that each new request of the inbox is sent to, signed."""

from __future__ import annotations

import sys
from typing import TextIO

import click

from fidelio.app.webhooks import MAX_SECRET, Webhook, Webhooks, describe_address
from fidelio.clock import format_iso, format_local, now_ms
from fidelio.errors import UsageProblem
from fidelio.inbox import require_person
from fidelio.surfaces.cli.context import (
    CliContext,
    CommandGroup,
    json_option,
    print_items,
    print_json,
    print_line,
    print_sentence,
    print_table,
    quote_name,
    with_cli_context,
)

_MAX_URL = 200


@click.group("webhooks", cls=CommandGroup)
def webhooks_command() -> None:
    """Send each new request of the inbox to an address of yours.

    `fidelio up` and `fidelio inbox --watch` send while they run: at least once, with retries for a day. A delivery is JSON,
    signed with your secret in the header Fidelio-Signature, and has an id in Fidelio-Delivery by which a second is recognized.
    """


@webhooks_command.command("add")
@click.argument("url")
@click.option(
    "--secret-file",
    type=click.File("r", encoding="utf-8"),
    help="Read the secret from this file (default or -: standard input, where a terminal hides it).",
)
@json_option
@with_cli_context
def add(cli: CliContext, url: str, secret_file: TextIO | None, as_json: bool) -> None:
    """Add the address URL. The secret comes from a file or standard input, so that no process list shows it.

    A private address is allowed, because it is your own setting; the command says so. Redirects are not followed.
    """
    require_person()
    webhook = Webhooks(cli.settings.home).add(url, _read_secret(secret_file), now=now_ms())
    remark = describe_address(url)
    if as_json:
        print_json({**_webhook_json(webhook), "remark": remark})
        return
    print_line(f"Webhook {webhook.id} is added: requests that are opened from now on are sent to {quote_name(url, _MAX_URL)}.")
    if remark:
        print_line(remark)
    print_line(f"`{cli.program} up` and `{cli.program} inbox --watch` send while they run. Start them again if they run now.")


def _read_secret(file: TextIO | None) -> str:
    if file is None and sys.stdin.isatty():
        return str(click.prompt("Secret", hide_input=True, err=True))
    text = str((file or sys.stdin).read(MAX_SECRET + 2)).strip()
    if not text:
        raise UsageProblem("The secret is empty.", remedy="Send it on standard input, or name its file with --secret-file.")
    return text


@webhooks_command.command("list")
@json_option
@with_cli_context
def list_webhooks(cli: CliContext, as_json: bool) -> None:
    """List the webhooks of this home, without their secrets."""
    webhooks = Webhooks(cli.settings.home).list()
    if as_json:
        print_items([_webhook_json(webhook) for webhook in webhooks])
    elif not webhooks:
        print_sentence(f"No webhooks. `{cli.program} webhooks add URL` adds one.")
    else:
        rows = [{"id": each.id, "added": format_local(each.created_at, seconds=False), "url": each.url} for each in webhooks]
        print_table(rows, ["id", "added", "url"])


@webhooks_command.command("remove")
@click.argument("webhook")
@json_option
@with_cli_context
def remove(cli: CliContext, webhook: str, as_json: bool) -> None:
    """Remove WEBHOOK. What is due to it is no longer sent."""
    require_person()
    removed = Webhooks(cli.settings.home).remove(webhook)
    if as_json:
        print_json({**_webhook_json(removed), "removed": True})
    else:
        print_line(f"Webhook {removed.id} is removed.")


def _webhook_json(webhook: Webhook) -> dict[str, str]:
    return {"id": webhook.id, "url": webhook.url, "created_at": format_iso(webhook.created_at)}
