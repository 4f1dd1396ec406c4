"""The ledger on SQLite: appends against a bare loop, costs at ten times the size, and search.

python -m benchmarks.ledger [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import median

import apsw

from benchmarks.figures import Figure, table
from benchmarks.measure import interleaved, ratio, seconds_per_call
from fidelio.ledger.model import Change, NewEvent, NewJob, NewSession, Query, Retry
from fidelio.ledger.sqlite import SqliteLedger, open_sqlite
from fidelio.ledger.sqlite.schema import run_script

EVENTS_PER_SESSION = 10
AT_ONCE = 64
HITS = 20
BODY = {"tool": "read_file", "path": "src/app/main.py", "text": "Read what is there before you change it. " * 6, "ok": True}

_chance = random.Random(7)
_words = ["".join(_chance.choices("abcdefghijklmnopqrstuvwxyz", k=_chance.randint(3, 10))) for _ in range(20_000)]
_weights = list(accumulate(1 / (rank + 1) for rank in range(len(_words))))

SEARCHES = {
    "one common word": Query(text="everywhere"),
    "two common words": Query(text="everywhere always"),
    "two common words that never meet": Query(text="even odd"),
    "a common phrase": Query(text='"everywhere always"'),
    "a phrase of common words that never stand together": Query(text='"always everywhere"'),
    "one letter": Query(text="e*"),
    "two beginnings": Query(text="e* al*"),
    "the beginning of a common word": Query(text="everyw*"),
    "a common word in one session": Query(text="everywhere", session="s_7"),
    "a common word in one kind and two types": Query(text="everywhere", kind="agent", types=("note.a", "note.b")),
    "a common word among siblings": Query(text="everywhere", session="s_7", relation="siblings"),
    "a rare word": Query(text="needle"),
    "no hit": Query(text="nowhere"),
}


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured. The promises are about `FULL`; anything less shows only that the benchmark works."""

    rounds: int
    sessions: int
    calls: int


FULL = Effort(rounds=9, sessions=10_000, calls=150)
QUICK = Effort(rounds=3, sessions=1_000, calls=60)


def main(effort: Effort = FULL) -> list[Figure]:
    return asyncio.run(_measure(effort))


async def _measure(effort: Effort) -> list[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        figures = await _appends(place, effort)
        small = await _filled(place / "small.db", effort.sessions // 10)
        large = await _filled(place / "large.db", effort.sessions)
        async with small, large:
            figures += await _growth(small, large, effort)
            figures += await _searches(small, large, effort)
    return figures


# Appends


async def _appends(place: Path, effort: Effort) -> list[Figure]:
    async with await open_sqlite(place / "appends.db") as ledger:
        for number in range(AT_ONCE):
            await ledger.commit(Change(session=f"s_{number}", create=NewSession(kind="agent")))
        bare = _bare_table(place / "bare.db")
        found = await interleaved(
            effort.rounds,
            {
                "bare": partial(_bare_alone, ledger, bare, 3 * effort.calls),
                "one": partial(_at_once, ledger, 1, 3 * effort.calls),
                "many": partial(_at_once, ledger, AT_ONCE, effort.calls // 3),
            },
        )
        bare.close()
    return [
        Figure(name="bare loop", value=median(found["bare"]), unit="appends/s"),
        Figure(name="one session", value=median(found["one"]), unit="appends/s"),
        Figure(name=f"{AT_ONCE} sessions at once", value=median(found["many"]), unit="appends/s"),
        Figure(name="one session / bare loop", value=ratio(found["one"], found["bare"]), unit="times", at_least=0.3),
        Figure(name=f"{AT_ONCE} sessions / bare loop", value=ratio(found["many"], found["bare"]), unit="times", at_least=3),
    ]


def _bare_table(path: Path) -> apsw.Connection:
    """The same table and the same sync, and nothing else: no chain, no session, no thread, no index for search."""
    connection = apsw.Connection(str(path))
    run_script(
        connection,
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
        "CREATE TABLE events (position INTEGER PRIMARY KEY, session TEXT NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL,"
        " type TEXT NOT NULL, actor TEXT NOT NULL, time INTEGER NOT NULL, body TEXT, salt BLOB, digest BLOB NOT NULL,"
        " hash BLOB NOT NULL) STRICT; CREATE UNIQUE INDEX events_by_session ON events (session, seq)",
    )
    return connection


async def _bare(connection: apsw.Connection, count: int) -> float:
    first = connection.execute("SELECT coalesce(max(seq), 0) + 1 FROM events").get
    body, salt, digest = json.dumps(BODY), os.urandom(16), os.urandom(32)
    began = time.perf_counter()
    for seq in range(first, first + count):
        connection.execute("BEGIN IMMEDIATE")
        row = ("s_0", seq, "e_0123456789abcdef01234567", "tool.called", "agent", 1_800_000_000_000, body, salt, digest, digest)
        connection.execute("INSERT INTO events VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("COMMIT")
    return count / (time.perf_counter() - began)


async def _bare_alone(ledger: SqliteLedger, connection: apsw.Connection, count: int) -> float:
    # The index uses pauses, and this would be one: the ledger's work must not slow down what it is compared with.
    await ledger.update_index()
    return await _bare(connection, count)


async def _at_once(ledger: SqliteLedger, sessions: int, count: int) -> float:
    async def append(session: str) -> None:
        for _ in range(count):
            await ledger.append(session, NewEvent(type="tool.called", body=BODY, actor="agent"))

    began = time.perf_counter()
    await asyncio.gather(*(append(f"s_{number}") for number in range(sessions)))
    return sessions * count / (time.perf_counter() - began)


# Growth


async def _filled(path: Path, sessions: int) -> SqliteLedger:
    """Sessions with ten events and one job each, `HITS` of them with a rare word."""
    ledger = await open_sqlite(path)
    chance = random.Random(1)
    rare = range(0, sessions, sessions // HITS)
    for first in range(0, sessions, 100):
        numbers = range(first, min(first + 100, sessions))
        await ledger.commit(*(_session(number, number in rare, chance) for number in numbers))
    await ledger.update_index()
    return ledger


def _session(number: int, rare: bool, chance: random.Random) -> Change:
    parent = "s_0" if 0 < number < 100 else None
    events = tuple(
        NewEvent(type=f"note.{'abcde'[place % 5]}", body=_body(place, rare and place == 0, chance))
        for place in range(EVENTS_PER_SESSION)
    )
    return Change(
        session=f"s_{number}",
        create=NewSession(kind="agent", namespace=f"/project/{number % 7}", parent=parent),
        events=events,
        status="running" if number % 3 else "done",
        jobs=(NewJob(kind="wake", session=f"s_{number}", due=number),),
    )


def _body(place: int, rare: bool, chance: random.Random) -> dict[str, object]:
    text = " ".join(chance.choices(_words, cum_weights=_weights, k=20))
    return {"text": f"everywhere always {text}", "side": "even" if place % 2 else "odd", "rare": "needle" if rare else ""}


async def _growth(small: SqliteLedger, large: SqliteLedger, effort: Effort) -> list[Figure]:
    measured: dict[str, Callable[[SqliteLedger, int], Awaitable[float]]] = {
        "append": _append_cost,
        "page of sessions": _page_cost,
        "claim": _claim_cost,
    }
    figures = []
    for name, measure in measured.items():
        sides = {"small": partial(measure, small, effort.calls), "large": partial(measure, large, effort.calls)}
        found = await interleaved(effort.rounds, sides)
        figures += [
            Figure(name=name, value=median(found["large"]) * 1e6, unit="µs"),
            Figure(name=f"{name}, ten times the size", value=ratio(found["large"], found["small"]), unit="times", at_most=1.3),
        ]
    return figures


async def _append_cost(ledger: SqliteLedger, calls: int) -> float:
    newest = (await ledger.sessions(limit=1)).items[0].id
    count = int(newest.removeprefix("s_")) + 1
    event = NewEvent(type="tool.called", body=BODY)
    return await seconds_per_call(calls, lambda number: ledger.append(f"s_{number * 7919 % count}", event))


async def _page_cost(ledger: SqliteLedger, calls: int) -> float:
    cursor = (await ledger.sessions(limit=500)).next
    pages = (
        lambda: ledger.sessions(cursor=cursor),
        lambda: ledger.sessions(kind="agent", status="done", cursor=cursor),
        lambda: ledger.sessions(namespace="/project/3", status="running"),
    )
    return await seconds_per_call(calls, lambda number: pages[number % len(pages)]())


async def _claim_cost(ledger: SqliteLedger, calls: int) -> float:
    taken = []
    for _ in range(calls):
        began = time.perf_counter()
        lease = await ledger.claim("bench", ["wake", "other"], lease_ms=60_000)
        taken.append(time.perf_counter() - began)
        assert lease is not None
        await ledger.settle(lease, Retry(due=int(time.time() * 1000), error=""))
    return median(taken)


# Search


async def _searches(small: SqliteLedger, large: SqliteLedger, effort: Effort) -> list[Figure]:
    rare = SEARCHES["a rare word"]
    assert len(await small.search(rare)) == len(await large.search(rare)) == HITS
    sides = {"small": partial(_search_cost, small, rare, effort), "large": partial(_search_cost, large, rare, effort)}
    found = await interleaved(effort.rounds, sides)
    everything = {name: partial(_search_cost, large, query, effort) for name, query in SEARCHES.items()}
    costs = await interleaved(effort.rounds, everything)
    slowest = max(median(cost) for cost in costs.values())
    return [
        Figure(
            name=f"search with {HITS} hits, ten times the size",
            value=ratio(found["large"], found["small"]),
            unit="times",
            at_most=1.5,
        ),
        *(Figure(name=f"search: {name}", value=median(cost) * 1000, unit="ms") for name, cost in costs.items()),
        Figure(name="slowest search", value=slowest * 1000, unit="ms", at_most=5),
    ]


async def _search_cost(ledger: SqliteLedger, query: Query, effort: Effort) -> float:
    return await seconds_per_call(effort.calls // 10, lambda _: ledger.search(query))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, a third of the rounds")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    chosen = parser.parse_args()
    results = main(QUICK if chosen.quick else FULL)
    print(table(results))
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(figure) | {"holds": figure.holds} for figure in results], indent=2), "utf-8")
    raise SystemExit(0 if all(figure.holds for figure in results) else 1)
