"""Codex as a command: `codex exec --json` carries out a turn and ends. It cannot ask anything.

Its output is a file in the spool, so a host that adopts the process reads it from the beginning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from fidelio.errors import ConversationLost, ExecutorFailure
from fidelio.orchestrator.executors.codex.home import find_api_key, prepare_home, read_previous_usage
from fidelio.orchestrator.executors.codex.messages import (
    NO_THREAD,
    Count,
    ItemReporter,
    conversation_lost,
    convert_message,
    parse_line,
)
from fidelio.orchestrator.executors.contract import Reporter, Turn, TurnResult, process_options
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.spooled import AgentProcess, adopt, spawn
from fidelio.processes.table import ProcessIdentity

_PREVIOUS_USAGE, _SCHEMA = "codex-spent-before.json", "codex-schema.json"


async def run(turn: Turn, reporter: Reporter) -> TurnResult:
    home = prepare_home(turn, asks=False)
    turn.spool.mkdir(mode=0o700, parents=True, exist_ok=True)
    previous = read_previous_usage(home, turn.conversation) if turn.conversation else Usage()
    (turn.spool / _PREVIOUS_USAGE).write_bytes(msgspec.json.encode(previous))
    key = find_api_key(home, turn.environment)
    environment = {"CODEX_HOME": str(home), **({"CODEX_API_KEY": key} if key else {})}
    process = await spawn(
        list(_build_command(turn)), process_options(turn, reporter), stdin=turn.prompt.encode(), environment=environment
    )
    return await _follow(process, turn, reporter)


async def follow_adopted(turn: Turn, identity: ProcessIdentity, reporter: Reporter) -> TurnResult:
    return await _follow(await adopt(identity, process_options(turn, reporter)), turn, reporter)


def _build_command(turn: Turn) -> Iterator[str]:
    yield from ("codex", "exec")
    if turn.conversation:
        yield "resume"
    yield from ("--json", "--skip-git-repo-check")
    if turn.blueprint.output_schema is not None:
        schema = turn.spool / _SCHEMA
        schema.write_text(json.dumps(turn.blueprint.output_schema), "utf-8")
        yield from ("--output-schema", str(schema))
    if turn.conversation:
        yield turn.conversation
    yield "-"


async def _follow(process: AgentProcess, turn: Turn, reporter: Reporter) -> TurnResult:
    async with process:
        events = _EventReader(turn, reporter)
        async for line in process.lines():
            await events.read(line)
        end = await process.wait_for_exit()
        if not end.ok and turn.conversation and NO_THREAD in process.stderr_tail():
            raise conversation_lost(turn.conversation)
        if events.failure:
            raise ExecutorFailure(events.failure, reason="turn-failed", partial=events.last_message)
        if not end.ok or not events.is_completed:
            raise process.failure(end, partial=events.last_message)
        return TurnResult(text=events.last_message)


class _ThreadUsage(msgspec.Struct, frozen=True):
    input_tokens: Count
    output_tokens: Count


class _EventReader:
    """Read the events of a turn and report them."""

    def __init__(self, turn: Turn, reporter: Reporter) -> None:
        self.failure = ""
        self.is_completed = False
        self._turn, self._reporter = turn, reporter
        self._items = ItemReporter(reporter)
        self._previous = _read_previous_usage(turn.spool / _PREVIOUS_USAGE)

    @property
    def last_message(self) -> str:
        return self._items.last_message

    async def read(self, line: str) -> None:
        match parse_line(line):
            case {"type": "thread.started", "thread_id": str(thread)}:
                await self._start_thread(thread)
            case {"type": "item.started" | "item.updated", "item": item}:
                await self._items.report_started(item)
            case {"type": "item.completed", "item": item}:
                await self._items.report_completed(item)
                await self._reporter.report_usage(Usage(turns=self._items.steps))
            case {"type": "turn.completed", "usage": usage}:
                self.is_completed = True
                await self._reporter.report_usage(self._turn_usage(convert_message(usage, _ThreadUsage, "turn.completed")))
            case {"type": "turn.failed", "error": {"message": message}}:
                self.failure = str(message)

    async def _start_thread(self, thread: str) -> None:
        # Codex reads an unknown id as the name of a conversation, and starts a new one if there is no such name.
        if self._turn.conversation not in (None, thread):
            raise ConversationLost(f"Codex started a new conversation instead of {self._turn.conversation}.")
        await self._reporter.report_conversation(thread)

    def _turn_usage(self, usage: _ThreadUsage) -> Usage:
        """The usage of this turn: the totals of the conversation minus those before the turn."""
        return Usage(
            turns=self._items.steps,
            input_tokens=max(0, usage.input_tokens - self._previous.input_tokens),
            output_tokens=max(0, usage.output_tokens - self._previous.output_tokens),
        )


def _read_previous_usage(file: Path) -> Usage:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Usage)
    except (OSError, msgspec.DecodeError):
        return Usage()
