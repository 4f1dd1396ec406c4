"""Client side of a turn over the Agent Client Protocol.

The ACP library handles every message in a task of its own and swallows errors there. So its callbacks only put messages into a
queue; one background task handles them in order, and its errors end the turn.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, cast

import msgspec
from acp import CLIENT_METHODS, PROTOCOL_VERSION, RequestError
from acp.client.connection import ClientSideConnection
from acp.interfaces import Client
from acp.schema import (
    AllowedOutcome,
    AvailableCommandsUpdate,
    ClientCapabilities,
    DeniedOutcome,
    EnvVariable,
    HttpHeader,
    HttpMcpServer,
    Implementation,
    InitializeResponse,
    McpServerStdio,
    PermissionOption,
    PromptResponse,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallUpdate,
)

from fidelio import __version__
from fidelio.errors import ConversationLost, ExecutorFailure
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.executors.acp.agents import AcpAgent, session_home
from fidelio.orchestrator.executors.acp.tool_calls import PermissionChooser, UpdateReporter, is_allowing
from fidelio.orchestrator.executors.common import BackgroundTasks
from fidelio.orchestrator.executors.contract import Reporter, Turn, TurnResult
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.piped import PipedProcess
from fidelio.processes.table import AGENT_MARKER

# Bounds the start, because an agent that is not logged in may wait for ever. Long, because it may first download an MCP server.
_START_SECONDS = 180.0
_CANCEL_SECONDS = 1.0
# How long an agent may take to replay a loaded conversation, and how long a silence means that the replay is complete.
_REPLAY_SECONDS, _QUIET_SECONDS = 10.0, 0.3
# Some agents end their turn without a message when a tool is refused, because interactively the user would type what to do.
_CONTINUE_PROMPT = "You may not use {} for that. Go on without it, or say why you cannot."
_COMMANDS = ("/", "$", "!", "@", "#")
_QUEUE_SIZE = 100


class _PermissionRequest(msgspec.Struct, frozen=True):
    """A permission request in the queue; `answer` gets the id of the chosen option."""

    call: ToolCallUpdate
    options: list[PermissionOption]
    answer: asyncio.Future[str | None]


class AcpTurn:
    """The client of a turn. The library calls its public methods except `carry_out`."""

    def __init__(self, agent: AcpAgent, turn: Turn, reporter: Reporter, process: PipedProcess, tasks: BackgroundTasks) -> None:
        self._agent, self._turn, self._reporter, self._process, self._tasks = agent, turn, reporter, process, tasks
        self._updates = UpdateReporter(reporter, turn.blueprint.mcp_servers)
        self._permissions = PermissionChooser(agent.title, turn, reporter)
        self._queue: asyncio.Queue[Any] = asyncio.Queue(_QUEUE_SIZE)
        self._is_listening = False
        self._has_commands = asyncio.Event()
        self._replay_update = asyncio.Event()
        self._connection = ClientSideConnection(cast("Client", self), PipeTransport(process, self._queue.put))
        tasks.start(self._handle_queue())

    async def carry_out(self) -> TurnResult:
        session = ""
        try:
            session = await self._start()
            before = self._read_totals(session)
            response = await self._send_prompt(session, self._build_prompt())
            while self._updates.refused_tool:
                response = await self._send_prompt(session, _CONTINUE_PROMPT.format(self._updates.refused_tool))
            after = self._read_totals(session)
            return await self._finish(response, after - before if before and after else None)
        except asyncio.CancelledError:
            await self._cancel(session)
            raise
        except RequestError as error:
            raise request_failure(self._agent, error, self._updates.last_message) from error
        except ConnectionError as error:
            raise await early_exit_failure(self._process, self._updates.last_message) from error
        except ValueError as error:
            sentence = f"{self._agent.title} sent a message that is not valid in the protocol: {error}"
            raise turn_failure(sentence, "protocol", self._updates.last_message) from error
        finally:
            await self._connection.close()

    async def _send_prompt(self, session: str, text: str) -> PromptResponse:
        self._updates.refused_tool = ""
        response = await self._connection.prompt(session_id=session, prompt=[_text_block(text)])
        await self._queue.join()
        await self._updates.flush()
        return response

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:  # noqa: ARG002  # the connection has a single session
        await self._queue.put(update)

    async def request_permission(
        self,
        session_id: str,  # noqa: ARG002  # the connection has a single session
        tool_call: ToolCallUpdate,
        options: list[PermissionOption],
        **_: Any,
    ) -> RequestPermissionResponse:
        request = _PermissionRequest(tool_call, options, asyncio.get_running_loop().create_future())
        await self._queue.put(request)
        chosen = await request.answer
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002  # no extension is supported
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Ignore notifications of protocol extensions."""

    async def _start(self) -> str:
        try:
            async with asyncio.timeout(_START_SECONDS):
                agent_info = await self._connection.initialize(
                    protocol_version=PROTOCOL_VERSION,
                    client_capabilities=ClientCapabilities(),
                    client_info=Implementation(name="fidelio", title="Fidelio", version=__version__),
                )
                session = await self._open(agent_info)
        except TimeoutError as error:
            raise turn_failure(f"{self._agent.title} did not get ready.", "no-answer") from error
        await self._reporter.report_conversation(session)
        self._is_listening = True
        return session

    async def _open(self, agent_info: InitializeResponse) -> str:
        options: dict[str, Any] = {"cwd": str(self._turn.directory), "mcp_servers": self._describe_servers()}
        conversation = self._turn.conversation
        if conversation is None:
            return (await self._connection.new_session(**options)).session_id
        capabilities = agent_info.agent_capabilities
        try:
            if capabilities and capabilities.session_capabilities and capabilities.session_capabilities.resume:
                await self._connection.resume_session(session_id=conversation, **options)
            elif capabilities and capabilities.load_session:
                await self._connection.load_session(session_id=conversation, **options)
                await self._wait_for_replay()
            else:
                raise conversation_lost(self._agent, conversation)
        except RequestError as error:
            if error.code == RequestError.auth_required().code:
                raise
            raise conversation_lost(self._agent, conversation, error) from error
        return conversation

    async def _wait_for_replay(self) -> None:
        """Wait until the agent has replayed the conversation. The protocol wants this before its answer; Gemini does it
        after.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_REPLAY_SECONDS):
                await self._has_commands.wait()
                while await self._receives_more():
                    self._replay_update.clear()

    async def _receives_more(self) -> bool:
        try:
            async with asyncio.timeout(_QUIET_SECONDS):
                return await self._replay_update.wait()
        except TimeoutError:
            return False

    def _describe_servers(self) -> list[HttpMcpServer | McpServerStdio]:
        return [_describe_server(name, server, self._turn.run) for name, server in self._turn.blueprint.mcp_servers.items()]

    def _build_prompt(self) -> str:
        """The prompt, prefixed where the agent would read its first character as a command."""
        prompt = append_schema(self._turn.prompt, self._turn.blueprint.output_schema)
        return f"The task:\n\n{prompt}" if prompt.lstrip().startswith(_COMMANDS) else prompt

    async def _finish(self, response: PromptResponse, usage: Usage | None) -> TurnResult:
        await self._updates.report_end(response, usage)
        if response.stop_reason != "end_turn":
            raise turn_failure(
                f"The turn ended early: {response.stop_reason}.", f"turn-{response.stop_reason}", self._updates.last_message
            )
        return TurnResult(text=self._updates.last_message)

    def _read_totals(self, session: str) -> Usage | None:
        return self._agent.read_totals(session_home(self._agent, self._turn), session)

    async def _cancel(self, session: str) -> None:
        """Ask the agent to cancel, so that its transcript records the interruption. Its process is stopped in any case."""
        if session:
            with suppress(TimeoutError, ConnectionError, RequestError):
                async with asyncio.timeout(_CANCEL_SECONDS):
                    await self._connection.cancel(session_id=session)

    async def _handle_queue(self) -> None:
        while True:
            await self._handle(await self._queue.get())
            self._queue.task_done()

    async def _handle(self, entry: Any) -> None:
        if isinstance(entry, int):
            await self._reporter.report_output(entry)
        elif isinstance(entry, _PermissionRequest):
            name = await self._updates.report_requested_call(entry.call)
            self._tasks.start(self._decide(entry, name))
        elif self._is_listening:
            await self._updates.report_update(entry)
        else:
            self._replay_update.set()
            if isinstance(entry, AvailableCommandsUpdate):
                self._has_commands.set()

    async def _decide(self, request: _PermissionRequest, name: str) -> None:
        chosen = await self._permissions.choose(request.call, name, request.options)
        if not is_allowing(chosen, request.options):
            self._updates.refused_tool = name
        if not request.answer.done():
            request.answer.set_result(chosen)


def _text_block(text: str) -> TextContentBlock:
    return TextContentBlock(type="text", text=text)


def _describe_server(name: str, server: McpServer, run: str) -> HttpMcpServer | McpServerStdio:
    if server.url:
        headers = [HttpHeader(name=key, value=value) for key, value in server.headers.items()]
        return HttpMcpServer(type="http", name=name, url=server.url, headers=headers)
    variables = [EnvVariable(name=key, value=value) for key, value in {**server.env, AGENT_MARKER: run}.items()]
    return McpServerStdio(name=name, command=server.command or "", args=list(server.args), env=variables)


_KNOWN_METHODS = frozenset(CLIENT_METHODS.values())


class PipeTransport:
    """Transport of the ACP library over the pipes of a process. `on_line` gets the size of every line."""

    def __init__(self, process: PipedProcess, on_line: Callable[[int], Awaitable[None]]) -> None:
        self._process, self._on_line = process, on_line

    async def send(self, message: dict[str, Any]) -> None:
        self._process.writer.write(json.dumps(message).encode() + b"\n")
        await self._process.writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next message, None at the end. Lines that are not JSON are ignored: some agents print logs."""
        while line := await self._read_line():
            await self._on_line(len(line))
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict) and not _is_unknown_notification(message):
                return message
        return None

    async def close(self) -> None:
        """Do nothing: the process owns the pipes and closes them."""

    async def _read_line(self) -> bytes:
        while True:
            try:
                return await self._process.reader.readline()
            except ValueError:
                # The reader has dropped a line longer than the output limit; reporting its size ends the run.
                await self._on_line(self._process.longest + 1)


def _is_unknown_notification(message: dict[str, Any]) -> bool:
    """Whether a message is a notification outside of the protocol, for which the library would log an error."""
    return "id" not in message and message.get("method") not in _KNOWN_METHODS


_END_SECONDS = 5.0


def conversation_lost(agent: AcpAgent, conversation: str, error: RequestError | None = None) -> ConversationLost:
    why = f"{agent.title} does not know the conversation {conversation}{_describe_error(error)}."
    return ConversationLost(why, reason="conversation-lost", remedy="Start a new session.")


def request_failure(agent: AcpAgent, error: RequestError, partial: str) -> ExecutorFailure:
    if error.code == RequestError.auth_required().code:
        return ExecutorFailure(f"{agent.title} is not logged in.", remedy=agent.how_to_log_in, reason="not-logged-in")
    return ExecutorFailure(f"{agent.title} could not go on{_describe_error(error)}.", reason="refused", partial=partial)


def turn_failure(sentence: str, reason: str, partial: str = "") -> ExecutorFailure:
    return ExecutorFailure(sentence, reason=reason.replace("_", "-"), partial=partial)


async def early_exit_failure(process: PipedProcess, partial: str) -> ExecutorFailure:
    try:
        async with asyncio.timeout(_END_SECONDS):
            return process.failure(await process.wait_for_exit(), partial=partial)
    except TimeoutError:
        return ExecutorFailure("The agent stopped talking without ending.", reason="silent", partial=partial)


def _describe_error(error: RequestError | None) -> str:
    if error is None:
        return ""
    details = error.data.get("details") if isinstance(error.data, dict) else error.data
    return f": {error}" + (f" ({details})" if details else "")


def append_schema(prompt: str, schema: Mapping[str, Any] | None) -> str:
    if schema is None:
        return prompt
    instruction = "When you are done, answer with one JSON value that fits this schema, and nothing else:"
    return f"{prompt}\n\n{instruction}\n\n{json.dumps(schema)}"
