"""Commands about the installation: `fidelio doctor` and `fidelio keys`."""

from __future__ import annotations

import os
import sys
import textwrap

import click
from msgspec.structs import asdict

from fidelio.app.checks import Check, run_checks
from fidelio.errors import UsageProblem
from fidelio.surfaces.cli.context import (
    CliContext,
    escape_line,
    json_option,
    print_json,
    print_sentence,
    run_async,
    supports_unicode,
    terminal_width,
    uses_color,
    with_cli_context,
)
from fidelio.tokens.keyring import ENVIRONMENT, FileKeys

# Columns before the sentences of a check.
_MARGIN = 14
_MARKS = {"ok": ("✓", "green"), "optional": ("·", "blue"), "warning": ("!", "yellow"), "problem": ("✗", "red")}


@click.command("doctor")
@json_option
@with_cli_context
def doctor_command(cli: CliContext, as_json: bool) -> int:
    """Check this installation: what is missing, what does not work without it, and what to do.

    Exit code 1: there is a problem without whose solution Fidelio cannot work.
    """
    checks = [*run_async(_run_checks(cli)), _check_terminal()]
    healthy = not any(check.state == "problem" for check in checks)
    if as_json:
        print_json({"healthy": healthy, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            _print_check(check)
        click.echo(
            "Everything that Fidelio needs is available."
            if healthy
            else "Fidelio cannot work until the problems above are solved."
        )
    return 0 if healthy else 1


async def _run_checks(cli: CliContext) -> list[Check]:
    async with cli.open() as application:
        return await run_checks(application)


def _check_terminal() -> Check:
    if supports_unicode():
        return Check("terminal", "ok", "The terminal shows Unicode.")
    return Check(
        "terminal",
        "warning",
        f"The terminal's encoding is {sys.stdout.encoding or 'unknown'}.",
        "Drawings use ASCII characters.",
        "Set LANG to a UTF-8 locale.",
    )


def _print_check(check: Check) -> None:
    mark, color = _MARKS[check.state]
    if not supports_unicode():
        mark = check.state
    colored = click.style(mark, fg=color) if uses_color() else mark
    lines = [line for text in (check.sentence, check.cost, check.remedy) for line in _wrap_check(text)]
    click.echo("\n".join([f"{colored} {check.name:<11} {lines[0]}", *(f"{' ' * _MARGIN}{line}" for line in lines[1:])]))


def _wrap_check(text: str) -> list[str]:
    # No word is broken: a path or a command has to be copied as it is.
    width = max(20, terminal_width() - _MARGIN)
    return textwrap.wrap(escape_line(text), width, break_long_words=False, break_on_hyphens=False)


@click.command("keys")
@click.option("--rotate", is_flag=True, help="Create a new key. It seals new tokens; old tokens stay valid.")
@json_option
@with_cli_context
def keys_command(cli: CliContext, rotate: bool, as_json: bool) -> None:
    """Show the id of the key that seals new tokens, or rotate it. Secrets are never printed."""
    cli.settings.home.ensure()
    keys = cli.open().keys()
    if rotate and not isinstance(keys, FileKeys):
        raise UsageProblem(
            f"The keys come from {ENVIRONMENT}, so they cannot be rotated here.",
            remedy="Put a new key in front of the old one there, separated by a comma.",
        )
    active = keys.rotate() if rotate and isinstance(keys, FileKeys) else keys.active()
    resealed = run_async(_reseal_vaults(cli)) if rotate else 0
    source = str(keys.path) if isinstance(keys, FileKeys) else ENVIRONMENT
    if as_json:
        print_json({"active": active.kid, "source": source, "rotated": rotate, "resealed_vaults": resealed})
    else:
        print_sentence(f"Key {active.kid} from {source} seals new tokens.")
        if resealed:
            click.echo(f"{resealed} vaults are sealed with it now.")


async def _reseal_vaults(cli: CliContext) -> int:
    """Seal the values of vaults with the new key. Those of shells are sealed anew when they are used."""
    if not os.path.exists(cli.settings.home.ledger) and cli.settings.ledger == str(cli.settings.home.ledger):  # noqa: ASYNC240, PTH110  # a single stat call
        return 0
    async with cli.open() as app:
        return await (await app.runtime()).vaults.reseal(by="keys")
