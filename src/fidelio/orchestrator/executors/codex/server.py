"""Codex as a server for one turn: `codex app-server`, JSON lines in both directions.

This way Codex can ask. The conversation has its id before the prompt is sent, and what is spent is known while it is spent. The
lines lie in the spool of the run, so a server that has outlived its watcher is read again from the beginning; what it has asked
since, and nobody has answered, is then answered.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec

from fidelio import __version__
from fidelio.errors import ExecutorFailure
from fidelio.orchestrator.executors.background import BackgroundTasks, background_tasks
from fidelio.orchestrator.executors.codex.home import api_key, prepare
from fidelio.orchestrator.executors.codex.items import Account, Count, Json, Named, Problem, read, read_line
from fidelio.orchestrator.executors.codex.questions import Desk
from fidelio.orchestrator.executors.codex.results import NO_THREAD, Outcome, finished, lost, turn_failure
from fidelio.orchestrator.executors.contract import Finished, Reporter, Turn, process_options
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.spool import Spool
from fidelio.processes.spooled import AGENT, AgentProcess, adopt, spawn
from fidelio.processes.table import ProcessIdentity

# Our requests have fixed numbers, so that whoever adopts the server knows what its replies are about.
_INITIALIZE, _LOGIN, _THREAD, _TURN = 1, 2, 3, 4
_UNKNOWN = -32601
_END_SECONDS = 3.0


class _Opened(msgspec.Struct, frozen=True):
    thread: Named


class _Begun(msgspec.Struct, frozen=True):
    turn: Named


class _Completed(msgspec.Struct, frozen=True):
    turn: Outcome


class _Last(msgspec.Struct, frozen=True, rename="camel"):
    input_tokens: Count
    output_tokens: Count


class _Spent(msgspec.Struct, frozen=True):
    last: _Last


class _Used(msgspec.Struct, frozen=True, rename="camel"):
    turn_id: str
    token_usage: _Spent


async def run(turn: Turn, reporter: Reporter) -> Finished:
    home = prepare(turn, asks=turn.blueprint.permissions.mode in ("ask", "edit"))
    process = await spawn(
        ["codex", "app-server"], process_options(turn, reporter), queue=True, environment={"CODEX_HOME": str(home)}
    )
    async with process, background_tasks() as others:
        talk = _Talk(process, turn, reporter, others)
        await talk.begin(api_key(home, turn.environment))
        result = await talk.end()
        await _let_go(process)
    return result


async def go_on(turn: Turn, identity: ProcessIdentity, reporter: Reporter) -> Finished | None:
    """None where the turn had not begun for sure: to begin it again could be to begin it twice."""
    if not await asyncio.to_thread(_has_begun, turn):
        return None
    process = await adopt(identity, process_options(turn, reporter))
    async with process, background_tasks() as others:
        return await _Talk(process, turn, reporter, others).end()


def _has_begun(turn: Turn) -> bool:
    try:
        with Spool(turn.spool / AGENT).stdout.open(encoding="utf-8", errors="replace") as lines:
            return any((message := read_line(line)) and message.get("id") == _TURN and "result" in message for line in lines)
    except OSError:
        return False


async def _let_go(process: AgentProcess) -> None:
    """The server ends by itself when nothing more can come; it is given the time to put its things in order."""
    process.close_stdin()
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            await process.wait_for_exit()


class _Talk:
    """One turn of the conversation, from either end of it."""

    def __init__(self, process: AgentProcess, turn: Turn, reporter: Reporter, others: BackgroundTasks) -> None:
        self._process, self._turn, self._reporter, self._others = process, turn, reporter, others
        self._account = Account(reporter)
        self._desk = Desk(turn.blueprint.permissions, reporter, self._account.items)
        self._messages = self._incoming()
        self._spent = Usage()
        self._thread = self._turn_id = ""
        self._waiting: dict[int | str, asyncio.Task[None]] = {}
        self._outcome: Outcome | None = None

    async def begin(self, key: str | None) -> None:
        client = {"name": "fidelio", "title": "Fidelio", "version": __version__}
        await self._request(_INITIALIZE, "initialize", clientInfo=client, capabilities={"experimentalApi": True})
        await self._send({"method": "initialized"})
        if key:
            await self._request(_LOGIN, "account/login/start", type="apiKey", apiKey=key)
        await self._joined(await self._open_thread())
        prompt = {"type": "text", "text": self._turn.prompt, "text_elements": []}
        schema = self._turn.blueprint.output_schema
        begun = await self._request(_TURN, "turn/start", threadId=self._thread, input=[prompt], outputSchema=schema)
        self._turn_id = read(begun, _Begun, "its reply to turn/start").turn.id

    async def end(self) -> Finished:
        """Listens until the turn is over."""
        while self._outcome is None:
            await self._take(await self._next())
        if self._outcome.status != "completed":
            raise turn_failure(self._outcome, self._account.last)
        return finished(self._account.last, self._turn.blueprint)

    async def _open_thread(self) -> str:
        where = {"cwd": str(self._turn.directory)}
        if self._turn.conversation is None:
            opened = await self._request(_THREAD, "thread/start", **where)
        else:
            opened = await self._request(_THREAD, "thread/resume", threadId=self._turn.conversation, **where)
        return read(opened, _Opened, "its reply about the thread").thread.id

    async def _request(self, number: int, method: str, **params: Any) -> Any:
        await self._send({"id": number, "method": method, "params": params})
        while True:
            message = await self._next()
            if message.get("id") != number or "method" in message:
                await self._take(message)
            elif "error" in message:
                raise self._refused(method, read(message["error"], Problem, f"its refusal of {method}").message)
            else:
                return message.get("result")

    def _refused(self, method: str, sentence: str) -> ExecutorFailure:
        if method == "thread/resume" and NO_THREAD in sentence:
            return lost(str(self._turn.conversation))
        return ExecutorFailure(f"Codex refused {method}: {sentence}", reason="refused")

    async def _take(self, message: Json) -> None:
        match message:
            case {"method": str(method), "id": int() | str() as number}:
                self._waiting[number] = self._others.start(self._answer(number, method, message.get("params")))
            case {"method": "serverRequest/resolved", "params": {"requestId": int() | str() as number}}:
                self._withdraw(number)
            case {"method": str(method), "params": {"threadId": str(thread)}}:
                await self._happened(method, thread, message["params"])
            case {"id": number, "result": {"thread": {"id": str(thread)}}} if number == _THREAD:
                await self._joined(thread)

    async def _happened(self, method: str, thread: str, params: Json) -> None:
        """What other threads do, which are those of helpers that Codex has started, is theirs; what they cost is ours."""
        is_ours = thread == self._thread
        match method:
            case "item/started" if is_ours:
                await self._account.started(params.get("item"))
            case "item/completed" if is_ours:
                await self._account.completed(params.get("item"))
            case "thread/tokenUsage/updated":
                used = read(params, _Used, method)
                if not is_ours or used.turn_id == self._turn_id:
                    await self._count(used.token_usage.last)
            case "turn/started" if is_ours:
                self._turn_id = read(params, _Begun, method).turn.id
            case "turn/completed" if is_ours:
                self._outcome = read(params, _Completed, method).turn

    async def _joined(self, thread: str) -> None:
        self._thread = thread
        await self._reporter.conversation(thread)

    async def _count(self, last: _Last) -> None:
        self._spent = Usage(
            turns=self._spent.turns + 1,
            input_tokens=self._spent.input_tokens + last.input_tokens,
            output_tokens=self._spent.output_tokens + last.output_tokens,
        )
        await self._reporter.used(self._spent)

    async def _answer(self, number: int | str, method: str, params: Any) -> None:
        result = await self._desk.decide(method, params, number)
        if result is None:
            await self._send({"id": number, "error": {"code": _UNKNOWN, "message": f"{method} is not known here"}})
        else:
            await self._send({"id": number, "result": result})

    def _withdraw(self, number: int | str) -> None:
        """Somebody has answered, or Codex no longer wants to know."""
        if task := self._waiting.pop(number, None):
            task.cancel()

    async def _send(self, message: Json) -> None:
        await self._process.write(json.dumps(message).encode() + b"\n")

    async def _next(self) -> Json:
        async for message in self._messages:
            return message
        raise self._process.failure(await self._process.wait_for_exit(), partial=self._account.last)

    async def _incoming(self) -> AsyncIterator[Json]:
        async for line in self._process.lines():
            if message := read_line(line):
                yield message
