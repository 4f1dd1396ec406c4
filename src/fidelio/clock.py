"""The system clock, as milliseconds since 1970 in UTC.

Only this module reads the time. Rules take `now`; services take a `Clock`, so that tests can set the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], int]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def format_iso(ms: int) -> str:
    """A moment for JSON and programs: `2026-11-15T20:04:46.123Z`."""
    moment = datetime.fromtimestamp(ms / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_local(ms: int, *, seconds: bool = True) -> str:
    """A moment for people, in the zone of this machine: `2026-11-15 21:04:46 CET`. `seconds`: as in tables, without them."""
    pattern = "%Y-%m-%d %H:%M:%S %Z" if seconds else "%Y-%m-%d %H:%M %Z"
    return datetime.fromtimestamp(ms / 1000, tz=UTC).astimezone().strftime(pattern)
