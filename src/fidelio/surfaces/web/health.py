"""The page of health: what this server is, which processes work for the home, what is queued, and what `fidelio doctor` says.

Some checks start programs or read the whole ledger. They run on request only, one run at a time, in a thread of their own, and
the page waits a bounded time for them; their last result stays on the page with its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from fidelio import __version__
from fidelio.app.application import Application
from fidelio.app.checks import Check, count_jobs, list_hosts, run_checks
from fidelio.app.records import describe_ledger
from fidelio.app.watching import MAX_STREAMS
from fidelio.clock import now_ms
from fidelio.settings import Settings
from fidelio.surfaces.web.pages import PageContent, PageRequest, Result

# How long the page waits for the slow checks; they go on, and are on the page when it is loaded again.
WAIT_SECONDS = 15.0
MOST_JOBS, MOST_FAILED = 1000, 10
_ORDER = ("problem", "warning", "ok", "optional")


class SlowChecks:
    """All checks of doctor. `found`: their last result, of `checked_at`."""

    def __init__(self, application: Application) -> None:
        self._settings, self._program = application.settings, application.program
        self._running: asyncio.Task[None] | None = None
        self.found: tuple[Check, ...] = ()
        self.checked_at: int | None = None

    @property
    def are_running(self) -> bool:
        return self._running is not None and not self._running.done()

    async def run(self) -> None:
        """Run all checks, or wait for those that run; return at the latest after `WAIT_SECONDS`."""
        if not self.are_running:
            self._running = asyncio.create_task(self._run())
        if self._running is not None:
            await asyncio.wait({self._running}, timeout=WAIT_SECONDS)

    async def _run(self) -> None:
        # A check may read definitions or start programs, which must not hold up the other pages.
        self.found, self.checked_at = tuple(await asyncio.to_thread(asyncio.run, self._check())), now_ms()

    async def _check(self) -> list[Check]:
        async with Application(self._settings, program=self._program) as application:
            return await run_checks(application)


class HealthPage:
    """Shows the page. `slow` belongs to the process, so that two readers do not run the checks twice."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self.slow = SlowChecks(application)

    async def show(self, request: PageRequest) -> Result:
        wants_all = bool(request.query("all"))
        if wants_all:
            await self.slow.run()
        records = await request.services.records()
        quick = await run_checks(self._application, is_quick=True)
        queued, dead = await records.jobs(limit=MOST_JOBS), await records.jobs(dead=True, limit=MOST_FAILED)
        values = {
            "facts": self._list_facts(request.services.watcher.streams, request.position),
            "hosts": list(list_hosts(self._application)),
            "jobs": count_jobs(queued, now_ms()),
            "has_more_jobs": len(queued) == MOST_JOBS,
            "failed": dead,
            "checks": _merge(quick, self.slow.found),
            "checked_at": self.slow.checked_at,
            "are_running": self.slow.are_running,
            "is_live": not wants_all,
        }
        return PageContent("health.html", values)

    def _list_facts(self, streams: int, events: int) -> tuple[tuple[str, str], ...]:
        settings = self._application.settings
        return (
            ("Fidelio", __version__),
            ("Home", str(settings.home.path)),
            ("Database", describe_database(settings, events)),
            ("Open pages", f"{streams} of at most {MAX_STREAMS}"),
        )


def describe_database(settings: Settings, events: int) -> str:
    """Which database it is, how much it holds, and where it is unless it is in the home."""
    if "://" in settings.ledger:
        return f"PostgreSQL at {describe_ledger(settings)}, {events:,} events"
    size = Path(settings.ledger).stat().st_size / 2**20
    where = "" if settings.ledger == str(settings.home.ledger) else f", {settings.ledger}"
    return f"SQLite, {size:,.1f} MiB, {events:,} events{where}"


def _merge(quick: Sequence[Check], slow: Sequence[Check]) -> list[Check]:
    """The checks of now, and what only the slow run has looked at, by its last result; first what needs somebody."""
    known = {check.name for check in quick}
    found = [*quick, *(check for check in slow if check.name not in known)]
    return sorted(found, key=lambda check: _ORDER.index(check.state))
