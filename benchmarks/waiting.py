"""Benchmark of waiting for a person: latency of an answer from another process, and CPU share while waiting.

python -m benchmarks waiting

The process that waits is started from here: `python -m benchmarks.waiting LEDGER REQUEST`.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure
from fidelio.inbox import Inbox, open_request
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, NewSession

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 9
WAIT_SECONDS = 3.0
OPTIONS = ({"id": "yes", "label": "Yes", "effect": {}},)


async def ask(path: str, number: int) -> str:
    async with await open_ledger(path) as ledger:
        request = open_request("checkpoint", f"a/ask#{number}", "Shall we?", OPTIONS, {})
        create = NewSession(kind="workflow")
        await ledger.commit(Change(session=f"s_{number}", create=create, requests=(request,)))
        return request.id


async def one_round(path: str, number: int, pause: float) -> tuple[float, float]:
    """Milliseconds until an answer given here was noticed there, and the share of a core that waiting took."""
    request = await ask(path, number)
    command = [sys.executable, "-m", "benchmarks.waiting", path, request]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220  # nothing else runs on this event loop while the benchmark or test program blocks
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        # The interval that is measured: CPU of a process that waits.
        await asyncio.sleep(pause)
        async with await open_ledger(path) as ledger:
            await Inbox(ledger).answer(request, "yes", by="person:bench", channel="cli")
            answered = time.time()
            noticed, share = map(float, process.stdout.readline().split())
    return (noticed - answered) * 1000, share


async def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "ledger.db")  # noqa: PTH118  # a text for a command line
        # Different pauses, so that the answers fall into different moments between two polls.
        latencies = [(await one_round(path, number, 0.3 + number * 0.017))[0] for number in range(ROUNDS)]
        _, share = await one_round(path, ROUNDS, WAIT_SECONDS)
    return [
        Figure(name="answer in another process noticed, median", value=median(latencies), unit="ms"),
        Figure(name="answer in another process noticed, slowest", value=max(latencies), unit="ms", at_most=200.0),
        Figure(name="share of a core while waiting", value=share * 100, unit="%", at_most=1.0),
    ]


def main() -> list[Figure]:
    return asyncio.run(measure())


async def wait(path: str, request: str) -> None:
    async with await open_ledger(path) as ledger:
        print("ready", flush=True)
        began, used = time.perf_counter(), _cpu()
        await Inbox(ledger).wait_until_closed(request)
        print(time.time(), (_cpu() - used) / (time.perf_counter() - began), flush=True)


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    asyncio.run(wait(sys.argv[1], sys.argv[2]))
