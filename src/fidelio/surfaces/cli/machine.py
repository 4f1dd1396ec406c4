"""Commands about the installation: `fidelio doctor` and `fidelio keys`."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
import textwrap
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import Literal

import click
import msgspec
from msgspec.structs import asdict

from fidelio.app.records import sqlite_version
from fidelio.app.webhooks.settings import Webhooks
from fidelio.errors import FidelioError, UsageProblem
from fidelio.locks import is_hosted
from fidelio.orchestrator.executors.registry import get_executors
from fidelio.processes.table import missing_support
from fidelio.sandbox.levels import VARIABLE, detect_level
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

State = Literal["ok", "optional", "warning", "problem"]
# Columns before the sentences of a check.
_MARGIN = 14
_MARKS = {"ok": ("✓", "green"), "optional": ("·", "blue"), "warning": ("!", "yellow"), "problem": ("✗", "red")}
MAX_FILES_SHOWN = 5
MAX_QUEUED_SHOWN = 5
MIN_FREE_BYTES = 200 * 1024 * 1024


class Check(msgspec.Struct, frozen=True):
    """The result of a check. `cost` says what does not work without it, `remedy` what to do."""

    name: str
    state: State
    sentence: str
    cost: str = ""
    remedy: str = ""


@click.command("doctor")
@json_option
@with_cli_context
def doctor_command(cli: CliContext, as_json: bool) -> int:
    """Check this installation: what is missing, what does not work without it, and what to do.

    Exit code 1: there is a problem without whose solution Fidelio cannot work.
    """
    checks = run_async(run_checks(cli))
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


async def run_checks(cli: CliContext, *, is_quick: bool = False) -> list[Check]:
    """Run all checks. A check that raises an error is a problem and does not stop the others.

    `is_quick`: only those that start no process and read neither the whole ledger nor all definitions.
    """
    checks: list[tuple[str, Callable[[CliContext], Check | Awaitable[Check]]]] = [
        ("python", _check_python),
        ("sqlite", _check_sqlite),
        ("home", _check_home),
        ("disk", _check_disk),
        ("keys", _check_keys),
        ("ledger", _check_ledger),
        ("agents", _check_agents),
        ("webhooks", _check_webhooks),
        ("processes", _check_processes),
        ("sandbox", _check_sandbox),
        ("workflows", _check_workflows),
        ("postgres", _check_postgres),
        ("terminal", _check_terminal),
    ]
    wanted = [(name, check) for name, check in checks if not is_quick or name not in _SLOW]
    found = [await _run_check(name, check, cli) for name, check in wanted]
    return found if is_quick else [*found, *await _check_executors(cli)]


_SLOW = frozenset({"ledger", "sandbox", "workflows"})


async def _run_check(name: str, check: Callable[[CliContext], Check | Awaitable[Check]], cli: CliContext) -> Check:
    try:
        found = check(cli)
        return found if isinstance(found, Check) else await found
    except FidelioError as error:
        return Check(name, "problem", error.sentence, "Fidelio cannot start.", cli.render(error.remedy))
    except OSError as error:
        return Check(name, "problem", f"The check failed: {error}.", "It may not work.", "Check owner and mode.")


async def _check_executors(_: CliContext) -> list[Check]:
    """Which executors can start agents here. Each is optional."""
    known = get_executors()
    found = await asyncio.gather(*(executor.availability() for executor in known.values()))
    return [
        Check(name, "ok" if executor.works else "optional", f"Agent {name}: {executor.why}")
        for name, executor in zip(known, found, strict=True)
    ]


def _check_python(_: CliContext) -> Check:
    return Check("python", "ok", f"Python {platform.python_version()} at {sys.prefix}.")


def _check_sqlite(_: CliContext) -> Check:
    sqlite = sqlite_version()
    if sqlite.is_safe:
        return Check("sqlite", "ok", f"SQLite {sqlite.version} with full-text search, from apsw {sqlite.driver}.")
    return Check(
        "sqlite",
        "problem",
        f"SQLite {sqlite.version} can damage a file that several processes write.",
        "Running more than one process on this ledger is unsafe.",
        "Install apsw from its binary package: pip install --force-reinstall --only-binary apsw apsw.",
    )


def _check_home(cli: CliContext) -> Check:
    home = cli.settings.home.ensure()
    return Check("home", "ok", f"Home is {home.path}.")


def _check_disk(cli: CliContext) -> Check:
    home = cli.settings.home.path
    # The home may not exist yet: its nearest existing parent is on the same disk.
    existing = next(path for path in (home, *home.parents) if os.path.exists(path))  # noqa: PTH110  # Path.exists raises
    free = shutil.disk_usage(existing).free
    if free > MIN_FREE_BYTES:
        return Check("disk", "ok", f"{free // 2**30} GiB free for the ledger.")
    return Check(
        "disk", "warning", f"Only {free // 2**20} MiB free.", "Sessions stop when the disk is full.", "Free some space."
    )


def _check_keys(cli: CliContext) -> Check:
    keys = cli.open().keys()
    source = f"{keys.path}" if isinstance(keys, FileKeys) else ENVIRONMENT
    return Check("keys", "ok", f"Tokens are sealed with key {keys.active().kid} from {source}.")


async def _check_ledger(cli: CliContext) -> Check:
    async with cli.records() as records:
        await records.check()
        page = await records.sessions(limit=1)
    kind = "PostgreSQL" if "://" in cli.settings.ledger else "SQLite"
    return Check("ledger", "ok", f"The {kind} ledger is sound{'' if page.items else ' and empty'}.")


async def _explain_queued(cli: CliContext) -> list[str]:
    async with cli.open() as application:
        service = await application.agents(host=False)
        queued = (await service.list(status="queued", limit=MAX_QUEUED_SHOWN)).items
        reasons = await service.explain_waiting(queued)
    return [f"{session.name} is queued: {cli.render(reasons[session.id])}" for session in queued]


async def _check_agents(cli: CliContext) -> Check:
    """Whether active runs have an agent host: a server, or a background process."""
    if is_hosted(cli.settings.home):
        return Check("agents", "ok", " ".join(["A process of this home runs the agents.", *await _explain_queued(cli)]))
    async with cli.open() as application:
        is_active = await application.has_active_agents()
    if not is_active:
        return Check("agents", "ok", "No agent is running or queued.")
    log = cli.settings.home.worker_log
    remedy = f"Run them with `{cli.program} work`. Why no process does is possibly in {log} or in the log of your server."
    return Check(
        "agents", "warning", "Agents have work, and no process of this home runs them.", "They do not continue.", remedy
    )


def _check_webhooks(cli: CliContext) -> Check:
    """Whether anybody sends what the webhooks of this home are waiting for."""
    webhooks = Webhooks(cli.settings.home)
    count = len(webhooks.list())
    if not count:
        return Check("webhooks", "ok", "No webhooks.")
    if webhooks.is_sending():
        return Check("webhooks", "ok", f"A process of this home sends new requests to {count} webhooks.")
    sentence = f"No process of this home sends new requests to its {count} webhooks."
    remedy = f"`{cli.program} up` and `{cli.program} inbox --watch` send while they run, also what was opened before."
    return Check("webhooks", "warning", sentence, "Nobody is told of questions that are opened now.", remedy)


def _check_processes(_: CliContext) -> Check:
    """Whether the process table shows agents and what they start."""
    problem = missing_support()
    if not problem:
        return Check("processes", "ok", "Agents are recognized by their environment, their ancestors and a mark.")
    return Check(
        "processes",
        "warning",
        problem,
        "Executors that start processes are not available, and an agent is recognized by its environment and header only.",
        "Use Linux 5.3 or newer to start agents.",
    )


def _check_sandbox(_: CliContext) -> Check:
    """At which level of isolation sandboxes start, and what a person can do to improve it."""
    report = detect_level()
    forced = os.environ.get(VARIABLE) and VARIABLE not in report.reason
    sentence = f"{report.reason} Level: {report.level}{f', forced by {VARIABLE}' if forced else ''}."
    if report.runs_commands:
        return Check("sandbox", "ok", sentence, remedy=report.remedy)
    cost = "No sandbox can be started." if report.level == "none" else "Agents in a sandbox cannot run commands."
    return Check("sandbox", "warning", sentence, cost, report.remedy)


def _check_workflows(cli: CliContext) -> Check:
    library = cli.open().open_library()
    files = sorted({finding.file for finding in library.findings() if finding.severity == "error"})
    entries = library.list()
    if files:
        return Check(
            "workflows",
            "warning",
            f"{len(files)} of the files of {len(entries)} workflows have errors: {', '.join(files[:MAX_FILES_SHOWN])}"
            f"{', ...' if len(files) > MAX_FILES_SHOWN else '.'}",
            "Agents cannot use what these files define.",
            f"`{cli.program} lint` shows file, line and remedy.",
        )
    return Check("workflows", "ok", f"{len(entries)} workflows can be read, with all their files.")


def _check_postgres(_: CliContext) -> Check:
    if find_spec("asyncpg"):
        return Check("postgres", "ok", "The PostgreSQL driver is installed.")
    return Check(
        "postgres",
        "optional",
        "The PostgreSQL driver is not installed.",
        "Only a ledger in PostgreSQL needs it.",
        'pip install "fidelio-agents[postgres]"',
    )


def _check_terminal(_: CliContext) -> Check:
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
