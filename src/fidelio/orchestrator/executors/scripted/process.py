"""A scripted agent as a program: `python -m fidelio.orchestrator.executors.scripted.process`, for whoever wants one to kill."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import msgspec

from fidelio.errors import ExecutorFailure, FidelioError
from fidelio.orchestrator.executors import line_protocol as lines
from fidelio.orchestrator.executors.contract import AgentQuestion, Reply
from fidelio.orchestrator.executors.scripted.player import ScriptedTurn, play_turn
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.table import ProcessIdentity


class PrintingReporter:
    """Tells by printing, and asks by printing and reading."""

    is_detaching = False

    async def report_process(self, identity: ProcessIdentity) -> None:
        """Whoever has started us knows."""

    async def report_conversation(self, name: str) -> None:
        """Whoever has started us has chosen it."""

    async def report_output(self, size: int) -> None:
        """Whoever reads counts."""

    async def report_message(self, text: str) -> None:
        lines.print_line(lines.MessageLine(text))

    async def report_tool_call(self, call: str, tool: str, arguments: Any = None) -> None:
        lines.print_line(lines.ToolCallLine(call, tool, arguments))

    async def report_tool_result(self, call: str, *, ok: bool, text: str = "") -> None:
        lines.print_line(lines.ToolResultLine(call, ok, text))

    async def report_usage(self, usage: Usage) -> None:
        lines.print_line(lines.UsageLine(usage))

    async def ask(self, question: AgentQuestion) -> Reply:
        lines.print_line(lines.QuestionLine(question))
        while True:
            line = await asyncio.to_thread(sys.stdin.buffer.readline)
            if not line:
                raise ExecutorFailure("Nobody can answer any more.", reason="script")
            answer = msgspec.json.decode(line, type=lines.AnswerLine)
            if answer.key == question.key:
                return Reply(answer.option, answer.text)


async def main() -> None:
    scene = msgspec.json.decode(sys.stdin.buffer.readline(), type=ScriptedTurn)
    try:
        done = await play_turn(scene, PrintingReporter(), crash=os._exit, environment=os.environ)
    except ExecutorFailure as error:
        lines.print_line(lines.FailureLine(error.sentence, error.reason, error.partial, error.remedy))
    except FidelioError as error:
        lines.print_line(lines.FailureLine(error.sentence, error.code, "", error.remedy))
    else:
        lines.print_line(lines.ResultLine(done.text, done.data))


if __name__ == "__main__":
    asyncio.run(main())
