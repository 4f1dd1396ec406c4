"""What Claude Code reports while it works, one JSON message a line, and what it is answered.

The lines are a file, so whoever comes later reads the same from the beginning. An answer may then be given twice, which the
agent takes once.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from fidelio.orchestrator.executors.background import BackgroundTasks, background_tasks
from fidelio.orchestrator.executors.claude import messages
from fidelio.orchestrator.executors.claude import messages as failures
from fidelio.orchestrator.executors.claude.questions import answer
from fidelio.orchestrator.executors.contract import Finished, Reporter, Turn
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.spooled import AgentProcess, ProcessExit

# What a command that was left running in the background gets to end, once the agent has nothing more to do itself.
LINGER_SECONDS = 60.0
# The agent tries a key that is not accepted ten times, for minutes.
_ATTEMPTS = 3
_BEFORE = "fidelio-before"
_MISSING = frozenset({"failed", "needs-auth"})
# The name of the model where the agent speaks for itself.
_NO_MODEL = "<synthetic>"


def opening(turn: Turn) -> bytes:
    """The first lines for the agent. What the conversation had cost before is asked, to know what this turn adds to it."""
    # `client_composed`: a prompt that begins with a slash is a prompt and no command.
    prompt = _line({"type": "user", "message": {"role": "user", "content": turn.prompt}, "client_composed": True})
    if turn.conversation is None:
        return prompt
    return _line({"type": "control_request", "request_id": _BEFORE, "request": {"subtype": "get_usage"}}) + prompt


async def watch(process: AgentProcess, turn: Turn, reporter: Reporter) -> Finished:
    """Follows the agent to its end. Several questions may be open at once, and the agent may go on meanwhile."""
    watcher = _Watcher(process, turn, reporter)
    async with background_tasks() as asking:
        await watcher.follow(asking)
    # One that lingers too long is ended by leaving it; its result is there.
    return watcher.finished(ProcessExit(0) if process.is_running() else await process.wait_for_exit())


class _Watcher:
    def __init__(self, process: AgentProcess, turn: Turn, reporter: Reporter) -> None:
        self._process, self._turn, self._reporter = process, turn, reporter
        self._conversation = turn.conversation or turn.fresh
        self._before = messages.Spent() if turn.conversation is None else None
        # What the agent has accounted for itself, and the answers of the model since then.
        self._accounted = messages.Spent()
        self._answers: dict[str, messages.Spent] = {}
        self._turns = 0
        self._said: list[str] = []
        self._result: messages.Result | None = None
        self._is_resting = self._is_busy_behind = False
        self._questions: dict[str, asyncio.Task[None]] = {}

    async def follow(self, asking: BackgroundTasks) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as bound:
                async for line in self._process.lines():
                    await self._take(messages.read_message(line), asking)
                    bound.reschedule(loop.time() + LINGER_SECONDS if self._is_resting else None)
        except TimeoutError:
            if not bound.expired():
                raise

    def finished(self, exit_: ProcessExit) -> Finished:
        partial = "\n\n".join(self._said)
        if self._result is None:
            raise failures.of_complaint(self._process.stderr_tail()) or self._process.failure(exit_, partial=partial)
        if self._result.is_error:
            raise failures.of_result(self._result, partial)
        return Finished(text=self._result.result or "", data=self._result.structured_output)

    async def _take(self, message: messages.Message | None, asking: BackgroundTasks) -> None:
        match message:
            case messages.System():
                await self._system(message)
            case messages.Assistant():
                await self._assistant(message)
            case messages.User():
                await self._returned(message)
            case messages.Result():
                await self._ended(message)
            case messages.ControlRequest():
                self._asked(message, asking)
            case messages.ControlCancel() if message.request_id in self._questions:
                self._questions[message.request_id].cancel()
            case messages.ControlResponse() if message.response.request_id == _BEFORE:
                self._before = message.spent

    async def _system(self, message: messages.System) -> None:
        if message.subtype == "api_retry" and message.error_status in {401, 403} and message.attempt >= _ATTEMPTS:
            raise failures.not_logged_in(message.error_status)
        if message.subtype == "background_tasks_changed":
            self._is_busy_behind = bool(message.tasks)
        if message.subtype == "init":
            self._is_resting = False
            self._check_servers(message.mcp_servers)
            if message.session_id != self._conversation:
                self._conversation = message.session_id
                await self._reporter.conversation(message.session_id)

    def _check_servers(self, servers: list[messages.Server]) -> None:
        missing = {server.name for server in servers if server.status in _MISSING}
        if missing & self._turn.blueprint.mcp_servers.keys():
            raise failures.no_server(missing)

    async def _assistant(self, message: messages.Assistant) -> None:
        self._is_resting = False
        body = message.message
        if body.model == _NO_MODEL:
            return
        for block in body.content:
            if block.type == "tool_use":
                await self._reporter.called(block.id, block.name, block.input)
            elif block.type == "text" and message.parent_tool_use_id is None:
                self._said.append(block.text)
                await self._reporter.said(block.text)
        await self._count(body)

    async def _count(self, body: messages.AssistantBody) -> None:
        """A message comes in as many lines as it has parts, each with the tokens of the whole."""
        spent = body.usage.spent if body.usage is not None else messages.Spent()
        if self._answers.get(body.id) != spent:
            self._turns += body.id not in self._answers
            self._answers[body.id] = spent
            await self._used()

    async def _used(self) -> None:
        spent = sum(self._answers.values(), start=self._accounted)
        await self._reporter.used(
            Usage(
                turns=self._turns,
                input_tokens=spent.input_tokens,
                output_tokens=spent.output_tokens,
                cost_usd=spent.cost_usd,
            )
        )

    async def _returned(self, message: messages.User) -> None:
        content = message.message.content
        for block in content if isinstance(content, list) else ():
            if block.type == "tool_result":
                await self._reporter.returned(block.tool_use_id, ok=not block.is_error, text=block.result)

    async def _ended(self, result: messages.Result) -> None:
        self._result, self._is_resting = result, True
        if self._before is not None and self._turns:
            self._accounted, self._answers = result.spent - self._before, {}
            await self._used()
        # Whatever runs in the background is reported to the model when it ends, and then there may be something to ask.
        if not self._is_busy_behind:
            self._process.close_stdin()

    def _asked(self, message: messages.ControlRequest, asking: BackgroundTasks) -> None:
        self._questions[message.request_id] = asking.start(self._reply(message.request_id, message.request))

    async def _reply(self, name: str, request: messages.Request) -> None:
        response: dict[str, Any] = {"subtype": "success", "request_id": name}
        if request.subtype == "can_use_tool":
            response["response"] = await answer(request, self._turn.blueprint.permissions, self._reporter)
        elif request.subtype == "elicitation":
            # A server that asks has a way of its own to people, or does without.
            response["response"] = {"action": "cancel"}
        else:
            response = {"subtype": "error", "request_id": name, "error": f"{request.subtype} is not known here."}
        await self._process.write(_line({"type": "control_response", "response": response}))


def _line(message: dict[str, Any]) -> bytes:
    return msgspec.json.encode(message) + b"\n"
