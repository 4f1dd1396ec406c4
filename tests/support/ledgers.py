"""Helpers for tests of a ledger: a manual clock, and commits that most tests start with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from fidelio.ledger.contract import Ledger
from fidelio.ledger.model import Change, CommitResult, Event, Json, NewEvent, NewSession

TIMEOUT_SECONDS = 20.0


@dataclass
class MovingClock:
    """A clock that the test sets."""

    now: int = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now


async def start(ledger: Ledger, session: str, **more: str | None) -> CommitResult:
    """Create a session with its first event."""
    kind = more.pop("kind", "workflow")
    create = NewSession(kind=kind, **more)  # type: ignore[arg-type]  # a test may pass a kind that does not exist
    (done,) = await ledger.commit(Change(session=session, create=create, events=(NewEvent(type="session.started"),)))
    return done


async def say(ledger: Ledger, session: str, body: Json, type_: str = "note") -> Event:
    """Append an event with this body."""
    done = await ledger.append(session, NewEvent(type=type_, body=body))
    return done.events[0]


async def take(events: AsyncIterator[Event], count: int) -> list[Event]:
    """The next `count` events of a follower, within bounds."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return [await anext(events) for _ in range(count)]
