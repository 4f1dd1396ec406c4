"""A reporter in memory that records what an executor reports and answers its questions."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fidelio.errors import LimitReached
from fidelio.ids import new_session_id, run_id
from fidelio.orchestrator.blueprints.model import DEFAULT_BLUEPRINT, Blueprint
from fidelio.orchestrator.executors.contract import AgentQuestion, Reply, Turn
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.table import ProcessIdentity

SECONDS = 60.0


class RecordingReporter:
    """Record everything in memory. `replies` are returned in order; a question without a reply waits for ever."""

    def __init__(self, *replies: Reply, most_bytes: int | None = None) -> None:
        self.replies = list(replies)
        self.most_bytes = most_bytes
        self.processes: list[ProcessIdentity] = []
        self.conversations: list[str] = []
        self.texts: list[str] = []
        self.calls: list[tuple[str, str, Any]] = []
        self.returns: list[tuple[str, bool, str]] = []
        self.usages: list[Usage] = []
        self.questions: list[AgentQuestion] = []
        self.bytes = 0
        self.proof = ""
        self.is_detaching = False
        self.on_process: Callable[[ProcessIdentity], None] | None = None
        self._changed = asyncio.Event()

    async def until(self, happened: Callable[[], object]) -> None:
        """Wait until a report makes `happened` true."""
        while not happened():
            self._changed.clear()
            await self._changed.wait()

    async def report_process(self, identity: ProcessIdentity, proof: str = "") -> None:
        self.processes.append(identity)
        self.proof = proof
        self._changed.set()
        if self.on_process is not None:
            self.on_process(identity)

    async def report_conversation(self, name: str) -> None:
        self.conversations.append(name)
        self._changed.set()

    async def report_message(self, text: str) -> None:
        self.texts.append(text)
        self._changed.set()

    async def report_tool_call(self, call: str, tool: str, arguments: Any = None) -> None:
        self.calls.append((call, tool, arguments))
        self._changed.set()

    async def report_tool_result(self, call: str, *, ok: bool, text: str = "") -> None:
        self.returns.append((call, ok, text))
        self._changed.set()

    async def report_usage(self, usage: Usage) -> None:
        self.usages.append(usage)
        self._changed.set()

    async def report_output(self, size: int) -> None:
        self.bytes += size
        self._changed.set()
        if self.most_bytes is not None and self.bytes > self.most_bytes:
            raise LimitReached("Too much output.", reason="limit.output_bytes")

    async def wait_for(self, request: str) -> None:
        raise AssertionError(f"no other session asks anything here: {request}")

    async def ask(self, question: AgentQuestion) -> Reply:
        self.questions.append(question)
        self._changed.set()
        if not self.replies:
            await asyncio.Event().wait()
        return self.replies.pop(0)


def make_turn(directory: Path, prompt: str = "Hello", *, blueprint: Blueprint = DEFAULT_BLUEPRINT, **changes: Any) -> Turn:
    """A turn with default values. `directory` holds the project and the spool."""
    project = directory / "project"
    project.mkdir(exist_ok=True)
    run = changes.pop("run", run_id(new_session_id(), 1))
    values = {
        "session": "s_test",
        "directory": project,
        "conversation": None,
        "fresh": "00000000-0000-4000-8000-000000000000",
        "spool": directory / "spool" / run,
        "environment": {"PATH": f"{Path(sys.executable).parent}:{os.defpath}", "LANG": "C.UTF-8"},
    }
    return Turn(run=run, prompt=prompt, blueprint=blueprint, **{**values, **changes})
