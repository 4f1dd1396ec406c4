"""Program of a scripted agent: `python -m fidelio.orchestrator.executors.scripted.process`, for runs that can be killed."""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec

from fidelio.errors import ExecutorFailure, FidelioError
from fidelio.orchestrator.executors import line_protocol as lines
from fidelio.orchestrator.executors.contract import AgentQuestion, Reply
from fidelio.orchestrator.executors.scripted.player import PlayerHooks, ScriptedTurn, play_turn


async def report(line: lines.Line) -> None:
    lines.print_line(line)


async def ask(question: AgentQuestion) -> Reply:
    """Print the question and read its answer."""
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
        done = await play_turn(turn, PlayerHooks(report, ask, crash=os._exit), os.environ)
    except ExecutorFailure as error:
        lines.print_line(lines.FailureLine(error.sentence, error.reason, error.partial, str(error.remedy)))
    except FidelioError as error:
        lines.print_line(lines.FailureLine(error.sentence, error.code, "", str(error.remedy)))
    else:
        lines.print_line(lines.ResultLine(done.text, done.data))


if __name__ == "__main__":
    asyncio.run(main())
