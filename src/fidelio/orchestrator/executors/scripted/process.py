"""A scripted agent as a program: `python -m fidelio.orchestrator.executors.scripted.process`, for whoever wants one to kill."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import msgspec

from fidelio.errors import ExecutorFailure, FidelioError
from fidelio.orchestrator.executors import line_protocol as lines
from fidelio.orchestrator.executors.contract import Question, Reply
from fidelio.orchestrator.executors.scripted.player import Scene, play
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.table import ProcessIdentity


class PrintingReporter:
    """Tells by printing, and asks by printing and reading."""

    leaving = False

    async def process(self, identity: ProcessIdentity) -> None:
        """Whoever has started us knows."""

    async def conversation(self, name: str) -> None:
        """Whoever has started us has chosen it."""

    async def output(self, size: int) -> None:
        """Whoever reads counts."""

    async def said(self, text: str) -> None:
        lines.show(lines.Said(text))

    async def called(self, call: str, tool: str, arguments: Any = None) -> None:
        lines.show(lines.Called(call, tool, arguments))

    async def returned(self, call: str, *, ok: bool, text: str = "") -> None:
        lines.show(lines.Returned(call, ok, text))

    async def used(self, usage: Usage) -> None:
        lines.show(lines.Used(usage))

    async def ask(self, question: Question) -> Reply:
        lines.show(lines.Asked(question))
        while True:
            line = await asyncio.to_thread(sys.stdin.buffer.readline)
            if not line:
                raise ExecutorFailure("Nobody can answer any more.", reason="script")
            answer = msgspec.json.decode(line, type=lines.Answer)
            if answer.key == question.key:
                return Reply(answer.option, answer.text)


async def main() -> None:
    scene = msgspec.json.decode(sys.stdin.buffer.readline(), type=Scene)
    try:
        done = await play(scene, PrintingReporter(), crash=os._exit, environment=os.environ)
    except ExecutorFailure as error:
        lines.show(lines.Failed(error.sentence, error.reason, error.partial, error.remedy))
    except FidelioError as error:
        lines.show(lines.Failed(error.sentence, error.code, "", error.remedy))
    else:
        lines.show(lines.Ended(done.text, done.data))


if __name__ == "__main__":
    asyncio.run(main())
