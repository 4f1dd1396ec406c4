"""Anchors at intervals: when one is due, and what happens when it cannot be written."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from fidelio.anchors import schedule as scheduling
from fidelio.anchors.schedule import AnchorSchedule, anchor_if_due, parse_interval, run_schedule
from fidelio.anchors.service import AnchorService
from fidelio.errors import UsageProblem
from fidelio.ledger import Ledger
from tests.anchors.conftest import list_names, verify
from tests.support import proves
from tests.support.ledgers import TIMEOUT_SECONDS, MovingClock, say, start

HOUR = 3600.0


@proves("anchors.schedule")
@pytest.mark.parametrize(("text", "seconds"), [("10s", 10), ("15m", 900), ("1h", 3600), ("30d", 2_592_000)])
def test_an_interval_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert parse_interval(text) == seconds


@proves("anchors.schedule")
@pytest.mark.parametrize("text", ["", "1", "h", "9s", "31d", "1w", "-1h", "1.5h", "0h", "1h ", "\u0661h", "9999999s"])
def test_another_interval_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem, match="is no interval for anchors"):
        parse_interval(text)


@proves("anchors.schedule")
async def test_an_anchor_is_written_when_it_is_due_and_only_if_events_were_added(
    ledger: Ledger, service: AnchorService, directory: Path, clock: MovingClock
) -> None:
    hourly = AnchorSchedule(HOUR, str(directory))
    await start(ledger, "a")
    pauses, counts = [], []
    for seconds, has_event in ((0, False), (600, True), (3000, True), (3600, False), (60, True), (-86_400, True)):
        clock.now += seconds * 1000
        if has_event:
            await say(ledger, "a", {})
        pauses.append(await anchor_if_due(service, hourly, now=clock.now))
        counts.append(len(list_names(directory)))

    # The first at once; not before the hour; at the hour; not without events; with events then at once; after a clock step.
    assert counts == [1, 1, 2, 2, 3, 4]
    assert pauses == [HOUR, 3000.0, HOUR, HOUR, HOUR, HOUR]
    assert (await verify(service, directory)).holds


@proves("anchors.schedule")
async def test_a_target_that_fails_is_logged_and_tried_again_with_growing_pauses(
    ledger: Ledger, service: AnchorService, directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await start(ledger, "a")
    until, pauses = asyncio.Event(), list[float]()
    missing = directory / "missing"

    async def note_pause(seconds: float, *, until: asyncio.Event) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            missing.mkdir()
        if len(pauses) == 7:
            until.set()

    monkeypatch.setattr(scheduling, "sleep_until", note_pause)
    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await run_schedule(service, AnchorSchedule(60.0, str(missing / "anchor.json")), until=until)

    assert pauses[:5] == [10.0, 20.0, 40.0, 60.0, 60.0]
    assert 0 < pauses[5] <= 60.0
    assert list_names(missing) == ["anchor.json"]
    assert [f"There is no directory {missing}" in record.getMessage() for record in caplog.records] == [True] * 5
