"""`fidelio doctor`: looks at the machine, says what is missing and what that costs."""

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

from fidelio.errors import FidelioError
from fidelio.surfaces.cli.context import (
    App,
    json_option,
    pass_app,
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
@pass_app
def doctor_command(app: App, as_json: bool) -> int:
    """Check this machine, and say what is missing and what that costs.

    Ends with 1 when something that Fidelio cannot do without is wrong.
    """
    checks = run_async(examine(app))
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


async def examine(app: App) -> list[Check]:
    looks: list[tuple[str, Callable[[App], Check | Awaitable[Check]]]] = [
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
    return [*[await _look(name, look, app) for name, look in looks], *await _executors(app)]


async def _look(name: str, look: Callable[[App], Check | Awaitable[Check]], app: App) -> Check:
    found = await _found(name, look, app)
    return replace(found, sentence=as_typed(found.sentence, app.program), remedy=as_typed(found.remedy, app.program))


async def _found(name: str, look: Callable[[App], Check | Awaitable[Check]], app: App) -> Check:
    try:
        found = look(app)
        return found if isinstance(found, Check) else await found
    except FidelioError as error:
        return Check(name, "problem", error.sentence, "Fidelio cannot start.", error.remedy)
    except OSError as error:
        return Check(name, "problem", f"This could not be looked at: {error}.", "It may not work.", "Check owner and mode.")


async def _executors(_: App) -> list[Check]:
    """Which kinds of agents can be started here. None of them is needed for anything but itself."""
    from fidelio.orchestrator.executors.registry import executors

    known = executors()
    found = await asyncio.gather(*(executor.availability() for executor in known.values()))
    return [
        Check(name, "ok" if one.works else "optional", f"Agent {name}: {one.why}")
        for name, one in zip(known, found, strict=True)
    ]


def _python(_: App) -> Check:
    return Check("python", "ok", f"Python {platform.python_version()} at {sys.prefix}.")


def _sqlite(_: App) -> Check:
    from fidelio.ledger.sqlite.connection import SAFE_VERSION, driver_version, sqlite_version

    version = ".".join(map(str, sqlite_version()))
    if sqlite_version() >= SAFE_VERSION:
        return Check("sqlite", "ok", f"SQLite {version} with full-text search, brought by apsw {driver_version()}.")
    return Check(
        "sqlite",
        "problem",
        f"SQLite {version} can damage a file that several processes write.",
        "Running more than one process on this ledger is unsafe.",
        "Install apsw from its binary package: pip install --force-reinstall --only-binary apsw apsw.",
    )


def _home(app: App) -> Check:
    home = app.settings.home.ensure()
    return Check("home", "ok", f"Home is {home.path}.")


def _disk(app: App) -> Check:
    home = app.settings.home.path
    # The home may not be there yet, or ever; what is above it lies on the disk that it would be on.
    there = next(place for place in (home, *home.parents) if os.path.exists(place))  # noqa: PTH110  # Path.exists raises
    free = shutil.disk_usage(there).free
    if free > LITTLE_SPACE:
        return Check("disk", "ok", f"{free // 2**30} GiB free for the ledger.")
    return Check("disk", "warning", f"Only {free // 2**20} MiB free.", "Sessions stop when the disk is full.", "Make room.")


def _keys(app: App) -> Check:
    from fidelio.tokens.keyring import ENVIRONMENT, FileKeys, open_keys

    keys = open_keys(app.settings.home.keys)
    source = f"{keys.path}" if isinstance(keys, FileKeys) else ENVIRONMENT
    return Check("keys", "ok", f"Tokens are sealed with key {keys.active().kid} from {source}.")


async def _ledger(app: App) -> Check:
    async with app.ledger() as ledger:
        await ledger.check()
        page = await ledger.sessions(limit=1)
    kind = "PostgreSQL" if "://" in app.settings.ledger else "SQLite"
    return Check("ledger", "ok", f"The {kind} ledger is sound{'' if page.items else ' and empty'}.")


async def _agents(app: App) -> Check:
    """Whether what was started is also carried out: by a server, or by a worker in the background."""
    from fidelio.locks import is_hosted
    from fidelio.orchestrator.runs.host_process import is_anything_active
    from fidelio.orchestrator.service.service import open_agents

    if is_hosted(app.settings.home):
        return Check("agents", "ok", "A process of this home carries out agents.")
    async with app.ledger() as ledger:
        waits = await is_anything_active(open_agents(app.settings, ledger).context)
    if not waits:
        return Check("agents", "ok", "No agent is at work, and none waits.")
    log = app.settings.home.worker_log
    remedy = f"`fidelio work` carries them out; why nobody does may stand in {log} or in the log of your server."
    return Check(
        "agents", "warning", "Agents wait, and no process of this home carries them out.", "They do not go on.", remedy
    )


def _workflows(app: App) -> Check:
    library = app.library()
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


def _postgres(_: App) -> Check:
    if find_spec("asyncpg"):
        return Check("postgres", "ok", "The PostgreSQL driver is here.")
    return Check(
        "postgres",
        "optional",
        "The PostgreSQL driver is not installed.",
        "Only a ledger for many machines needs it.",
        'pip install "fidelio-agents[postgres]"',
    )


def _terminal(_: App) -> Check:
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
