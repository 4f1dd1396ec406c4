"""The caller of the kill loop: `python -m tests.runtime.kill_driver HOME FIRST`.

Sends numbered commands to the shell of the session and prints a number when its command was acknowledged as completed. A call
that failed is never made again: the next number follows.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import count

from fidelio.app.application import Application
from fidelio.runtime.service import RuntimeService, SessionRequest
from fidelio.settings import load_settings

PROJECT = "/kill-loop"


async def send(service: RuntimeService, session: str, number: int) -> bool:
    """Whether the command was acknowledged as completed."""
    outcome = await service.call(session, "shell_exec", {"command": f"echo {number} >> /workspace/effects"})
    output = outcome.output
    while output.get("status") == "running":
        waited = await service.call(session, "shell_wait", {"commandId": output["commandId"], "timeoutMs": 5_000})
        output = waited.output
    result = output.get("output") or output.get("result") or {}
    return result.get("exitCode") == 0


async def main(home: str, first: int) -> None:
    async with Application(load_settings(home)) as app:
        service = await app.runtime()
        session = await service.open_session(SessionRequest(project=PROJECT))
        await service.set_policy(session, "shell_exec", "always_allow", by="person:test")
        for number in count(first):
            if await send(service, session, number):
                print(number, flush=True)  # noqa: T201  # the test reads it


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
