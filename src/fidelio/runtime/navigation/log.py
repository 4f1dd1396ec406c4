"""Reads the log of a session: backwards from an event, between two, an event by its id, a wake.

The ledger finds events by sequence number only. So whatever is looked up by something else is searched backwards in growing
steps, because it is nearly always near the end, and at most `MAX_EVENTS` are looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from fidelio.ledger import Ledger
from fidelio.ledger.model import Event
from fidelio.runtime import events as e

# The first step back; each further one is twice as long.
_STEP = 256
MAX_EVENTS = 100_000
_PAGE = 1000
# Events of a wake that may be committed after the end of its span.
_TRAILING = 16

Accept = Callable[[Event], bool]


class WakeRange(msgspec.Struct, frozen=True):
    """Where a wake is in the log. `ended` is None while it runs, or if a crash ended it."""

    wake: str
    started: Event
    ended: Event | None

    @property
    def last_seq(self) -> int:
        """No event of the wake is after it."""
        return self.started.seq + MAX_EVENTS if self.ended is None else self.ended.seq + _TRAILING

    def includes(self, event: Event) -> bool:
        # The text is looked for first: decoding every body of a long wake takes most of the time.
        return event.raw is not None and self.wake in event.raw and event.body.get("wake_id") == self.wake


def accept_all(_: Event) -> bool:
    return True


async def read_between(
    ledger: Ledger, session: str, after: int, through: int, *, types: Sequence[str] = ()
) -> AsyncIterator[Event]:
    """Yield the events after a sequence number and up to another, in log order."""
    while after < through and (page := await ledger.events(session, after=after, types=types, limit=_PAGE)):
        for event in page:
            if event.seq > through:
                return
            yield event
        if len(page) < _PAGE:
            return
        after = page[-1].seq
        # A read from SQLite does not suspend: other calls would wait for all pages.
        await asyncio.sleep(0)


async def read_after(
    ledger: Ledger,
    session: str,
    after: int,
    through: int,
    limit: int,
    *,
    types: Sequence[str] = (),
    accept: Accept = accept_all,
) -> list[Event]:
    """The first events after a sequence number that are accepted, in log order."""
    found: list[Event] = []
    async for event in read_between(ledger, session, after, through, types=types):
        if len(found) == limit:
            break
        if accept(event):
            found.append(event)
    return found


async def read_back(
    ledger: Ledger,
    session: str,
    before: int,
    limit: int,
    *,
    until: int = 0,
    types: Sequence[str] = (),
    accept: Accept = accept_all,
) -> list[Event]:
    """The last events before a sequence number, and after `until`, that are accepted, in log order."""
    found: list[Event] = []
    step, start = max(_STEP, limit), before - 1
    while start > until and len(found) < limit and before - start <= MAX_EVENTS:
        end, start = start, max(until, start - step)
        step *= 2
        found = [event async for event in read_between(ledger, session, start, end, types=types) if accept(event)] + found
    return found[-limit:] if limit else []


async def find_event(ledger: Ledger, session: str, last_seq: int, event_id: str) -> Event | None:
    """The event with this id among the newest of the session; None if there is none."""
    found = await read_back(ledger, session, last_seq + 1, 1, accept=lambda event: event.id == event_id)
    return found[0] if found else None


async def find_wake(ledger: Ledger, session: str, last_seq: int, wake: str) -> WakeRange | None:
    """Where a wake is among the newest events of the session; None if there is none."""
    found = await read_back(
        ledger, session, last_seq + 1, 1, types=(e.SPAN_STARTED,), accept=lambda event: read_wake_id(event) == wake
    )
    return await _complete(ledger, found[0], last_seq) if found else None


async def list_wakes(ledger: Ledger, session: str, last_seq: int, limit: int) -> list[WakeRange]:
    """The newest wakes, oldest first."""
    started = await read_back(
        ledger, session, last_seq + 1, limit, types=(e.SPAN_STARTED,), accept=lambda event: read_wake_id(event) != ""
    )
    return [await _complete(ledger, event, last_seq) for event in started]


async def _complete(ledger: Ledger, started: Event, last_seq: int) -> WakeRange:
    wake = read_wake_id(started)
    found = await read_after(
        *(ledger, started.session, started.seq, min(last_seq, started.seq + MAX_EVENTS), 1),
        types=(e.SPAN_COMPLETED,),
        accept=lambda event: read_wake_id(event) == wake,
    )
    return WakeRange(wake, started, found[0] if found else None)


async def read_wake(ledger: Ledger, found: WakeRange, last_seq: int, limit: int, *, types: Sequence[str] = ()) -> list[Event]:
    """The first events of a wake, in log order."""
    after = found.started.seq - 1
    return await read_after(
        ledger, found.started.session, after, min(last_seq, found.last_seq), limit, types=types, accept=found.includes
    )


def read_wake_id(event: Event) -> str:
    """The wake whose span this event begins or ends; empty if it is another event."""
    # Spans of tools are many; the cheap test leaves their bodies alone.
    if event.raw is None or '"wake"' not in event.raw:
        return ""
    body = event.body
    return str(body.get("wake_id", "")) if body.get("span_kind") == "wake" else ""
