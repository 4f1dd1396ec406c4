"""Someone to tell: keeps what an executor says, and answers what it asks."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fidelio.errors import LimitReached
from fidelio.orchestrator.blueprints.model import DEFAULT_BLUEPRINT, Blueprint
from fidelio.orchestrator.executors.contract import Question, Reply, Turn
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.table import ProcessIdentity

SECONDS = 60.0


class Recording:
    """A reporter that keeps everything in memory. `replies` are given in order; whoever asks more waits for ever."""

    def __init__(self, *replies: Reply, most_bytes: int | None = None) -> None:
        self.replies = list(replies)
        self.most_bytes = most_bytes
        self.processes: list[ProcessIdentity] = []
        self.conversations: list[str] = []
        self.texts: list[str] = []
        self.calls: list[tuple[str, str, Any]] = []
        self.returns: list[tuple[str, bool, str]] = []
        self.usages: list[Usage] = []
        self.questions: list[Question] = []
        self.bytes = 0
        self.leaving = False
        self.on_process: Callable[[ProcessIdentity], None] | None = None
        self._news = asyncio.Event()

    async def until(self, happened: Callable[[], object]) -> None:
        """Returns as soon as something that was told makes it true."""
        while not happened():
            self._news.clear()
            await self._news.wait()

    async def process(self, identity: ProcessIdentity) -> None:
        self.processes.append(identity)
        self._news.set()
        if self.on_process is not None:
            self.on_process(identity)

    async def conversation(self, name: str) -> None:
        self.conversations.append(name)
        self._news.set()

    async def said(self, text: str) -> None:
        self.texts.append(text)
        self._news.set()

    async def called(self, call: str, tool: str, arguments: Any = None) -> None:
        self.calls.append((call, tool, arguments))
        self._news.set()

    async def returned(self, call: str, *, ok: bool, text: str = "") -> None:
        self.returns.append((call, ok, text))
        self._news.set()

    async def used(self, usage: Usage) -> None:
        self.usages.append(usage)
        self._news.set()

    async def output(self, size: int) -> None:
        self.bytes += size
        self._news.set()
        if self.most_bytes is not None and self.bytes > self.most_bytes:
            raise LimitReached("Too much output.", reason="limit.output_bytes")

    async def ask(self, question: Question) -> Reply:
        self.questions.append(question)
        self._news.set()
        if not self.replies:
            await asyncio.Event().wait()
        return self.replies.pop(0)


def make_turn(directory: Path, prompt: str = "Hello", *, blueprint: Blueprint = DEFAULT_BLUEPRINT, **changes: Any) -> Turn:
    """A turn with nothing special about it. `directory` holds the project and the spool."""
    project = directory / "project"
    project.mkdir(exist_ok=True)
    run = changes.pop("run", f"r_{os.getpid()}_{time.monotonic_ns()}")
    values = {
        "session": "s_test",
        "directory": project,
        "conversation": None,
        "fresh": "00000000-0000-4000-8000-000000000000",
        "spool": directory / "spool" / run,
        "environment": {"PATH": f"{Path(sys.executable).parent}:{os.defpath}", "LANG": "C.UTF-8"},
    }
    return Turn(run=run, prompt=prompt, blueprint=blueprint, **{**values, **changes})
