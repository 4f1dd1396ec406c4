"""Agents of our own that run as a Python process: how one is started, and how what it prints is passed on."""

from __future__ import annotations

import sys
from typing import Any

from fidelio.errors import ExecutorFailure
from fidelio.orchestrator.executors import own_lines as lines
from fidelio.orchestrator.executors.beside import beside
from fidelio.orchestrator.executors.contract import Finished, Question, Teller
from fidelio.orchestrator.processes import AgentProcess


def own_program(module: str) -> list[str]:
    """The command for one of our modules. `-P`: a module of the project must not be taken for one of ours."""
    return [sys.executable, "-P", "-m", f"fidelio.orchestrator.executors.{module}"]


async def pass_on_all(process: AgentProcess, tell: Teller) -> Finished:
    """Passes on what the process prints, until it has printed its end."""
    partial = ""
    async with beside() as going_on:
        async for text in process.lines():
            line = lines.decode(text)
            if isinstance(line, lines.Said):
                partial = line.text
            if isinstance(line, lines.Ended):
                return Finished(text=line.text, data=line.data)
            if isinstance(line, lines.Failed):
                raise ExecutorFailure(line.sentence, remedy=line.remedy, reason=line.reason, partial=line.partial)
            if isinstance(line, lines.Asked):
                # Beside, so that somebody notices when the process dies while people think.
                going_on.start(_pass_question(line.question, process, tell))
            else:
                await _pass_on(line, tell)
        raise process.failure(await process.ended(), partial=partial)


async def _pass_question(question: Question, process: AgentProcess, tell: Teller) -> None:
    reply = await tell.ask(question)
    await process.write(lines.encode(lines.Answer(question.key, reply.option, reply.text)))


async def _pass_on(line: Any, tell: Teller) -> None:
    match line:
        case lines.Said(text=text):
            await tell.said(text)
        case lines.Called(call=call, tool=tool, arguments=arguments):
            await tell.called(call, tool, arguments)
        case lines.Returned(call=call, ok=ok, text=text):
            await tell.returned(call, ok=ok, text=text)
        case lines.Used(usage=usage):
            await tell.used(usage)
        case _:
            pass
