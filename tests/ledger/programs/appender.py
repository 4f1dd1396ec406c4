"""A process that writes until it is killed, and reports each acknowledgement before it continues.

It sends `("event", seq, hash)`, `("request", id)`, `("job", id)`, `("claimed", job)`, `("settled", job)`, and `("ended", code)`
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

Pipe: TypeAlias = "Connection[Any, Any]"


def main(pipe: Pipe, address: str, session: str, seed: int) -> None:
    asyncio.run(_append_for_ever(pipe, address, session, random.Random(seed)))


async def _append_for_ever(pipe: Pipe, address: str, session: str, chance: random.Random) -> None:
    try:
        async with await open_ledger(address) as ledger:
            while True:
                await _step(pipe, ledger, session, chance)
    except LedgerError as error:
        pipe.send(("ended", error.code))


async def _step(pipe: Pipe, ledger: Ledger, session: str, chance: random.Random) -> None:
    draw = chance.random()
    if draw < 0.5:
        await _append(pipe, ledger, session, chance)
    elif draw < 0.7:
        await _ask(pipe, ledger, session)
    elif draw < 0.85:
        await _enqueue(pipe, ledger, session)
    else:
        await _work(pipe, ledger, session, finish=chance.random() < 0.7)


async def _append(pipe: Pipe, ledger: Ledger, session: str, chance: random.Random) -> None:
    events = [NewEvent(type="step", body={"pad": "x" * chance.randrange(2000)}) for _ in range(chance.randrange(1, 4))]
    _send_events(pipe, await ledger.append(session, *events))


async def _ask(pipe: Pipe, ledger: Ledger, session: str) -> None:
    request = OpenRequest(id=new_id("r_"), kind="question", key=new_id("k_"), question="Go on?")
    (result,) = await ledger.commit(Change(session=session, events=(NewEvent(type="asked"),), requests=(request,)))
    _send_events(pipe, result)
    pipe.send(("request", request.id))


async def _enqueue(pipe: Pipe, ledger: Ledger, session: str) -> None:
    job = NewJob(kind=KIND, session=session, id=new_id("j_"))
    (result,) = await ledger.commit(Change(session=session, events=(NewEvent(type="queued"),), jobs=(job,)))
    _send_events(pipe, result)
    pipe.send(("job", job.id))


async def _work(pipe: Pipe, ledger: Ledger, session: str, *, finish: bool) -> None:
    lease = await ledger.claim("appender", [KIND], lease_ms=LEASE_MS)
    if lease is None:
        return
    pipe.send(("claimed", lease.job))
    if finish:
        (result,) = await ledger.commit(
            Change(session=session, events=(NewEvent(type="worked"),), lease=lease, settle=Completion()),
        )
        _send_events(pipe, result)
        pipe.send(("settled", lease.job))


def _send_events(pipe: Pipe, result: CommitResult) -> None:
    for event in result.events:
        pipe.send(("event", event.seq, event.hash))
