"""Codex as a command: `codex exec --json` does one turn and ends. Nobody can be asked on the way.

Its output is a file of the run, so a process that has outlived its watcher is read from the beginning, as if nothing had been.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from fidelio.errors import ConversationLost, ExecutorFailure
from fidelio.orchestrator.executors.codex.home import api_key, prepare, spent_before
from fidelio.orchestrator.executors.codex.items import Account, Count, read, read_line
from fidelio.orchestrator.executors.codex.results import NO_THREAD, finished, lost
from fidelio.orchestrator.executors.contract import Finished, Reporter, Turn, process_options
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.spooled import AgentProcess, adopt, spawn
from fidelio.processes.table import ProcessIdentity

_BEFORE, _SCHEMA = "codex-spent-before.json", "codex-schema.json"


async def run(turn: Turn, reporter: Reporter) -> Finished:
    home = prepare(turn, asks=False)
    turn.spool.mkdir(mode=0o700, parents=True, exist_ok=True)
    before = spent_before(home, turn.conversation) if turn.conversation else Usage()
    (turn.spool / _BEFORE).write_bytes(msgspec.json.encode(before))
    key = api_key(home, turn.environment)
    environment = {"CODEX_HOME": str(home), **({"CODEX_API_KEY": key} if key else {})}
    process = await spawn(
        list(_command(turn)), process_options(turn, reporter), stdin=turn.prompt.encode(), environment=environment
    )
    return await _watch(process, turn, reporter)


async def go_on(turn: Turn, identity: ProcessIdentity, reporter: Reporter) -> Finished:
    return await _watch(await adopt(identity, process_options(turn, reporter)), turn, reporter)


def _command(turn: Turn) -> Iterator[str]:
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


async def _watch(process: AgentProcess, turn: Turn, reporter: Reporter) -> Finished:
    async with process:
        account = _Events(turn, reporter)
        async for line in process.lines():
            await account.take(line)
        end = await process.wait_for_exit()
        if not end.ok and turn.conversation and NO_THREAD in process.stderr_tail():
            raise lost(turn.conversation)
        if account.failure:
            raise ExecutorFailure(account.failure, reason="turn-failed", partial=account.said)
        if not end.ok or not account.is_over:
            raise process.failure(end, partial=account.said)
        return finished(account.said, turn.blueprint)


class _Spent(msgspec.Struct, frozen=True):
    input_tokens: Count
    output_tokens: Count


class _Events:
    """The events of one turn."""

    def __init__(self, turn: Turn, reporter: Reporter) -> None:
        self.failure = ""
        self.is_over = False
        self._turn, self._reporter = turn, reporter
        self._account = Account(reporter)
        self._before = _read_before(turn.spool / _BEFORE)

    @property
    def said(self) -> str:
        return self._account.last

    async def take(self, line: str) -> None:
        match read_line(line):
            case {"type": "thread.started", "thread_id": str(thread)}:
                await self._begun(thread)
            case {"type": "item.started" | "item.updated", "item": item}:
                await self._account.started(item)
            case {"type": "item.completed", "item": item}:
                await self._account.completed(item)
                await self._reporter.used(Usage(turns=self._account.steps))
            case {"type": "turn.completed", "usage": usage}:
                self.is_over = True
                await self._reporter.used(self._since(read(usage, _Spent, "turn.completed")))
            case {"type": "turn.failed", "error": {"message": message}}:
                self.failure = str(message)

    async def _begun(self, thread: str) -> None:
        # Codex takes an id that it does not understand for a name, and begins something new when it finds none.
        if self._turn.conversation not in (None, thread):
            raise ConversationLost(f"Codex began another conversation instead of {self._turn.conversation}.")
        await self._reporter.conversation(thread)

    def _since(self, usage: _Spent) -> Usage:
        """Of the totals of the whole conversation, those of this turn."""
        return Usage(
            turns=self._account.steps,
            input_tokens=max(0, usage.input_tokens - self._before.input_tokens),
            output_tokens=max(0, usage.output_tokens - self._before.output_tokens),
        )


def _read_before(file: Path) -> Usage:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Usage)
    except (OSError, msgspec.DecodeError):
        return Usage()
