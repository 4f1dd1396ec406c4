"""A run that was started again, or has failed, more often than one page of events holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.conductor.plan import BEGUN, FAILED, plan_of, runs_before_failure
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
async def test_the_newest_plan_counts(ledger: Ledger) -> None:
    def begun(agent: str) -> NewEvent:
        return NewEvent(type=BEGUN, body={"plan": {"workflow": "ferry", "project": "/p", "agent": agent}})

    await ledger.append("s_a", *[begun("first")] * MORE_THAN_A_PAGE, begun("newest"))
    plan = await plan_of(ledger, "s_a")

    assert plan is not None
    assert plan.agent == "newest"


@proves("conductor.long-runs")
async def test_every_failure_counts(ledger: Ledger) -> None:
    failures = [NewEvent(type=FAILED, body={"worker": "sail", "runs": number}) for number in range(MORE_THAN_A_PAGE)]
    await ledger.append("s_a", *failures)

    assert await runs_before_failure(ledger, "s_a", "sail") == MORE_THAN_A_PAGE - 1
