"""The executor `scripted`: a deterministic agent without a model, for trials, demonstrations and tests.

It follows a script and calls tools over real MCP; `scripted.script` documents the format. Without a script it echoes the
prompt. Options: `script` (a mapping, a file next to the blueprint, or `workflow-worker`) and `process` (true: the script runs
in a process of its own, which can be killed and adopted). A command that a person may detach from always uses a process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import msgspec

from fidelio.errors import ConversationLost, ExecutorFailure, UsageProblem
from fidelio.ledger.long_text import json_text
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors import line_protocol as lines
from fidelio.orchestrator.executors.contract import (
    AgentQuestion,
    Availability,
    Reply,
    Reporter,
    Turn,
    TurnResult,
)
from fidelio.orchestrator.executors.scripted.player import PlayerHooks, ScriptedTurn, play_turn
from fidelio.orchestrator.executors.scripted.script import load_script, parse_script
from fidelio.processes.ending import end_processes
from fidelio.processes.spooled import missing_support
from fidelio.processes.table import AGENT_MARKER, ProcessIdentity

_OPTIONS = frozenset({"script", "process"})


class ScriptedExecutor:
    """Play the script of a blueprint."""

    name = "scripted"

    async def availability(self, _: Mapping[str, str] | None = None, /) -> Availability:
        return Availability(works=True, why="Built in; plays a script and needs no model.")

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:
        unknown = sorted(set(blueprint.options) - _OPTIONS)
        found = [f"The executor scripted has no option {name}; it has process and script." for name in unknown]
        if blueprint.options.get("process") and (why := missing_support()):
            found.append(why)
        try:
            parse_script(load_script(blueprint))
        except UsageProblem as problem:
            found.append(str(problem))
        return tuple(found)

    async def carry_out(self, turn: Turn, reporter: Reporter) -> TurnResult:
        scripted = _build_turn(turn)
        await reporter.report_conversation(f"{_parse_conversation(turn)[0]}.{scripted.number}")
        if turn.blueprint.options.get("process") or (turn.outlives_host and not missing_support()):
            return await lines.run_module("scripted.process", scripted, turn, reporter, asks=True)
        return await _play_in_host(scripted, turn, reporter)

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: Reporter) -> TurnResult | None:
        # A turn that was played in its host has no spool.
        return await lines.follow_adopted(turn, process, reporter) if turn.spool.is_dir() else None


def _build_turn(turn: Turn) -> ScriptedTurn:
    return ScriptedTurn(
        script=load_script(turn.blueprint),
        number=_parse_conversation(turn)[1] + 1,
        prompt=turn.prompt,
        run=turn.run,
        session=turn.session,
        directory=str(turn.directory),
        servers=turn.blueprint.mcp_servers,
    )


def _parse_conversation(turn: Turn) -> tuple[str, int]:
    """The id of the conversation and the number of its last turn. The id carries the number: nothing else is stored."""
    if turn.conversation is None:
        return turn.fresh, 0
    name, _, number = turn.conversation.rpartition(".")
    if not name or not number.isdecimal():
        raise ConversationLost(f"There is no scripted conversation {turn.conversation}.", reason="conversation-lost")
    return name, int(number)


async def _play_in_host(scripted: ScriptedTurn, turn: Turn, reporter: Reporter) -> TurnResult:
    environment: Mapping[str, str] = {**turn.environment, AGENT_MARKER: turn.run}

    async def count(line: msgspec.Struct) -> None:
        # The bytes that a process would have printed. `encode_line` would fail here: a tool result may hold a lone surrogate.
        await reporter.report_output(len(json_text(line).encode()) + 1)

    async def report(line: lines.Line) -> None:
        await count(line)
        await lines.relay_line(line, reporter)

    async def ask(question: AgentQuestion) -> Reply:
        await count(lines.QuestionLine(question))
        return await reporter.ask(question)

    try:
        finished = await play_turn(scripted, PlayerHooks(report, ask, _raise_crash), environment)
        await count(lines.ResultLine(finished.text, finished.data))
        return finished
    finally:
        # A script leaves no process except MCP servers that it has started.
        if any(server.command for server in scripted.servers.values()):
            await end_processes(turn.run, grace=1.0)


def _raise_crash(code: int) -> NoReturn:
    raise ExecutorFailure(f"The agent ended with exit {code}. It said nothing about why.", reason=f"exit.{code}")
