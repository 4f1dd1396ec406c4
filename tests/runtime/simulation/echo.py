"""A worker whose model writes down every message it gets: `python -m tests.runtime.simulation.echo HOME`.

Its effects are lines in a file of the home, which all workers share: a message that was processed twice is there twice.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fidelio.clock import now_ms
from fidelio.home import Home
from fidelio.ledger import Ledger, open_ledger
from fidelio.providers.model import ModelReply, ModelRequest, TextBlock, ToolResultBlock
from fidelio.providers.registry import Providers
from fidelio.providers.scripted import ScriptedProvider
from fidelio.runtime.ports import RuntimePorts
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.runtime.wakes.wake import WakeRunner
from fidelio.runtime.wakes.worker import Worker
from fidelio.sandbox.model import ActionResult, SandboxSpec
from tests.runtime.support import KEYS, FakeSandboxes
from tests.runtime.wakes.support import say, use

EFFECTS = "effects"
# A message, and not what the notes of the runtime quote from others.
_MESSAGE = re.compile(r"Write (token-[\w-]+)\.")
# A session comes back later once, at its beginning.
_SHORT = 4
_LATER = {"outcome": "sleep", "queuedWakes": [{"reason": "later", "delaySeconds": 1}]}


def echo(request: ModelRequest) -> ModelReply:
    """Write the tokens of the newest messages, one call for each; then say so. A `later` token asks for another wake."""
    newest = request.messages[-1].content
    if any(isinstance(block, ToolResultBlock) for block in newest):
        is_later = any(isinstance(block, TextBlock) and "token-later" in block.text for block in request.messages[0].content)
        return say("Written.", _LATER if is_later and len(request.messages) < _SHORT else {"outcome": "sleep"})
    texts = [_MESSAGE.fullmatch(block.text) for block in newest if isinstance(block, TextBlock)]
    tokens = [found[1] for found in texts if found is not None]
    if not tokens:
        return say("Nothing to write.", {"outcome": "sleep"})
    return use(*(("write", {"path": "tokens.txt", "content": token}) for token in tokens))


class CountingSandboxes(FakeSandboxes):
    """Sandboxes whose effects are lines of a file. A line is appended as a whole, whatever other processes write."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self._file = home / EFFECTS

    async def call(
        self, spec: SandboxSpec, action: str, arguments: Mapping[str, Any], *, timeout: float = 60.0
    ) -> ActionResult:
        assert (action, timeout > 0) == ("write_text", True)
        await self.start(spec)
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{arguments['content']}\n".encode())
        finally:
            os.close(descriptor)
        # Others get a turn while the effect happens.
        await asyncio.sleep(0)
        return ActionResult(True, {"path": arguments["path"], "bytes": len(arguments["content"])})


def make_context(ledger: Ledger, home: Home) -> RuntimeContext:
    ports = RuntimePorts(models=Providers({"scripted": ScriptedProvider(echo)}))
    return RuntimeContext(ledger, now_ms, home, CountingSandboxes(home.path), lambda: KEYS, ports)


async def run_worker(home: Home, *, concurrency: int = 4) -> None:
    """Carry out wakes until it is cancelled."""
    async with await open_ledger(str(home.ledger)) as ledger:
        await Worker(WakeRunner(make_context(ledger, home)), concurrency=concurrency).run()


if __name__ == "__main__":
    asyncio.run(run_worker(Home(Path(sys.argv[1]))))
