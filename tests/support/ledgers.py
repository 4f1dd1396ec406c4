"""What tests of a ledger share: a clock they move, and the few commits nearly all of them begin with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from fidelio.ledger.contract import Ledger
from fidelio.ledger.model import Change, CommitResult, Event, Json, NewEvent, NewSession

PATIENCE = 20.0


@dataclass
class MovingClock:
    """Time as the test wants it."""

    now: int = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now


async def start(ledger: Ledger, session: str, **more: str | None) -> CommitResult:
    """A session with its first event."""
    kind = more.pop("kind", "workflow")
    create = NewSession(kind=kind, **more)  # type: ignore[arg-type]  # a test may pass a kind that does not exist
    (done,) = await ledger.commit(Change(session=session, create=create, events=(NewEvent(type="session.started"),)))
    return done


async def say(ledger: Ledger, session: str, body: Json, type_: str = "note") -> Event:
    """One more event with this body."""
    done = await ledger.append(session, NewEvent(type=type_, body=body))
    return done.events[0]


async def take(events: AsyncIterator[Event], count: int) -> list[Event]:
    """The next `count` events of a follower, within bounds."""
    async with asyncio.timeout(PATIENCE):
        return [await anext(events) for _ in range(count)]
