"""`fidelio webhooks`: addresses that each new request of the inbox is sent to, signed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, TextIO

import click
from click.shell_completion import CompletionItem
from msgspec.structs import asdict

from fidelio.app.asking import question_url
from fidelio.app.webhooks.deliveries import Delivery, list_deliveries
from fidelio.app.webhooks.sending import send_test
from fidelio.app.webhooks.settings import MAX_SECRET, Webhooks, describe_address
from fidelio.clock import format_iso, format_local, now_ms
from fidelio.errors import UsageProblem
from fidelio.inbox import require_person
from fidelio.surfaces.cli.context import (
    CliContext,
    CommandGroup,
    escape_line,
    json_option,
    print_items,
    print_json,
    print_line,
    print_sentence,
    print_table,
    quote_name,
    with_cli_context,
)
from fidelio.surfaces.cli.references import Reference
from fidelio.surfaces.views.requests import AddedWebhook, RemovedWebhook, TestedWebhook, WebhookView, webhook_fields

_MAX_URL = 200


def _complete_webhooks(cli: CliContext, start: str) -> Iterator[CompletionItem]:
    found = Webhooks(cli.settings.home).list()
    return (CompletionItem(each.id, help=quote_name(each.url)) for each in found if each.id.startswith(start))


_WEBHOOK = Reference(_complete_webhooks)


@click.group("webhooks", cls=CommandGroup)
def webhooks_command() -> None:
    """Send each new request of the inbox to an address of yours.

    `fidelio up` and `fidelio inbox --watch` send while they run: at least once, with retries for a day. A delivery is JSON with
    the question and the address of its page, signed with your secret in the header Fidelio-Signature, and has an id in
    Fidelio-Delivery by which a second is recognized.
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
        print_json(AddedWebhook(**webhook_fields(webhook), remark=remark))
        return
    print_line(f"Webhook {webhook.id} is added: requests that are opened from now on are sent to {quote_name(url, _MAX_URL)}.")
    if remark:
        print_line(remark)
    _print_sender(cli)


def _print_sender(cli: CliContext) -> None:
    """Say whether anybody sends, because a webhook alone does not."""
    if Webhooks(cli.settings.home).is_sending():
        print_line("A process of this home sends now.")
    else:
        print_line(f"Nothing sends now. `{cli.program} up` and `{cli.program} inbox --watch` send while they run.")


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
        print_items([WebhookView(**webhook_fields(webhook)) for webhook in webhooks])
    elif not webhooks:
        print_sentence(f"No webhooks. `{cli.program} webhooks add URL` adds one.")
    else:
        rows = [{"id": each.id, "added": format_local(each.created_at, seconds=False), "url": each.url} for each in webhooks]
        print_table(rows, ["id", "added", "url"])
        _print_sender(cli)


@webhooks_command.command("test")
@click.argument("webhook", type=_WEBHOOK)
@json_option
@with_cli_context
async def test(cli: CliContext, webhook: str, as_json: bool) -> None:
    """Send a test delivery to WEBHOOK now, and say what the receiver answers.

    It has the type "test" and tells of no request. It is not repeated.
    """
    require_person()
    found = Webhooks(cli.settings.home).find(webhook)
    status = await send_test(found, question_url(cli.settings, ""), now=now_ms())
    if as_json:
        print_json(TestedWebhook(found.id, status))
    else:
        print_line(f"The receiver accepted the test delivery with status {status}.")


@webhooks_command.command("deliveries")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="How many to list at most.")
@json_option
@with_cli_context
async def deliveries(cli: CliContext, limit: int, as_json: bool) -> None:
    """List what is due or has failed, then what was delivered, newest first."""
    async with cli.open() as application:
        found = await list_deliveries(application, limit=limit)
    if as_json:
        print_items([_delivery_json(delivery) for delivery in found])
        return
    if found:
        print_table([_delivery_row(delivery) for delivery in found], ["request", "webhook", "state", "when"])
        for delivery in found:
            if delivery.problem:
                print_line(f"{delivery.request}, attempt {delivery.attempts}: {escape_line(delivery.problem)}")
    else:
        click.echo("Nothing was delivered yet.")
    if Webhooks(cli.settings.home).list():
        _print_sender(cli)


def _delivery_row(delivery: Delivery) -> dict[str, str]:
    at = format_local(delivery.time, seconds=False)
    when = f"next try {at}" if delivery.is_pending else at
    return {"request": delivery.request, "webhook": delivery.webhook, "state": delivery.state, "when": when}


def _delivery_json(delivery: Delivery) -> dict[str, Any]:
    return {**asdict(delivery), "time": format_iso(delivery.time)}


@webhooks_command.command("remove")
@click.argument("webhook", type=_WEBHOOK)
@json_option
@with_cli_context
def remove(cli: CliContext, webhook: str, as_json: bool) -> None:
    """Remove WEBHOOK. What is due to it is no longer sent."""
    require_person()
    removed = Webhooks(cli.settings.home).remove(webhook)
    if as_json:
        print_json(RemovedWebhook(**webhook_fields(removed), removed=True))
    else:
        print_line(f"Webhook {removed.id} is removed.")
