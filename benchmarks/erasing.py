"""Benchmark of deleting sessions from a SQLite ledger: a thousand at once, and one among many."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure
from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.ledger.sqlite import SqliteLedger, open_sqlite

EVENTS = 20
WORDS_PER_EVENT = 14

_chance = random.Random(7)
_words = ["".join(_chance.choices("abcdefghijklmnopqrstuvwxyz", k=_chance.randint(3, 10))) for _ in range(5_000)]


@dataclass(frozen=True, slots=True)
class Effort:
    """Size of the measurement. The bounds hold for `FULL`; a smaller one only shows that the benchmark works."""

    rounds: int
    sessions: int


FULL = Effort(rounds=5, sessions=1_000)


def main(effort: Effort = FULL) -> list[Figure]:
    return asyncio.run(_measure(effort))


async def _measure(effort: Effort) -> list[Figure]:
    many, single = [], []
    with tempfile.TemporaryDirectory() as directory:
        for number in range(effort.rounds):
            async with await open_sqlite(Path(directory) / f"{number}.db") as ledger:
                sessions = await _filled(ledger, effort.sessions + 1)
                single.append(await _seconds(ledger, sessions[:1]))
                many.append(await _seconds(ledger, sessions[1:]))
    return [
        Figure(name=f"{effort.sessions} sessions of {EVENTS} events deleted", value=median(many), unit="s", at_most=1.0),
        Figure(name=f"one of {effort.sessions + 1} sessions deleted", value=1000 * median(single), unit="ms"),
    ]


async def _filled(ledger: SqliteLedger, count: int) -> list[str]:
    sessions = [f"s_{number}" for number in range(count)]
    create = NewSession(kind="agent")
    await ledger.commit(*[Change(session=session, create=create) for session in sessions])
    for _ in range(EVENTS):
        # Round by round, as concurrent sessions grow: the events of a session are not adjacent.
        await ledger.commit(*[Change(session=session, events=(_event(),)) for session in sessions])
    await ledger.update_index()
    return sessions


def _event() -> NewEvent:
    return NewEvent(type="agent.said", body={"run": "1", "text": " ".join(_chance.choices(_words, k=WORDS_PER_EVENT))})


async def _seconds(ledger: SqliteLedger, sessions: list[str]) -> float:
    began = time.perf_counter()
    await ledger.erase(sessions, actor="benchmark", reason="measured")
    return time.perf_counter() - began
