"""Interleaved measurements, for comparisons on a machine with other load.

The measurements alternate round by round, and the ratio is taken inside each round, so that a slow moment slows both sides.
The median over the rounds drops the moments that slowed only one.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import median

Measurement = Callable[[], Awaitable[float]]


async def interleaved(rounds: int, measurements: Mapping[str, Measurement]) -> dict[str, list[float]]:
    """Run every measurement once per round, in alternating order; the first round is a warm-up."""
    found: dict[str, list[float]] = {name: [] for name in measurements}
    for number in range(rounds + 1):
        order = list(measurements) if number % 2 else list(measurements)[::-1]
        for name in order:
            value = await measurements[name]()
            if number:
                found[name].append(value)
    return found


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    return median(numerator / denominator for numerator, denominator in zip(over, under, strict=True))


async def seconds_per_call(calls: int, call: Callable[[int], Awaitable[object]]) -> float:
    """Return the median duration of a call, so that a single pause of the machine does not count."""
    taken = []
    for number in range(calls):
        began = time.perf_counter()
        await call(number)
        taken.append(time.perf_counter() - began)
    return median(taken)
