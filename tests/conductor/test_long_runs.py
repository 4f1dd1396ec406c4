"""A run that was started again, or has failed, more often than one page of events holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.conductor.plan import RUN_FAILED, RUN_STARTED, count_forgiven_runs, load_plan
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.model import NewEvent
from tests.support import proves
from tests.support.ledgers import start

MORE_THAN_A_PAGE = 1001


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    async with await open_ledger(tmp_path / "ledger.db") as opened:
        await start(opened, "s_a")
        yield opened


@proves("conductor.long-runs")
async def test_the_newest_plan_is_loaded(ledger: Ledger) -> None:
    def begun(agent: str) -> NewEvent:
        return NewEvent(type=RUN_STARTED, body={"plan": {"workflow": "ferry", "project": "/p", "agent": agent}})

    await ledger.append("s_a", *[begun("first")] * MORE_THAN_A_PAGE, begun("newest"))
    plan = await load_plan(ledger, "s_a")

    assert plan is not None
    assert plan.agent == "newest"


@proves("conductor.long-runs")
async def test_failures_beyond_a_page_are_counted(ledger: Ledger) -> None:
    failures = [NewEvent(type=RUN_FAILED, body={"worker": "sail", "runs": number}) for number in range(MORE_THAN_A_PAGE)]
    await ledger.append("s_a", *failures)

    assert await count_forgiven_runs(ledger, "s_a", "sail") == MORE_THAN_A_PAGE - 1
