"""A process that erases sessions in pairs until it is killed; it sends a message when it starts."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from fidelio.ledger import encoding as erasing
from fidelio.ledger import open_ledger

PAIR = 2

Pipe: TypeAlias = "Connection[Any, Any]"


def main(pipe: Pipe, address: str, sessions: list[str]) -> None:
    erasing.LARGEST_BATCH = PAIR
    asyncio.run(_erase(pipe, address, sessions))


async def _erase(pipe: Pipe, address: str, sessions: list[str]) -> None:
    async with await open_ledger(address) as ledger:
        pipe.send("begins")
        await ledger.erase(sessions, actor="eraser", reason="x")
