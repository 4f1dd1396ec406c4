"""`fidelio anchor`: sign the heads of all sessions, and manage the key that signs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from fidelio.clock import format_iso
from fidelio.errors import UsageProblem
from fidelio.inbox import require_person
from fidelio.surfaces.cli.anchor_options import TARGET_HELP, TSA, TSA_HELP
from fidelio.surfaces.cli.context import CliContext, escape_line, json_option, print_json, print_sentence, with_cli_context

if TYPE_CHECKING:
    from fidelio.anchors.service import CreatedAnchor


@click.command("anchor")
@click.argument("target", required=False)
@click.option("--tsa", metavar="URL", help=TSA_HELP)
@click.option("--fingerprint", is_flag=True, help="Do not write an anchor: print the fingerprint of the key that signs.")
@click.option("--rotate-key", is_flag=True, help="Do not write an anchor: create a new key. Old anchors stay valid.")
@json_option
@with_cli_context
async def anchor_command(
    cli: CliContext, target: str | None, tsa: str | None, fingerprint: bool, rotate_key: bool, as_json: bool
) -> None:
    """Sign the heads of all sessions and write them to TARGET, for storage outside of the ledger.

    TARGET is a file, a directory, git:tags/NAME, git:notes/NAME, or git:DIR:tags/NAME for the repository in DIR. Keep the
    anchor and the fingerprint of the key in another place: `fidelio verify --anchor` then shows whether anything before it
    was rewritten.
    """
    if [target is not None, fingerprint, rotate_key].count(True) != 1:
        raise UsageProblem(
            "anchor needs a target, --fingerprint or --rotate-key, and only one of them.", remedy=f"A target is {TARGET_HELP}."
        )
    if rotate_key:
        require_person()
    async with cli.open(create=True) as application:
        service = await application.anchors()
        if target is not None:
            _print_created(await service.create(target, tsa=tsa or os.environ.get(TSA, "")), as_json=as_json)
            return
        key = service.rotate_key() if rotate_key else service.active_fingerprint()
    if as_json:
        print_json({"fingerprint": key, "rotated": rotate_key})
    else:
        click.echo(f"The key {key} signs new anchors." if rotate_key else key)


def _print_created(created: CreatedAnchor, *, as_json: bool) -> None:
    anchor, statement = created.anchor, created.anchor.statement
    if as_json:
        facts = {"number": statement.number, "sessions": statement.count, "position": statement.position}
        moment = {"time": format_iso(statement.time), "time_stamped": bool(anchor.time_stamp)}
        print_json(
            {"location": created.location, **facts, **moment, "digest": anchor.digest.hex(), "fingerprint": anchor.fingerprint}
        )
        return
    stamped = ", time-stamped" if anchor.time_stamp else ""
    print_sentence(f"Anchor {statement.number} of {statement.count} sessions{stamped}: {escape_line(created.location)}")
    click.echo(f"  signed by the key {anchor.fingerprint}")
    print_sentence("  Keep the anchor and the fingerprint in another place than this home.")
