"""The rules of the service are tested through the tools of a dialect, in memory, with the player of those tests."""

from __future__ import annotations

from fidelio.ledger import open_ledger
from fidelio.ledger.model import Event
from fidelio.settings import Settings
from tests.dialects.conftest import dialect, library, memory, opens, play, pytest_generate_tests, settings

__all__ = ["dialect", "library", "list_events", "memory", "opens", "play", "pytest_generate_tests", "settings"]


async def list_events(settings: Settings, *types: str) -> list[Event]:
    async with await open_ledger(settings.ledger) as ledger:
        return list(await ledger.events(types=types))
