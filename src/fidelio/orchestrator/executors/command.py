"""The executor `command`: any program as an agent. The prompt is its standard input, what it prints is its result.

Options: `command`, a list of the program and its arguments; no shell reads them. `resume_command` is used instead when a
conversation is resumed; without it the turns are independent. `{conversation}` in an argument of either is replaced by the id
of the conversation, which this executor chooses. A program that ends with a status other than 0 has failed. What a program has
printed before it is stopped is recorded as a message.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from fidelio.errors import ExecutorFailure, FidelioError, LimitReached
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.common import parse_options, refuse_sandbox
from fidelio.orchestrator.executors.contract import Availability, Reporter, Turn, TurnResult, process_options
from fidelio.processes.spooled import AgentProcess, adopt, find_executable, missing_support, spawn
from fidelio.processes.table import ProcessIdentity

_PLACEHOLDER = "{conversation}"
_REMEDY = "Write a list such as [my-agent, --quiet]."


class CommandOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the executor `command` in a blueprint."""

    command: tuple[str, ...]
    resume_command: tuple[str, ...] = ()


class CommandExecutor:
    """Run the program that a blueprint names."""

    name = "command"

    async def availability(self, _: Mapping[str, str] | None = None, /) -> Availability:
        problem = missing_support()
        return Availability(works=not problem, why=problem or "Built in; runs the program that a blueprint names.")

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:
        found = []
        try:
            options = parse_options(self.name, blueprint.options, CommandOptions, _REMEDY)
        except ExecutorFailure as failure:
            found.append(str(failure))
        else:
            found += _missing_programs(options, blueprint)
        if blueprint.mcp_servers:
            found.append("The executor command cannot give MCP servers to its program; remove them from the blueprint.")
        return (*found, *refuse_sandbox(blueprint, "a program of the executor command runs on this machine as it is."))

    async def carry_out(self, turn: Turn, reporter: Reporter) -> TurnResult:
        conversation = turn.conversation or turn.fresh
        await reporter.report_conversation(conversation)
        options = parse_options(self.name, turn.blueprint.options, CommandOptions, _REMEDY)
        argv = _build_argv(options, conversation, resumes=turn.conversation is not None)
        async with await spawn(argv, process_options(turn, reporter), stdin=_build_prompt(turn)) as process:
            return await _read_result(process, reporter)

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: Reporter) -> TurnResult | None:
        async with await adopt(process, process_options(turn, reporter)) as adopted:
            return await _read_result(adopted, reporter)


def _missing_programs(options: CommandOptions, blueprint: Blueprint) -> Iterator[str]:
    if not any(options.command[:1]):
        yield f"The program in `command` has no name. {_REMEDY}"
    environment = {**os.environ, **blueprint.environment}
    for program in dict.fromkeys((*options.command[:1], *options.resume_command[:1])):
        # A path relative to the project, or one with a conversation id, is known only when a run begins.
        if program and _PLACEHOLDER not in program and (program.startswith("/") or "/" not in program):
            try:
                find_executable(program, Path("/"), environment)
            except ExecutorFailure as failure:
                yield str(failure)


def _build_argv(options: CommandOptions, conversation: str, *, resumes: bool) -> Sequence[str]:
    chosen = options.resume_command if resumes and options.resume_command else options.command
    return [argument.replace(_PLACEHOLDER, conversation) for argument in chosen]


def _build_prompt(turn: Turn) -> bytes:
    """Join system prompt and prompt, because a program has a single input."""
    texts = [text for text in (turn.blueprint.system_prompt, turn.prompt) if text]
    return "\n\n".join(texts).encode("utf-8", "replace")


async def _read_result(process: AgentProcess, reporter: Reporter) -> TurnResult:
    try:
        text = await process.text()
    except (asyncio.CancelledError, LimitReached):
        if not reporter.is_detaching:
            await _report_printed_text(process, reporter)
        raise
    exit_ = await process.wait_for_exit()
    if not exit_.ok:
        raise process.failure(exit_, partial=text)
    return TurnResult(text=text.removesuffix("\n"))


async def _report_printed_text(process: AgentProcess, reporter: Reporter) -> None:
    """Stop the program, then report all its output. An error of the report must not prevent the stop."""
    await process.stop()
    with suppress(FidelioError):
        if text := process.read_output():
            await reporter.report_message(text)
