"""The checks of an installation: what is missing, and what to do; and what works for its home: processes and queued jobs."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Literal

import msgspec

from fidelio.app.application import Application
from fidelio.app.records import sqlite_version
from fidelio.app.webhooks.settings import Webhooks
from fidelio.errors import FidelioError, Text, render
from fidelio.ledger.model import Job
from fidelio.locks import LockHolder, find_holder, is_hosted
from fidelio.orchestrator.executors.registry import get_executors
from fidelio.processes.table import missing_support
from fidelio.sandbox.host.host import LOCK_NAME
from fidelio.sandbox.levels import VARIABLE, detect_level
from fidelio.tokens.keyring import ENVIRONMENT, FileKeys

State = Literal["ok", "optional", "warning", "problem"]
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


async def run_checks(application: Application, *, is_quick: bool = False) -> list[Check]:
    """Run all checks. A check that raises an error is a problem and does not stop the others.

    `is_quick`: only those that start no process and read neither the whole ledger nor all definitions.
    """
    checks: list[tuple[str, Callable[[Application], Check | Awaitable[Check]]]] = [
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
    ]
    wanted = [(name, check) for name, check in checks if not is_quick or name not in _SLOW]
    found = [await _run_check(name, check, application) for name, check in wanted]
    return found if is_quick else [*found, *await _check_executors(application)]


_SLOW = frozenset({"ledger", "sandbox", "workflows"})


async def _run_check(name: str, check: Callable[[Application], Check | Awaitable[Check]], application: Application) -> Check:
    try:
        found = check(application)
        return found if isinstance(found, Check) else await found
    except FidelioError as error:
        return Check(name, "problem", error.sentence, "Fidelio cannot start.", _render(error.remedy, application))
    except OSError as error:
        return Check(name, "problem", f"The check failed: {error}.", "It may not work.", "Check owner and mode.")


async def _check_executors(_: Application) -> list[Check]:
    """Which executors can start agents here. Each is optional."""
    known = get_executors()
    found = await asyncio.gather(*(executor.availability() for executor in known.values()))
    return [
        Check(name, "ok" if executor.works else "optional", f"Agent {name}: {executor.why}")
        for name, executor in zip(known, found, strict=True)
    ]


def _check_python(_: Application) -> Check:
    return Check("python", "ok", f"Python {platform.python_version()} at {sys.prefix}.")


def _check_sqlite(_: Application) -> Check:
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


def _check_home(application: Application) -> Check:
    home = application.settings.home.ensure()
    return Check("home", "ok", f"Home is {home.path}.")


def _check_disk(application: Application) -> Check:
    home = application.settings.home.path
    # The home may not exist yet: its nearest existing parent is on the same disk.
    existing = next(path for path in (home, *home.parents) if os.path.exists(path))  # noqa: PTH110  # Path.exists raises
    free = shutil.disk_usage(existing).free
    if free > MIN_FREE_BYTES:
        return Check("disk", "ok", f"{free // 2**30} GiB free for the ledger.")
    return Check(
        "disk", "warning", f"Only {free // 2**20} MiB free.", "Sessions stop when the disk is full.", "Free some space."
    )


def _check_keys(application: Application) -> Check:
    keys = application.keys()
    source = f"{keys.path}" if isinstance(keys, FileKeys) else ENVIRONMENT
    return Check("keys", "ok", f"Tokens are sealed with key {keys.active().kid} from {source}.")


async def _check_ledger(application: Application) -> Check:
    records = await application.records()
    await records.check()
    page = await records.sessions(limit=1)
    kind = "PostgreSQL" if "://" in application.settings.ledger else "SQLite"
    return Check("ledger", "ok", f"The {kind} ledger is sound{'' if page.items else ' and empty'}.")


async def _explain_queued(application: Application) -> list[str]:
    service = await application.agents(host=False)
    queued = (await service.list(status="queued", limit=MAX_QUEUED_SHOWN)).items
    reasons = await service.explain_waiting(queued)
    return [f"{session.name} is queued: {_render(reasons[session.id], application)}" for session in queued]


async def _check_agents(application: Application) -> Check:
    """Whether active runs have an agent host: a server, or a background process."""
    if is_hosted(application.settings.home):
        return Check("agents", "ok", " ".join(["A process of this home runs the agents.", *await _explain_queued(application)]))
    if not await application.has_active_agents():
        return Check("agents", "ok", "No agent is running or queued.")
    log = application.settings.home.worker_log
    remedy = (
        f"Run them with `{application.program} work`. Why no process does is possibly in {log} or in the log of your server."
    )
    return Check(
        "agents", "warning", "Agents have work, and no process of this home runs them.", "They do not continue.", remedy
    )


def _check_webhooks(application: Application) -> Check:
    """Whether anybody sends what the webhooks of this home are waiting for."""
    webhooks = Webhooks(application.settings.home)
    count = len(webhooks.list())
    if not count:
        return Check("webhooks", "ok", "No webhooks.")
    what = "1 webhook" if count == 1 else f"{count} webhooks"
    if webhooks.is_sending():
        return Check("webhooks", "ok", f"A process of this home sends new requests to {what}.")
    sentence = f"No process of this home sends new requests to its {what}."
    program = application.program
    remedy = f"`{program} up` and `{program} inbox --watch` send while they run, also what was opened before."
    return Check("webhooks", "warning", sentence, "Nobody is told of questions that are opened now.", remedy)


def _check_processes(_: Application) -> Check:
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


def _check_sandbox(_: Application) -> Check:
    """At which level of isolation sandboxes start, and what a person can do to improve it."""
    report = detect_level()
    forced = os.environ.get(VARIABLE) and VARIABLE not in report.reason
    sentence = f"{report.reason} Level: {report.level}{f', forced by {VARIABLE}' if forced else ''}."
    if report.runs_commands:
        return Check("sandbox", "ok", sentence, remedy=report.remedy)
    cost = "No sandbox can be started." if report.level == "none" else "Agents in a sandbox cannot run commands."
    return Check("sandbox", "warning", sentence, cost, report.remedy)


def _check_workflows(application: Application) -> Check:
    library = application.open_library()
    files = sorted({finding.file for finding in library.findings() if finding.severity == "error"})
    entries = library.list()
    if files:
        return Check(
            "workflows",
            "warning",
            f"{len(files)} of the files of {len(entries)} workflows have errors: {', '.join(files[:MAX_FILES_SHOWN])}"
            f"{', ...' if len(files) > MAX_FILES_SHOWN else '.'}",
            "Agents cannot use what these files define.",
            f"`{application.program} lint` shows file, line and remedy.",
        )
    return Check("workflows", "ok", f"{len(entries)} workflows can be read, with all their files.")


def _check_postgres(_: Application) -> Check:
    if find_spec("asyncpg"):
        return Check("postgres", "ok", "The PostgreSQL driver is installed.")
    return Check(
        "postgres",
        "optional",
        "The PostgreSQL driver is not installed.",
        "Only a ledger in PostgreSQL needs it.",
        'pip install "fidelio-agents[postgres]"',
    )


def _render(text: Text, application: Application) -> str:
    """A text with its commands as a person types them for this home."""
    return render(text, application.program, tools=False)


class Host(msgspec.Struct, frozen=True):
    """What a process does for the home. `holder`: who does it; None if nobody does."""

    name: str
    work: str
    holder: LockHolder | None


class JobCount(msgspec.Struct, frozen=True):
    """How many jobs of a kind are at work, due now, and due later."""

    kind: str
    leased: int
    due: int
    later: int


def list_hosts(application: Application) -> Iterator[Host]:
    """What is done for the home of an application, first by this process."""
    home = application.settings.home
    yield Host("Pages", "is this server", LockHolder(os.getpid(), application.started_at))
    locks = (
        ("Agents", "runs the agents", home.agents_lock),
        ("Background worker", "runs agents when no server does", home.worker_lock),
        ("Sandboxes", "keeps the sandboxes", home.path / LOCK_NAME),
        ("Webhooks", "sends new questions", home.path / "locks" / "webhooks.lock"),
    )
    for name, work, path in locks:
        yield Host(name, work, find_holder(path))


def count_jobs(jobs: Sequence[Job], now: int) -> list[JobCount]:
    """The queue, by kinds of jobs."""
    leased = Counter(job.kind for job in jobs if job.lease_expires > now)
    due = Counter(job.kind for job in jobs if job.lease_expires <= now and job.due <= now)
    later = Counter(job.kind for job in jobs if job.lease_expires <= now and job.due > now)
    return [JobCount(kind, leased[kind], due[kind], later[kind]) for kind in sorted({job.kind for job in jobs})]
