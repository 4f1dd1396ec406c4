"""Codex as a server for a turn: `codex app-server`, JSON lines in both directions.

In this mode Codex can ask. The id of the conversation is known before the prompt is sent, and usage is reported during the
turn. The lines are in the spool of the run, so a host that adopts the server reads them again from the beginning and answers
the requests that are still open.
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
from fidelio.orchestrator.executors.codex.home import find_api_key, prepare_home
from fidelio.orchestrator.executors.codex.messages import (
    NO_THREAD,
    CompletedTurn,
    Count,
    ErrorDetail,
    Identified,
    ItemReporter,
    Json,
    conversation_lost,
    convert_message,
    parse_line,
    turn_failure,
)
from fidelio.orchestrator.executors.codex.questions import RequestHandler
from fidelio.orchestrator.executors.common import BackgroundTasks, background_tasks
from fidelio.orchestrator.executors.contract import Reporter, Turn, TurnResult, process_options
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.spool import Spool
from fidelio.processes.spooled import AGENT, AgentProcess, adopt, spawn
from fidelio.processes.table import ProcessIdentity

# The ids of our requests are fixed, so that a host that adopts the server can match its replies.
_INITIALIZE, _LOGIN, _THREAD, _TURN = 1, 2, 3, 4
_METHOD_NOT_FOUND = -32601
_END_SECONDS = 3.0


class _ThreadReply(msgspec.Struct, frozen=True):
    thread: Identified


class _TurnStarted(msgspec.Struct, frozen=True):
    turn: Identified


class _TurnCompleted(msgspec.Struct, frozen=True):
    turn: CompletedTurn


class _TokenCounts(msgspec.Struct, frozen=True, rename="camel"):
    input_tokens: Count
    output_tokens: Count


class _TokenUsage(msgspec.Struct, frozen=True):
    last: _TokenCounts


class _UsageUpdated(msgspec.Struct, frozen=True, rename="camel"):
    turn_id: str
    token_usage: _TokenUsage


async def run(turn: Turn, reporter: Reporter) -> TurnResult:
    home = prepare_home(turn, asks=turn.blueprint.permissions.mode in ("ask", "edit"))
    process = await spawn(
        ["codex", "app-server"], process_options(turn, reporter), queue=True, environment={"CODEX_HOME": str(home)}
    )
    async with process, background_tasks() as tasks:
        client = _ServerTurn(process, turn, reporter, tasks)
        await client.begin(find_api_key(home, turn.environment))
        result = await client.end()
        await _close_server(process)
    return result


async def follow_adopted(turn: Turn, identity: ProcessIdentity, reporter: Reporter) -> TurnResult | None:
    """Follow an adopted server; None if its turn may not have started, because starting it again could run it twice."""
    if not await asyncio.to_thread(_has_started, turn):
        return None
    process = await adopt(identity, process_options(turn, reporter))
    async with process, background_tasks() as tasks:
        return await _ServerTurn(process, turn, reporter, tasks).end()


def _has_started(turn: Turn) -> bool:
    try:
        with Spool(turn.spool / AGENT).stdout.open(encoding="utf-8", errors="replace") as lines:
            return any((message := parse_line(line)) and message.get("id") == _TURN and "result" in message for line in lines)
    except OSError:
        return False


async def _close_server(process: AgentProcess) -> None:
    """Close the input of the server and wait a short time for its exit, so that it can save its state."""
    process.close_stdin()
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            await process.wait_for_exit()


class _ServerTurn:
    """Client of the app server for a turn: `begin` starts the turn, `end` follows it; an adopted turn has only `end`."""

    def __init__(self, process: AgentProcess, turn: Turn, reporter: Reporter, tasks: BackgroundTasks) -> None:
        self._process, self._turn, self._reporter, self._tasks = process, turn, reporter, tasks
        self._items = ItemReporter(reporter)
        self._requests = RequestHandler(turn.blueprint.permissions, reporter, self._items.items)
        self._messages = self._read_messages()
        self._usage = Usage()
        self._thread = self._turn_id = ""
        self._questions: dict[int | str, asyncio.Task[None]] = {}
        self._completed: CompletedTurn | None = None

    async def begin(self, key: str | None) -> None:
        client = {"name": "fidelio", "title": "Fidelio", "version": __version__}
        await self._request(_INITIALIZE, "initialize", clientInfo=client, capabilities={"experimentalApi": True})
        await self._send({"method": "initialized"})
        if key:
            await self._request(_LOGIN, "account/login/start", type="apiKey", apiKey=key)
        await self._set_thread(await self._open_thread())
        prompt = {"type": "text", "text": self._turn.prompt, "text_elements": []}
        schema = self._turn.blueprint.output_schema
        reply = await self._request(_TURN, "turn/start", threadId=self._thread, input=[prompt], outputSchema=schema)
        self._turn_id = convert_message(reply, _TurnStarted, "its reply to turn/start").turn.id

    async def end(self) -> TurnResult:
        """Handle messages until the turn ends."""
        while self._completed is None:
            await self._handle(await self._next_message())
        if self._completed.status != "completed":
            raise turn_failure(self._completed, self._items.last_message)
        return TurnResult(text=self._items.last_message)

    async def _open_thread(self) -> str:
        options = {"cwd": str(self._turn.directory)}
        if self._turn.conversation is None:
            reply = await self._request(_THREAD, "thread/start", **options)
        else:
            reply = await self._request(_THREAD, "thread/resume", threadId=self._turn.conversation, **options)
        return convert_message(reply, _ThreadReply, "its reply about the thread").thread.id

    async def _request(self, number: int, method: str, **params: Any) -> Any:
        await self._send({"id": number, "method": method, "params": params})
        while True:
            message = await self._next_message()
            if message.get("id") != number or "method" in message:
                await self._handle(message)
            elif "error" in message:
                raise self._refusal(method, convert_message(message["error"], ErrorDetail, f"its refusal of {method}").message)
            else:
                return message.get("result")

    def _refusal(self, method: str, sentence: str) -> ExecutorFailure:
        if method == "thread/resume" and NO_THREAD in sentence:
            return conversation_lost(str(self._turn.conversation))
        return ExecutorFailure(f"Codex refused {method}: {sentence}", reason="refused")

    async def _handle(self, message: Json) -> None:
        match message:
            case {"method": str(method), "id": int() | str() as number}:
                self._questions[number] = self._tasks.start(self._answer(number, method, message.get("params")))
            case {"method": "serverRequest/resolved", "params": {"requestId": int() | str() as number}}:
                self._withdraw(number)
            case {"method": str(method), "params": {"threadId": str(thread)}}:
                await self._handle_notification(method, thread, message["params"])
            case {"id": number, "result": {"thread": {"id": str(thread)}}} if number == _THREAD:
                await self._set_thread(thread)

    async def _handle_notification(self, method: str, thread: str, params: Json) -> None:
        """Handle a notification. Other threads are subagents of Codex: only their usage is reported."""
        is_ours = thread == self._thread
        match method:
            case "item/started" if is_ours:
                await self._items.report_started(params.get("item"))
            case "item/completed" if is_ours:
                await self._items.report_completed(params.get("item"))
            case "thread/tokenUsage/updated":
                used = convert_message(params, _UsageUpdated, method)
                if not is_ours or used.turn_id == self._turn_id:
                    await self._count(used.token_usage.last)
            case "turn/started" if is_ours:
                self._turn_id = convert_message(params, _TurnStarted, method).turn.id
            case "turn/completed" if is_ours:
                self._completed = convert_message(params, _TurnCompleted, method).turn

    async def _set_thread(self, thread: str) -> None:
        self._thread = thread
        await self._reporter.report_conversation(thread)

    async def _count(self, last: _TokenCounts) -> None:
        self._usage += Usage(turns=1, input_tokens=last.input_tokens, output_tokens=last.output_tokens)
        await self._reporter.report_usage(self._usage)

    async def _answer(self, number: int | str, method: str, params: Any) -> None:
        result = await self._requests.answer(method, params, number)
        if result is None:
            await self._send({"id": number, "error": {"code": _METHOD_NOT_FOUND, "message": f"{method} is not known here"}})
        else:
            await self._send({"id": number, "result": result})

    def _withdraw(self, number: int | str) -> None:
        """Cancel the question of a request that was answered elsewhere or withdrawn."""
        if task := self._questions.pop(number, None):
            task.cancel()

    async def _send(self, message: Json) -> None:
        await self._process.write(json.dumps(message).encode() + b"\n")

    async def _next_message(self) -> Json:
        async for message in self._messages:
            return message
        raise self._process.failure(await self._process.wait_for_exit(), partial=self._items.last_message)

    async def _read_messages(self) -> AsyncIterator[Json]:
        async for line in self._process.lines():
            if message := parse_line(line):
                yield message
