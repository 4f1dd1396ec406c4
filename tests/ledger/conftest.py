"""Fixture `ledger`, parametrized over SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fidelio.ledger import Ledger, open_ledger
from tests.ledger.postgres.fixtures import address, postgres_database, postgres_server
from tests.support.ledgers import MovingClock

__all__ = ["address", "postgres_database", "postgres_server"]


@pytest.fixture
def clock() -> MovingClock:
    return MovingClock()


@pytest.fixture
async def ledger(address: str, clock: MovingClock) -> AsyncIterator[Ledger]:
    async with await open_ledger(address, clock=clock) as opened:
        yield opened
