"""Program of a scripted agent: `python -m fidelio.orchestrator.executors.scripted.process`, for runs that can be killed."""

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
    """Report by printing lines, and ask by printing a line and reading its answer."""

    is_detaching = False

    async def report_process(self, identity: ProcessIdentity) -> None:
        """Do nothing: the host has started this process."""

    async def report_conversation(self, name: str) -> None:
        """Do nothing: the host has chosen the conversation."""

    async def report_output(self, size: int) -> None:
        """Do nothing: the host counts what it reads."""

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
                raise ExecutorFailure("The input was closed before the question was answered.", reason="script")
            answer = msgspec.json.decode(line, type=lines.AnswerLine)
            if answer.key == question.key:
                return Reply(answer.option, answer.text)


async def main() -> None:
    turn = msgspec.json.decode(sys.stdin.buffer.readline(), type=ScriptedTurn)
    try:
        done = await play_turn(turn, PrintingReporter(), crash=os._exit, environment=os.environ)
    except ExecutorFailure as error:
        lines.print_line(lines.FailureLine(error.sentence, error.reason, error.partial, str(error.remedy)))
    except FidelioError as error:
        lines.print_line(lines.FailureLine(error.sentence, error.code, "", str(error.remedy)))
    else:
        lines.print_line(lines.ResultLine(done.text, done.data))


if __name__ == "__main__":
    asyncio.run(main())
