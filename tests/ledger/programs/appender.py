"""A program that writes as fast as it can and tells each acknowledgement before it goes on; made to be killed.

It tells `("event", seq, hash)`, `("request", id)`, `("job", id)`, `("claimed", job)`, `("settled", job)`, and `("ended", code)`
when the ledger has failed it.
"""

from __future__ import annotations

import asyncio
import random
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from fidelio.errors import LedgerError
from fidelio.ids import new_id
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.model import Change, CommitResult, Completion, NewEvent, NewJob, OpenRequest

KIND = "work"
LEASE_MS = 60_000

Line: TypeAlias = "Connection[Any, Any]"


def main(line: Line, address: str, session: str, seed: int) -> None:
    asyncio.run(_append_for_ever(line, address, session, random.Random(seed)))


async def _append_for_ever(line: Line, address: str, session: str, chance: random.Random) -> None:
    try:
        async with await open_ledger(address) as ledger:
            while True:
                await _step(line, ledger, session, chance)
    except LedgerError as error:
        line.send(("ended", error.code))


async def _step(line: Line, ledger: Ledger, session: str, chance: random.Random) -> None:
    draw = chance.random()
    if draw < 0.5:
        await _append(line, ledger, session, chance)
    elif draw < 0.7:
        await _ask(line, ledger, session)
    elif draw < 0.85:
        await _enqueue(line, ledger, session)
    else:
        await _work(line, ledger, session, finish=chance.random() < 0.7)


async def _append(line: Line, ledger: Ledger, session: str, chance: random.Random) -> None:
    events = [NewEvent(type="step", body={"pad": "x" * chance.randrange(2000)}) for _ in range(chance.randrange(1, 4))]
    _tell_events(line, await ledger.append(session, *events))


async def _ask(line: Line, ledger: Ledger, session: str) -> None:
    request = OpenRequest(id=new_id("r_"), kind="question", key=new_id("k_"), question="Go on?")
    (done,) = await ledger.commit(Change(session=session, events=(NewEvent(type="asked"),), requests=(request,)))
    _tell_events(line, done)
    line.send(("request", request.id))


async def _enqueue(line: Line, ledger: Ledger, session: str) -> None:
    job = NewJob(kind=KIND, session=session, id=new_id("j_"))
    (done,) = await ledger.commit(Change(session=session, events=(NewEvent(type="queued"),), jobs=(job,)))
    _tell_events(line, done)
    line.send(("job", job.id))


async def _work(line: Line, ledger: Ledger, session: str, *, finish: bool) -> None:
    lease = await ledger.claim("appender", [KIND], lease_ms=LEASE_MS)
    if lease is None:
        return
    line.send(("claimed", lease.job))
    if finish:
        (done,) = await ledger.commit(
            Change(session=session, events=(NewEvent(type="worked"),), lease=lease, settle=Completion()),
        )
        _tell_events(line, done)
        line.send(("settled", lease.job))


def _tell_events(line: Line, done: CommitResult) -> None:
    for event in done.events:
        line.send(("event", event.seq, event.hash))
