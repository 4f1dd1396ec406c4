"""Commands about this machine: `fidelio doctor`, `fidelio keys` and `fidelio completion`."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import Literal

import click

from fidelio.errors import FidelioError, UsageProblem
from fidelio.surfaces.cli.context import (
    CliContext,
    json_option,
    pass_cli,
    print_json,
    printable,
    run_async,
    speaks_unicode,
    wants_color,
)
from fidelio.surfaces.commands import as_typed

State = Literal["ok", "optional", "warning", "problem"]
_MARKS = {"ok": ("✓", "green"), "optional": ("·", "blue"), "warning": ("!", "yellow"), "problem": ("✗", "red")}
NAMED = 5
LITTLE_SPACE = 200 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `cost` says what does not work without it, `remedy` what to do."""

    name: str
    state: State
    sentence: str
    cost: str = ""
    remedy: str = ""


@click.command("doctor")
@json_option
@pass_cli
def doctor_command(cli: CliContext, as_json: bool) -> int:
    """Check this machine, and say what is missing and what that costs.

    Ends with 1 when something that Fidelio cannot do without is wrong.
    """
    checks = run_async(examine(cli))
    healthy = not any(check.state == "problem" for check in checks)
    if as_json:
        print_json({"healthy": healthy, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            _print_check(check)
        click.echo(
            "Everything Fidelio needs is here." if healthy else "Fidelio cannot work until the problems above are solved."
        )
    return 0 if healthy else 1


async def examine(cli: CliContext) -> list[Check]:
    looks: list[tuple[str, Callable[[CliContext], Check | Awaitable[Check]]]] = [
        ("python", _python),
        ("sqlite", _sqlite),
        ("home", _home),
        ("disk", _disk),
        ("keys", _keys),
        ("ledger", _ledger),
        ("agents", _agents),
        ("workflows", _workflows),
        ("postgres", _postgres),
        ("terminal", _terminal),
    ]
    return [*[await _look(name, look, cli) for name, look in looks], *await _executors(cli)]


async def _look(name: str, look: Callable[[CliContext], Check | Awaitable[Check]], cli: CliContext) -> Check:
    found = await _found(name, look, cli)
    return replace(found, sentence=as_typed(found.sentence, cli.program), remedy=as_typed(found.remedy, cli.program))


async def _found(name: str, look: Callable[[CliContext], Check | Awaitable[Check]], cli: CliContext) -> Check:
    try:
        found = look(cli)
        return found if isinstance(found, Check) else await found
    except FidelioError as error:
        return Check(name, "problem", error.sentence, "Fidelio cannot start.", error.remedy)
    except OSError as error:
        return Check(name, "problem", f"This could not be looked at: {error}.", "It may not work.", "Check owner and mode.")


async def _executors(_: CliContext) -> list[Check]:
    """Which kinds of agents can be started here. None of them is needed for anything but itself."""
    from fidelio.orchestrator.executors.registry import get_executors

    known = get_executors()
    found = await asyncio.gather(*(executor.availability() for executor in known.values()))
    return [
        Check(name, "ok" if one.works else "optional", f"Agent {name}: {one.why}")
        for name, one in zip(known, found, strict=True)
    ]


def _python(_: CliContext) -> Check:
    return Check("python", "ok", f"Python {platform.python_version()} at {sys.prefix}.")


def _sqlite(_: CliContext) -> Check:
    from fidelio.app.diagnostics import sqlite_version

    sqlite = sqlite_version()
    if sqlite.is_safe:
        return Check("sqlite", "ok", f"SQLite {sqlite.version} with full-text search, brought by apsw {sqlite.driver}.")
    return Check(
        "sqlite",
        "problem",
        f"SQLite {sqlite.version} can damage a file that several processes write.",
        "Running more than one process on this ledger is unsafe.",
        "Install apsw from its binary package: pip install --force-reinstall --only-binary apsw apsw.",
    )


def _home(cli: CliContext) -> Check:
    home = cli.settings.home.ensure()
    return Check("home", "ok", f"Home is {home.path}.")


def _disk(cli: CliContext) -> Check:
    home = cli.settings.home.path
    # The home may not be there yet, or ever; what is above it lies on the disk that it would be on.
    there = next(place for place in (home, *home.parents) if os.path.exists(place))  # noqa: PTH110  # Path.exists raises
    free = shutil.disk_usage(there).free
    if free > LITTLE_SPACE:
        return Check("disk", "ok", f"{free // 2**30} GiB free for the ledger.")
    return Check("disk", "warning", f"Only {free // 2**20} MiB free.", "Sessions stop when the disk is full.", "Make room.")


def _keys(cli: CliContext) -> Check:
    from fidelio.tokens.keyring import ENVIRONMENT, FileKeys

    keys = cli.open().keys()
    source = f"{keys.path}" if isinstance(keys, FileKeys) else ENVIRONMENT
    return Check("keys", "ok", f"Tokens are sealed with key {keys.active().kid} from {source}.")


async def _ledger(cli: CliContext) -> Check:
    async with cli.records() as records:
        await records.check()
        page = await records.sessions(limit=1)
    kind = "PostgreSQL" if "://" in cli.settings.ledger else "SQLite"
    return Check("ledger", "ok", f"The {kind} ledger is sound{'' if page.items else ' and empty'}.")


async def _agents(cli: CliContext) -> Check:
    """Whether what was started is also carried out: by a server, or by a worker in the background."""
    from fidelio.locks import is_hosted

    if is_hosted(cli.settings.home):
        return Check("agents", "ok", "A process of this home carries out agents.")
    async with cli.open() as application:
        waits = await application.has_active_agents()
    if not waits:
        return Check("agents", "ok", "No agent is at work, and none waits.")
    log = cli.settings.home.worker_log
    remedy = f"`fidelio work` carries them out; why nobody does may stand in {log} or in the log of your server."
    return Check(
        "agents", "warning", "Agents wait, and no process of this home carries them out.", "They do not go on.", remedy
    )


def _workflows(cli: CliContext) -> Check:
    library = cli.open().open_library()
    files = sorted({finding.file for finding in library.findings() if finding.severity == "error"})
    entries = library.list()
    if files:
        return Check(
            "workflows",
            "warning",
            f"{len(files)} of the files of {len(entries)} workflows cannot be read whole: {', '.join(files[:NAMED])}"
            f"{', ...' if len(files) > NAMED else '.'}",
            "Agents cannot be led through the broken parts.",
            "`fidelio lint` names file, line and remedy.",
        )
    return Check("workflows", "ok", f"{len(entries)} workflows can be read, with all their parts.")


def _postgres(_: CliContext) -> Check:
    if find_spec("asyncpg"):
        return Check("postgres", "ok", "The PostgreSQL driver is here.")
    return Check(
        "postgres",
        "optional",
        "The PostgreSQL driver is not installed.",
        "Only a ledger for many machines needs it.",
        'pip install "fidelio-agents[postgres]"',
    )


def _terminal(_: CliContext) -> Check:
    if speaks_unicode():
        return Check("terminal", "ok", "The terminal shows Unicode.")
    return Check(
        "terminal",
        "warning",
        f"The terminal's encoding is {sys.stdout.encoding or 'unknown'}.",
        "Drawings are plainer.",
        "Set LANG to a UTF-8 locale.",
    )


def _print_check(check: Check) -> None:
    mark, color = _MARKS[check.state]
    if not speaks_unicode():
        mark = check.state
    click.echo(f"{click.style(mark, fg=color) if wants_color() else mark} {check.name:<11} {printable(check.sentence)}")
    for note in filter(None, (check.cost, check.remedy)):
        click.echo(f"              {printable(note)}")


@click.command("keys")
@click.option("--rotate", is_flag=True, help="Make a new key. Old tokens go on working; new ones are sealed with it.")
@json_option
@pass_cli
def keys_command(cli: CliContext, rotate: bool, as_json: bool) -> None:
    """Show which key seals new tokens, or rotate it. Secrets are never printed."""
    from fidelio.tokens.keyring import ENVIRONMENT, FileKeys

    cli.settings.home.ensure()
    keys = cli.open().keys()
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


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), required=False)
def completion_command(shell: str | None) -> None:
    """Print the completion script for SHELL (default: the one you use).

    \b
    bash: eval "$(fidelio completion bash)"     in ~/.bashrc
    zsh:  eval "$(fidelio completion zsh)"      in ~/.zshrc
    fish: fidelio completion fish > ~/.config/fish/completions/fidelio.fish
    """
    from click.shell_completion import get_completion_class

    from fidelio.surfaces.cli.main import cli

    name = shell or os.path.basename(os.environ.get("SHELL", ""))  # noqa: PTH119  # a value of the environment, not a path we open
    completion = get_completion_class(name)
    if completion is None:
        raise UsageProblem(f"There is no completion for the shell {name!r}.", remedy="Name one of bash, zsh and fish.")
    click.echo(completion(cli, {}, "fidelio", "_FIDELIO_COMPLETE").source())
