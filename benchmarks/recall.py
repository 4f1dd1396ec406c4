"""Benchmark of recall and of the list of sessions: natural language and automatic cues in a ledger with very many events.

python -m benchmarks recall

The ledger is written directly into its tables, without the chain, because a million commits would take longer than all other
benchmarks. `FIDELIO_BENCH_EVENTS` changes the number of events.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate
from pathlib import Path
from statistics import median, quantiles

import apsw
import msgspec

from benchmarks.figures import Figure
from fidelio.clock import now_ms
from fidelio.home import Home
from fidelio.ledger.sqlite import open_sqlite
from fidelio.runtime import events as e
from fidelio.runtime.calls import NO_SANDBOX
from fidelio.runtime.navigation.tools import IMPLEMENTATIONS
from fidelio.runtime.recall.automatic import recall_automatically
from fidelio.runtime.recall.model import RecallResult
from fidelio.runtime.recall.search import recall
from fidelio.runtime.record import RuntimeRecord, RuntimeRecords
from fidelio.runtime.tools.definitions import DEFINITIONS, RUNTIME_TOOL_NAMES
from fidelio.runtime.tools.model import LoadedRuntime, Preparation, RuntimeContext, ToolCall
from fidelio.runtime.wakes.record import WakeRecord
from fidelio.sandbox.host.client import SandboxClient
from fidelio.tokens.keyring import FixedKeys
from fidelio.toolkit import read_arguments

EVENTS = int(os.environ.get("FIDELIO_BENCH_EVENTS", "1000000"))
FEW = 100
EVENTS_PER_SESSION = 10
SEARCHES = 120
_WORDS, _TEXTS = 40_000, 20_000
_BATCH = 20_000
_PROJECT = "/bench"
_TYPES = (e.USER_MESSAGE, e.AGENT_MESSAGE, e.TOOL_USE, e.TOOL_RESULT, e.STATUS_IDLE)
_SESSION = """
INSERT INTO sessions (id, kind, namespace, status, reason, last_seq, head, created_at, updated_at, record)
VALUES (?, 'runtime', ?, 'idle', '', ?, x'', ?, ?, ?)
"""
_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, 'agent', ?, ?, x'', x'', x'')"

Search = Callable[[str], Awaitable[RecallResult]]


class Language:
    """Texts whose words are as unevenly frequent as those of a natural language."""

    def __init__(self) -> None:
        self._chance = random.Random(1)
        syllables = [consonant + vowel for consonant in "bdfgklmnprstvw" for vowel in "aeiou"]
        lengths = self._chance.choices((1, 2, 3, 4), weights=(1, 6, 6, 3), k=_WORDS)
        self._words = list(dict.fromkeys("".join(self._chance.choices(syllables, k=length)) for length in lengths))
        self._weights = list(accumulate(1 / (rank + 3) for rank in range(len(self._words))))

    def write(self, words: int) -> str:
        return " ".join(self._chance.choices(self._words, cum_weights=self._weights, k=words))

    def write_many(self, count: int) -> list[str]:
        """Texts of 8 to 60 words."""
        return [self.write(self._chance.randint(8, 60)) for _ in range(count)]


def fill(path: Path, events: int, language: Language) -> str:
    """Write sessions of an agent into a new ledger; return the id of the newest."""
    connection = apsw.Connection(str(path))
    texts = language.write_many(min(_TEXTS, events))
    chance, now = random.Random(2), now_ms()
    record = RuntimeRecord(
        seq=EVENTS_PER_SESSION, agent="bench", project=_PROJECT, wakes=WakeRecord(count=2, last="w1", setup="f")
    )
    raw = msgspec.json.encode(record).decode()
    count = events // EVENTS_PER_SESSION
    for first in range(0, count, _BATCH):
        numbers = range(first, min(first + _BATCH, count))
        with connection:
            rows = [(f"s_{n}", f"runtime:{_PROJECT}", EVENTS_PER_SESSION, now, now, raw) for n in numbers]
            connection.executemany(_SESSION, rows)
            connection.executemany(_EVENT, _list_events(numbers, texts, chance, now))
    connection.close()
    return f"s_{count - 1}"


def _list_events(numbers: Sequence[int], texts: Sequence[str], chance: random.Random, now: int) -> Iterator[tuple[object, ...]]:
    for number in numbers:
        for seq in range(1, EVENTS_PER_SESSION + 1):
            position = number * EVENTS_PER_SESSION + seq
            type_, wake = _TYPES[seq % len(_TYPES)], f"w{seq // 6}"
            body = _BODIES[type_] % (chance.choice(texts), wake)
            yield position, f"s_{number}", seq, f"e_{position}", type_, now - 100_000_000 + position, body


_CONTENT = '{"content": [{"type": "text", "text": "%s"}], "wake_id": "%s"}'
_BODIES = {
    e.USER_MESSAGE: _CONTENT,
    e.AGENT_MESSAGE: _CONTENT,
    e.TOOL_USE: '{"id": "toolu", "name": "grep", "input": {"path": "/workspace", "query": "%.40s"}, "wake_id": "%s"}',
    e.TOOL_RESULT: '{"tool_use_id": "toolu", "name": "grep", "result": {"text": "%s"}, "wake_id": "%s"}',
    e.STATUS_IDLE: '{"stop_reason": {"type": "end_turn"}, "summary": "%.90s", "wake_id": "%s"}',
}


class Bench:
    """A session of the agent that searches."""

    def __init__(self, context: RuntimeContext, session: LoadedRuntime) -> None:
        self._context, self._session = context, session

    async def ask(self, query: str) -> RecallResult:
        """What retrieval_search does."""
        return await recall(self._context, self._session, query, tools=RUNTIME_TOOL_NAMES)

    async def wake(self, message: str) -> RecallResult:
        """What a wake does at its beginning."""
        return await recall_automatically(self._context, self._session, message=message, tools=RUNTIME_TOOL_NAMES)

    async def list_sessions(self) -> float:
        """Milliseconds of session_list, without the commit of the call."""
        tool = DEFINITIONS["session_list"]
        call = ToolCall(self._context, self._session, "toolu_bench", tool, NO_SANDBOX, RUNTIME_TOOL_NAMES)
        arguments = read_arguments(tool.name, tool.parameters, {})
        began = time.perf_counter()
        result = await IMPLEMENTATIONS[tool.name].run(call, arguments, Preparation())
        taken = (time.perf_counter() - began) * 1000
        assert result.output["sessions"], "an empty list measures nothing"
        return taken


@asynccontextmanager
async def open_bench(directory: str, events: int, language: Language) -> AsyncIterator[Bench]:
    home = Home(Path(directory) / f"home{events}").ensure()
    await (await open_sqlite(home.ledger)).close()
    newest = fill(home.ledger, events, language)

    async def refuse() -> None:
        raise AssertionError("recall needs no sandbox")

    async with await open_sqlite(home.ledger) as ledger:
        ledger.record_type = lambda kind: RuntimeRecords() if kind == "runtime" else None
        await ledger.update_index()
        context = RuntimeContext(ledger, now_ms, home, SandboxClient(home, refuse), lambda: FixedKeys(b"k" * 32))
        yield Bench(context, await context.unit.load(newest))


async def measure_searches(search: Search, queries: Sequence[str]) -> tuple[list[float], list[float]]:
    """Milliseconds of each search, by the clock and of this process."""
    clock, process, hits = [], [], 0
    for query in queries:
        began, cpu = time.perf_counter(), time.process_time()
        result = await search(query)
        clock.append((time.perf_counter() - began) * 1000)
        process.append((time.process_time() - cpu) * 1000)
        hits += len(result.hits)
    assert hits > len(queries), "a search that finds nothing measures nothing"
    return clock, process


def find_p95(values: Sequence[float]) -> float:
    return quantiles(values, n=20)[-1]


async def measure(events: int, searches: int) -> list[Figure]:
    language = Language()
    chance = random.Random(3)
    queries = [language.write(chance.randint(3, 14)) for _ in range(searches)]
    cues = [language.write(chance.randint(10, 60)) for _ in range(searches)]
    with tempfile.TemporaryDirectory() as directory:
        async with open_bench(directory, FEW, language) as few:
            _, small = await measure_searches(few.wake, language.write_many(searches))
        async with open_bench(directory, events, language) as many:
            # The first searches fill the page cache, as those of a running server have.
            await measure_searches(many.ask, queries[:20])
            asked, asked_cpu = await measure_searches(many.ask, queries)
            woken, woken_cpu = await measure_searches(many.wake, cues)
            listed = [await many.list_sessions() for _ in range(searches)]
    size = f"{events:,} events"
    return [
        Figure(name=f"session_list, {size}: median", value=median(listed), unit="ms", at_most=10),
        Figure(name="... p95", value=find_p95(listed), unit="ms"),
        Figure(name=f"recall with natural language, {size}: p95", value=find_p95(asked), unit="ms", at_most=50),
        Figure(name="... CPU: median", value=median(asked_cpu), unit="ms CPU"),
        Figure(name="... CPU: p95", value=find_p95(asked_cpu), unit="ms CPU"),
        Figure(name=f"automatic recall, {size}: p95", value=find_p95(woken), unit="ms", at_most=50),
        Figure(name="... CPU: median", value=median(woken_cpu), unit="ms CPU"),
        Figure(name="... CPU: p95", value=find_p95(woken_cpu), unit="ms CPU"),
        Figure(name=f"automatic recall, {FEW} events: median CPU", value=median(small), unit="ms CPU"),
    ]


def main(events: int = EVENTS, searches: int = SEARCHES) -> list[Figure]:
    return asyncio.run(measure(events, searches))
