"""A runtime service with a double of the sandboxes and a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fidelio.home import Home
from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.runtime.calls import Finished, WaitingForPerson
from fidelio.runtime.service import RuntimeService, SessionRequest
from fidelio.runtime.tools.model import RuntimeContext
from tests.runtime.support import KEYS, FakeSandboxes
from tests.support.ledgers import MovingClock

DONE = {
    "exitCode": 0,
    "signal": None,
    "timedOut": False,
    "stdout": "ran\n",
    "stderr": "",
    "durationMs": 1,
    "status": "completed",
}


class ServiceSession:
    """A session and its service."""

    def __init__(self, service: RuntimeService, session: str, sandboxes: FakeSandboxes, clock: MovingClock) -> None:
        self.service, self.id, self.sandboxes, self.clock = service, session, sandboxes, clock
        self.ledger = service.context.ledger
        self.inbox = Inbox(self.ledger, clock=clock)

    async def call(self, tool: str, *, waits: bool = True, **arguments: Any) -> Finished | WaitingForPerson:
        return await self.service.call(self.id, tool, arguments, waits=waits)

    async def repeat(self, tool: str, **arguments: Any) -> Finished | WaitingForPerson:
        """A call as a client makes it again: it waits for an open request."""
        return await self.service.call(self.id, tool, arguments)

    async def finish(self, tool: str, **arguments: Any) -> Finished:
        outcome = await self.call(tool, **arguments)
        assert isinstance(outcome, Finished), outcome
        return outcome

    async def ask(self, tool: str, **arguments: Any) -> str:
        """The request that a call opens, or still waits for."""
        outcome = await self.call(tool, waits=False, **arguments)
        assert isinstance(outcome, WaitingForPerson), outcome
        return outcome.request

    async def answer(self, request: str, option: str, text: str = "", channel: str = "cli") -> None:
        await self.inbox.answer(request, option, text=text, by="person:ada", channel=channel)

    async def types(self) -> list[str]:
        return [event.type for event in await self.ledger.events(self.id)]

    @property
    def ran(self) -> list[str]:
        """The commands that really reached the sandbox."""
        return [arguments["command"] for action, arguments in self.sandboxes.calls if action == "run_shell"]


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[ServiceSession]:
    replies = {
        "run_shell": lambda arguments: {**DONE, "commandId": arguments.get("commandId")},
        "read_text": lambda arguments: {
            "path": arguments["path"],
            "content": "text",
            "totalLineCount": 1,
            "selectedLineCount": 1,
        },
        "write_text": lambda arguments: {"path": arguments["path"], "bytes": len(arguments["content"])},
        "list_dir": lambda arguments: {"path": arguments["path"], "entries": [], "truncated": False},
        "stat": lambda arguments: {"path": arguments["path"], "kind": "directory"},
    }
    sandboxes, clock, home = FakeSandboxes(replies), MovingClock(), Home(tmp_path / "home").ensure()
    async with await open_ledger(home.ledger) as ledger:
        service = RuntimeService(RuntimeContext(ledger, clock, home, sandboxes, lambda: KEYS))
        opened = await service.open_session(SessionRequest(project=str(tmp_path)))
        yield ServiceSession(service, opened, sandboxes, clock)
