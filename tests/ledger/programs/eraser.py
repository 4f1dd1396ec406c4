"""A program that deletes sessions in pairs, as fast as it can; made to be killed. It tells that it begins."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from fidelio.ledger import open_ledger
from fidelio.ledger import projection as erasing

PAIR = 2

Line: TypeAlias = "Connection[Any, Any]"


def main(line: Line, address: str, sessions: list[str]) -> None:
    erasing.LARGEST_BATCH = PAIR
    asyncio.run(_erase(line, address, sessions))


async def _erase(line: Line, address: str, sessions: list[str]) -> None:
    async with await open_ledger(address) as ledger:
        line.send("begins")
        await ledger.erase(sessions, actor="eraser", reason="x")
