"""JSON lines between the host and an agent of this package that runs as a process (`scripted`, `local-model`).

The first line of the input is the task of the process; each line after that answers a question. A reader that starts over reads
all output again from the beginning, so an answer may be sent twice: it carries the key of its question, and the process ignores
the second.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from fidelio.errors import ExecutorFailure
from fidelio.orchestrator.executors.common import background_tasks
from fidelio.orchestrator.executors.contract import AgentQuestion, Reporter, Turn, TurnResult, process_options
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.spooled import AgentProcess, adopt, spawn
from fidelio.processes.table import ProcessIdentity


class MessageLine(msgspec.Struct, tag="said"):
    """Output: a message of the agent."""

    text: str


class ToolCallLine(msgspec.Struct, tag="called"):
    """Output: a tool call."""

    call: str
    tool: str
    arguments: Any = None


class ToolResultLine(msgspec.Struct, tag="returned"):
    """Output: the result of a tool call."""

    call: str
    ok: bool
    text: str = ""


class UsageLine(msgspec.Struct, tag="used"):
    """Output: the usage of the turn so far."""

    usage: Usage


class QuestionLine(msgspec.Struct, tag="asked"):
    """Output: a question; the agent waits for the line that answers it."""

    question: AgentQuestion


class ResultLine(msgspec.Struct, tag="ended"):
    """Output: the result of the turn."""

    text: str
    data: Any = None


class FailureLine(msgspec.Struct, tag="failed"):
    """Output: why the turn failed."""

    sentence: str
    reason: str
    partial: str = ""
    remedy: str = ""


class AnswerLine(msgspec.Struct):
    """Input: the answer to a question."""

    key: str
    option: str = ""
    text: str = ""


Line = MessageLine | ToolCallLine | ToolResultLine | UsageLine | QuestionLine | ResultLine | FailureLine
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def print_line(line: Line) -> None:
    """Print a line and flush, because the host waits for it."""
    sys.stdout.buffer.write(encode_line(line))
    sys.stdout.buffer.flush()


def encode_line(line: msgspec.Struct) -> bytes:
    return msgspec.json.encode(line) + b"\n"


async def run_module(module: str, task: msgspec.Struct, turn: Turn, reporter: Reporter, *, asks: bool = False) -> TurnResult:
    """Run a module of this package as the process of a turn. `asks`: it may ask questions, so its input stays open."""
    # `-P`: a module in the project directory must not shadow it.
    program = [sys.executable, "-P", "-m", f"fidelio.orchestrator.executors.{module}"]
    async with await spawn(program, process_options(turn, reporter), stdin=encode_line(task), queue=asks) as process:
        return await _relay_lines(process, reporter)


async def follow_adopted(turn: Turn, identity: ProcessIdentity, reporter: Reporter) -> TurnResult:
    async with await adopt(identity, process_options(turn, reporter)) as process:
        return await _relay_lines(process, reporter)


async def _relay_lines(process: AgentProcess, reporter: Reporter) -> TurnResult:
    """Report every line of the process, until its result or failure."""
    partial = ""
    async with background_tasks() as tasks:
        async for text in process.lines():
            line = _decode_line(text)
            if isinstance(line, MessageLine):
                partial = line.text
            if isinstance(line, ResultLine):
                return TurnResult(text=line.text, data=line.data)
            if isinstance(line, FailureLine):
                raise ExecutorFailure(line.sentence, remedy=line.remedy, reason=line.reason, partial=line.partial)
            if isinstance(line, QuestionLine):
                # In the background, so that the death of the process is noticed while the question waits for a person.
                tasks.start(_relay_question(line.question, process, reporter))
            else:
                await relay_line(line, reporter)
        raise process.failure(await process.wait_for_exit(), partial=partial)


def _decode_line(text: str) -> Line | None:
    """Decode a line of output; None for any other text, such as a warning that a library has printed."""
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError:
        return None


async def _relay_question(question: AgentQuestion, process: AgentProcess, reporter: Reporter) -> None:
    reply = await reporter.ask(question)
    await process.write(encode_line(AnswerLine(question.key, reply.option, reply.text)))


async def relay_line(line: Line | None, reporter: Reporter) -> None:
    """Report a line that is neither a question nor the end of the turn."""
    match line:
        case MessageLine(text=text):
            await reporter.report_message(text)
        case ToolCallLine(call=call, tool=tool, arguments=arguments):
            await reporter.report_tool_call(call, tool, arguments)
        case ToolResultLine(call=call, ok=ok, text=text):
            await reporter.report_tool_result(call, ok=ok, text=text)
        case UsageLine(usage=usage):
            await reporter.report_usage(usage)
        case _:
            pass
