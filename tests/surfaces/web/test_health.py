"""The page of health: hosts, the queue, and slow checks that run once, aside, for a bounded time."""

from __future__ import annotations

import asyncio
import os
import re

import pytest

from fidelio.app.application import Application
from fidelio.app.checks import Check
from fidelio.ledger.model import Change, DeadLetter, NewJob
from fidelio.surfaces.web import health
from tests.support import proves
from tests.surfaces.web.conftest import Site
from tests.surfaces.web.test_inbox import get, open_session


@proves("web.health-hosts")
async def test_the_page_says_which_process_does_what_for_the_home(site: Site) -> None:
    before = (await get(site, "/health-check")).text
    await site.application.agents()
    page = (await get(site, "/health-check")).text

    assert "no process runs the agents" in before
    assert re.search(rf"process {os.getpid()} runs the agents, since <time", page)
    assert "no process sends new questions" in page


@proves("web.health-queue")
async def test_the_page_counts_jobs_at_work_due_and_later_and_shows_what_was_given_up(site: Site) -> None:
    session = await open_session(site, "one")
    ledger = (await site.application.records())._ledger
    for number, due in enumerate((0, 0, 9_999_999_999_999)):
        await ledger.commit(Change(session=session, jobs=(NewJob(kind="weigh", session=session, due=due, key=str(number)),)))
    await ledger.claim("me", ("weigh",), lease_ms=60_000)
    page = (await get(site, "/health-check")).text

    assert re.search(r"<code>weigh</code> <span[^>]*>1 at work · 1 due · 1 later", page)
    assert "Given up" not in page


@proves("web.health-queue")
async def test_a_job_that_was_given_up_is_shown_with_its_error(site: Site) -> None:
    session = await open_session(site, "one")
    ledger = (await site.application.records())._ledger
    await ledger.commit(Change(session=session, jobs=(NewJob(kind="weigh", session=session),)))
    lease = await ledger.claim("me", ("weigh",), lease_ms=60_000)
    assert lease is not None
    await ledger.settle(lease, DeadLetter(error="The scale <b> is broken."))
    page = (await get(site, "/health-check")).text

    assert "Given up" in page
    assert "The scale &lt;b&gt; is broken." in page


@proves("web.health")
async def test_slow_checks_run_once_for_all_readers_and_the_page_waits_a_bounded_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, may_end = list[bool](), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def check(_: Application, *, is_quick: bool = False) -> list[Check]:
        if is_quick:
            return []
        runs.append(True)
        # In the thread of the checks: wait for the loop of the test.
        await asyncio.to_thread(asyncio.run_coroutine_threadsafe(may_end.wait(), loop).result, 30)
        return [Check("scale", "problem", "The scale is broken.", remedy="Repair it.")]

    monkeypatch.setattr(health, "run_checks", check)
    monkeypatch.setattr(health, "WAIT_SECONDS", 0.05)
    page = health.HealthPage(site.application)
    async with asyncio.timeout(30):
        await asyncio.gather(page.slow.run(), page.slow.run())
        was_running = page.slow.are_running
        may_end.set()
        while page.slow.are_running:
            await page.slow.run()

    assert was_running
    assert runs == [True]
    assert [each.sentence for each in page.slow.found] == ["The scale is broken."]
    assert page.slow.checked_at is not None


@proves("web.health")
async def test_what_the_slow_checks_have_found_stays_on_the_page_with_its_time(site: Site) -> None:
    async with site.visit() as client:
        quick = (await client.get("/health-check")).text
        everything = (await client.get("/health-check?all=yes")).text
        again = (await client.get("/health-check")).text

    assert "Agent scripted" not in quick
    assert "All checks ran" not in quick
    for page in (everything, again):
        assert "Agent scripted" in page
        assert "All checks ran <time" in page
    assert 'id="stream"' in again
    assert 'id="stream"' not in everything
