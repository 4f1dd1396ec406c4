"""A worker for a test that kills it: carries out a wake whose tool call never ends."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.runtime.servers.test_servers import describe_server
from tests.runtime.wakes.support import open_runtime, replies, use


async def main(path: Path) -> None:
    async with open_runtime(path, replies(use(("mcp__test__slow", {"text": "x"})))) as runtime:
        session = await runtime.begin(tools={"mcp_servers": {"test": describe_server("stays", path / "notes")}})
        await runtime.tell(session, "Work.")
        sys.stdout.write(f"{session}\n")
        sys.stdout.flush()
        await runtime.work()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
