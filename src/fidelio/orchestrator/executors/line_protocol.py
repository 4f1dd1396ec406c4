"""What an agent of our own prints when it runs as a process, one JSON object a line, and what it is given.

The first line of its input is its task; each line after that answers a question. A reader that starts over is told everything
again from the beginning, so an answer may come twice: it names its question, and the second is passed over.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from fidelio.errors import ExecutorFailure
from fidelio.orchestrator.executors.background import background_tasks
from fidelio.orchestrator.executors.contract import Finished, Question, Reporter
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.spooled import AgentProcess


class Said(msgspec.Struct, tag="said"):
    """A message."""

    text: str


class Called(msgspec.Struct, tag="called"):
    """A tool is used."""

    call: str
    tool: str
    arguments: Any = None


class Returned(msgspec.Struct, tag="returned"):
    """What came of it."""

    call: str
    ok: bool
    text: str = ""


class Used(msgspec.Struct, tag="used"):
    """The totals so far."""

    usage: Usage


class Asked(msgspec.Struct, tag="asked"):
    """A question; the agent waits for the line that answers it."""

    question: Question


class Ended(msgspec.Struct, tag="ended"):
    """The result."""

    text: str
    data: Any = None


class Failed(msgspec.Struct, tag="failed"):
    """Why there is none."""

    sentence: str
    reason: str
    partial: str = ""
    remedy: str = ""


class Answer(msgspec.Struct):
    """A line of the input."""

    key: str
    option: str = ""
    text: str = ""


Line = Said | Called | Returned | Used | Asked | Ended | Failed
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def show(line: Line) -> None:
    """Prints it at once: whoever reads waits for it."""
    sys.stdout.buffer.write(encode(line))
    sys.stdout.buffer.flush()


def encode(line: msgspec.Struct) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def decode(text: str) -> Line | None:
    """None for what is no line of ours, such as a warning that a library has printed."""
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError:
        return None


def own_program(module: str) -> list[str]:
    """The command for one of our modules. `-P`: a module of the project must not be taken for one of ours."""
    return [sys.executable, "-P", "-m", f"fidelio.orchestrator.executors.{module}"]


async def pass_on_all(process: AgentProcess, reporter: Reporter) -> Finished:
    """Passes on what the process prints, until it has printed its end."""
    partial = ""
    async with background_tasks() as going_on:
        async for text in process.lines():
            line = decode(text)
            if isinstance(line, Said):
                partial = line.text
            if isinstance(line, Ended):
                return Finished(text=line.text, data=line.data)
            if isinstance(line, Failed):
                raise ExecutorFailure(line.sentence, remedy=line.remedy, reason=line.reason, partial=line.partial)
            if isinstance(line, Asked):
                # Beside, so that somebody notices when the process dies while people think.
                going_on.start(_pass_question(line.question, process, reporter))
            else:
                await _pass_on(line, reporter)
        raise process.failure(await process.wait_for_exit(), partial=partial)


async def _pass_question(question: Question, process: AgentProcess, reporter: Reporter) -> None:
    reply = await reporter.ask(question)
    await process.write(encode(Answer(question.key, reply.option, reply.text)))


async def _pass_on(line: Any, reporter: Reporter) -> None:
    match line:
        case Said(text=text):
            await reporter.said(text)
        case Called(call=call, tool=tool, arguments=arguments):
            await reporter.called(call, tool, arguments)
        case Returned(call=call, ok=ok, text=text):
            await reporter.returned(call, ok=ok, text=text)
        case Used(usage=usage):
            await reporter.used(usage)
        case _:
            pass
