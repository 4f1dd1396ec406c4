"""Writes of an agent at work are tried again while the database is busy or full for a moment.

Whoever calls us can repeat the call; an agent cannot repeat its work, and must not lose it to a passing fault.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fidelio.errors import LedgerBusy, LedgerFull, LedgerUnavailable

T = TypeVar("T")

PASSING = (LedgerBusy, LedgerFull, LedgerUnavailable)
_PAUSES = (0.1, 0.5, 2.0, 5.0, 10.0, 10.0)

_log = logging.getLogger(__name__)


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    for pause in _PAUSES:
        try:
            return await call()
        except PASSING as error:
            _log.warning("A run cannot be recorded, trying again: %s", error)
            await asyncio.sleep(pause)
    return await call()
