"""Commands over the key ring."""

from __future__ import annotations

import click

from fidelio.errors import UsageProblem
from fidelio.surfaces.cli.context import App, json_option, pass_app, print_json


@click.command("keys")
@click.option("--rotate", is_flag=True, help="Make a new key. Old tokens go on working; new ones are sealed with it.")
@json_option
@pass_app
def keys_command(app: App, rotate: bool, as_json: bool) -> None:
    """Show which key seals new tokens, or rotate it. Secrets are never printed."""
    from fidelio.tokens.keyring import ENVIRONMENT, FileKeys, open_keys

    keys = open_keys(app.settings.home.ensure().keys)
    if rotate and not isinstance(keys, FileKeys):
        raise UsageProblem(
            f"The keys come from {ENVIRONMENT}, so they cannot be rotated here.",
            remedy="Put a new key in front of the old one there, with a comma between them.",
        )
    active = keys.rotate() if rotate and isinstance(keys, FileKeys) else keys.active()
    source = str(keys.path) if isinstance(keys, FileKeys) else ENVIRONMENT
    if as_json:
        print_json({"active": active.kid, "source": source, "rotated": rotate})
    else:
        click.echo(f"Key {active.kid} from {source} seals new tokens.")
