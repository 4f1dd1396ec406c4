"""`command`: any program as an agent. Its prompt comes in on standard input, what it prints is its result.

Options: `command`, a list of the program and its arguments; no shell reads them. `resume_command` is used instead when a
conversation goes on; without it every turn stands alone. `{conversation}` in an argument of either is replaced by the id of the
conversation, which is ours to choose. A program that ends with a status other than 0 has failed. What one that is ended before
its time has printed until then is kept as something it said.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from fidelio.errors import ExecutorFailure, FidelioError, LimitReached
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.contract import Availability, Finished, Reporter, Turn, process_options
from fidelio.processes.spooled import AgentProcess, adopt, find_executable, missing_support, spawn
from fidelio.processes.table import ProcessIdentity

_PLACEHOLDER = "{conversation}"
_REMEDY = "Write a list such as [my-agent, --quiet]."


class CommandOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a blueprint says about its program."""

    command: tuple[str, ...]
    resume_command: tuple[str, ...] = ()


class CommandExecutor:
    """Runs programs."""

    name = "command"

    async def availability(self, _: Mapping[str, str] | None = None, /) -> Availability:
        problem = missing_support()
        return Availability(works=not problem, why=problem or "Built in; runs the program that a blueprint names.")

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:
        found = []
        try:
            options = _options(blueprint)
        except ExecutorFailure as failure:
            found.append(str(failure))
        else:
            found += _missing_programs(options, blueprint)
        if blueprint.mcp_servers:
            found.append("The executor command cannot give MCP servers to its program; remove them from the blueprint.")
        return tuple(found)

    async def carry_out(self, turn: Turn, reporter: Reporter) -> Finished:
        conversation = turn.conversation or turn.fresh
        await reporter.conversation(conversation)
        argv = _argv(_options(turn.blueprint), conversation, resumes=turn.conversation is not None)
        async with await spawn(argv, process_options(turn, reporter), stdin=_prompt(turn)) as process:
            return await _result(process, turn, reporter)

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: Reporter) -> Finished | None:
        async with await adopt(process, process_options(turn, reporter)) as adopted:
            return await _result(adopted, turn, reporter)


def _options(blueprint: Blueprint) -> CommandOptions:
    try:
        return msgspec.convert(dict(blueprint.options), CommandOptions)
    except msgspec.ValidationError as error:
        raise ExecutorFailure(
            f"The options of the executor command are not right: {error}.", reason="options", remedy=_REMEDY
        ) from error


def _missing_programs(options: CommandOptions, blueprint: Blueprint) -> Iterator[str]:
    if not any(options.command[:1]):
        yield f"The program in `command` has no name. {_REMEDY}"
    environment = {**os.environ, **blueprint.environment}
    for program in dict.fromkeys((*options.command[:1], *options.resume_command[:1])):
        # A path from the project on, or one with an id in it, is known only when a run begins.
        if program and _PLACEHOLDER not in program and (program.startswith("/") or "/" not in program):
            try:
                find_executable(program, Path("/"), environment)
            except ExecutorFailure as failure:
                yield str(failure)


def _argv(options: CommandOptions, conversation: str, *, resumes: bool) -> Sequence[str]:
    chosen = options.resume_command if resumes and options.resume_command else options.command
    return [argument.replace(_PLACEHOLDER, conversation) for argument in chosen]


def _prompt(turn: Turn) -> bytes:
    """A program knows only one text, so what an agent is told about itself stands in front of it."""
    parts = [part for part in (turn.blueprint.system_prompt, turn.prompt) if part]
    return "\n\n".join(parts).encode("utf-8", "replace")


async def _result(process: AgentProcess, turn: Turn, reporter: Reporter) -> Finished:
    try:
        text = await process.text()
    except (asyncio.CancelledError, LimitReached):
        if not reporter.leaving:
            await _keep_what_was_printed(process, reporter)
        raise
    exit_ = await process.wait_for_exit()
    if not exit_.ok:
        raise process.failure(exit_, partial=text)
    return Finished(text=text.removesuffix("\n"), data=_data(text) if turn.blueprint.output_schema is not None else None)


async def _keep_what_was_printed(process: AgentProcess, reporter: Reporter) -> None:
    """Ends the program first: its last words count, too. What cannot be kept does not keep it from ending."""
    await process.stop()
    with suppress(FidelioError):
        if text := process.read_output():
            await reporter.said(text)


def _data(text: str) -> Any:
    """None for what is no JSON; whoever checks the result against the schema says what is wrong with it."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
