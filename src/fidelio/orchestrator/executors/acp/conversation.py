"""One turn with an agent over the Agent Client Protocol.

The protocol's library takes every message in a task of its own and swallows what goes wrong there. So whatever comes is put
into one line, and taken from it in order by a task whose errors end the turn.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

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
from fidelio.orchestrator.executors.acp.account import Account
from fidelio.orchestrator.executors.acp.agents import AcpAgent, home_of
from fidelio.orchestrator.executors.acp.tools import Leave, allows
from fidelio.orchestrator.executors.background import BackgroundTasks
from fidelio.orchestrator.executors.contract import Finished, Reporter, Turn
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.piped import PipedProcess
from fidelio.processes.table import AGENT_MARKER

# An agent that waits for somebody to log in waits for ever; one that fetches a server first takes its time.
_START_SECONDS = 180.0
_CANCEL_SECONDS = 1.0
# How long an agent that tells the past anew may take for it, and how long it is silent when it has come to the present.
_REPLAY_SECONDS, _QUIET_SECONDS = 10.0, 0.3
# Some agents end their turn without a word when something is refused, as if somebody sat there to tell them what to do instead.
_GO_ON = "You may not use {} for that. Go on without it, or say why you cannot."
_COMMANDS = ("/", "$", "!", "@", "#")
_AHEAD = 100


@dataclass(frozen=True, slots=True)
class _Wish:
    """The agent wants leave for something; `answer` is given to it."""

    use: ToolCallUpdate
    options: list[PermissionOption]
    answer: asyncio.Future[str | None]


class Talk:
    """Our end of the conversation."""

    def __init__(self, agent: AcpAgent, turn: Turn, reporter: Reporter, process: PipedProcess, others: BackgroundTasks) -> None:
        self._agent, self._turn, self._reporter, self._process, self._others = agent, turn, reporter, process, others
        self._account = Account(reporter, turn.blueprint.mcp_servers)
        self._leave = Leave(agent.title, turn, reporter)
        self._line: asyncio.Queue[Any] = asyncio.Queue(_AHEAD)
        self._is_listening = False
        self._has_commands = asyncio.Event()
        self._heard = asyncio.Event()
        self._connection = ClientSideConnection(cast("Client", self), PipeTransport(process, self._line.put))
        others.start(self._take_all())

    async def carry_out(self) -> Finished:
        session = ""
        try:
            session = await self._begin()
            before = self._totals(session)
            response = await self._ask(session, self._prompt())
            while self._account.refused:
                response = await self._ask(session, _GO_ON.format(self._account.refused))
            return await self._end(response, _difference(before, self._totals(session)))
        except asyncio.CancelledError:
            await self._cancel(session)
            raise
        except RequestError as error:
            raise refused(self._agent, error, self._account.last) from error
        except ConnectionError as error:
            raise await ended_early(self._process, self._account.last) from error
        except ValueError as error:
            said = f"{self._agent.title} answered in a way that the protocol does not know: {error}"
            raise stopped(said, "protocol", self._account.last) from error
        finally:
            await self._connection.close()

    async def _ask(self, session: str, text: str) -> PromptResponse:
        self._account.refused = ""
        response = await self._connection.prompt(session_id=session, prompt=[_text(text)])
        await self._line.join()
        await self._account.flush()
        return response

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:  # noqa: ARG002  # there is only one session
        await self._line.put(update)

    async def request_permission(
        self,
        session_id: str,  # noqa: ARG002  # as above
        tool_call: ToolCallUpdate,
        options: list[PermissionOption],
        **_: Any,
    ) -> RequestPermissionResponse:
        wish = _Wish(tool_call, options, asyncio.get_running_loop().create_future())
        await self._line.put(wish)
        chosen = await wish.answer
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002  # we know none
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """What agents tell those who know them better."""

    async def _begin(self) -> str:
        try:
            async with asyncio.timeout(_START_SECONDS):
                able = await self._connection.initialize(
                    protocol_version=PROTOCOL_VERSION,
                    client_capabilities=ClientCapabilities(),
                    client_info=Implementation(name="fidelio", title="Fidelio", version=__version__),
                )
                session = await self._open(able)
        except TimeoutError as error:
            raise stopped(f"{self._agent.title} did not get ready.", "no-answer") from error
        await self._reporter.conversation(session)
        self._is_listening = True
        return session

    async def _open(self, able: InitializeResponse) -> str:
        place: dict[str, Any] = {"cwd": str(self._turn.directory), "mcp_servers": self._servers()}
        conversation = self._turn.conversation
        if conversation is None:
            return (await self._connection.new_session(**place)).session_id
        abilities = able.agent_capabilities
        try:
            if abilities and abilities.session_capabilities and abilities.session_capabilities.resume:
                await self._connection.resume_session(session_id=conversation, **place)
            elif abilities and abilities.load_session:
                await self._connection.load_session(session_id=conversation, **place)
                await self._replayed()
            else:
                raise lost(self._agent, conversation)
        except RequestError as error:
            if error.code == RequestError.auth_required().code:
                raise
            raise lost(self._agent, conversation, error) from error
        return conversation

    async def _replayed(self) -> None:
        """Waits until an agent has told the past anew. It should have before it answers; Gemini does so afterwards."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_REPLAY_SECONDS):
                await self._has_commands.wait()
                while await self._hears_more():
                    self._heard.clear()

    async def _hears_more(self) -> bool:
        try:
            async with asyncio.timeout(_QUIET_SECONDS):
                return await self._heard.wait()
        except TimeoutError:
            return False

    def _servers(self) -> list[HttpMcpServer | McpServerStdio]:
        return [_server(name, server, self._turn.run) for name, server in self._turn.blueprint.mcp_servers.items()]

    def _prompt(self) -> str:
        """A prompt is never one of the commands that these agents know, even if it looks like one."""
        prompt = with_schema(self._turn.prompt, self._turn.blueprint.output_schema)
        return f"The task:\n\n{prompt}" if prompt.lstrip().startswith(_COMMANDS) else prompt

    async def _end(self, response: PromptResponse, spent: Usage | None) -> Finished:
        await self._account.finish(response, spent)
        if response.stop_reason != "end_turn":
            raise stopped(f"The turn ended early: {response.stop_reason}.", f"turn-{response.stop_reason}", self._account.last)
        text = self._account.last
        return Finished(text=text, data=data_in(text) if self._turn.blueprint.output_schema is not None else None)

    def _totals(self, session: str) -> Usage | None:
        return self._agent.totals(home_of(self._agent, self._turn), session)

    async def _cancel(self, session: str) -> None:
        """Lets the agent write down that it was interrupted; it is ended in any case."""
        if session:
            with suppress(TimeoutError, ConnectionError, RequestError):
                async with asyncio.timeout(_CANCEL_SECONDS):
                    await self._connection.cancel(session_id=session)

    async def _take_all(self) -> None:
        while True:
            await self._take(await self._line.get())
            self._line.task_done()

    async def _take(self, what: Any) -> None:
        if isinstance(what, int):
            await self._reporter.output(what)
        elif isinstance(what, _Wish):
            name = await self._account.asks_for(what.use)
            self._others.start(self._decide(what, name))
        elif self._is_listening:
            await self._account.take(what)
        else:
            self._heard.set()
            if isinstance(what, AvailableCommandsUpdate):
                self._has_commands.set()

    async def _decide(self, wish: _Wish, name: str) -> None:
        chosen = await self._leave.choose(wish.use, name, wish.options)
        if not allows(chosen, wish.options):
            self._account.refused = name
        if not wish.answer.done():
            wish.answer.set_result(chosen)


def _difference(before: Usage | None, after: Usage | None) -> Usage | None:
    if before is None or after is None:
        return None
    return Usage(
        input_tokens=after.input_tokens - before.input_tokens,
        output_tokens=after.output_tokens - before.output_tokens,
        cost_usd=after.cost_usd - before.cost_usd,
    )


def _text(text: str) -> TextContentBlock:
    return TextContentBlock(type="text", text=text)


def _server(name: str, server: McpServer, run: str) -> HttpMcpServer | McpServerStdio:
    if server.url:
        headers = [HttpHeader(name=key, value=value) for key, value in server.headers.items()]
        return HttpMcpServer(type="http", name=name, url=server.url, headers=headers)
    variables = [EnvVariable(name=key, value=value) for key, value in {**server.env, AGENT_MARKER: run}.items()]
    return McpServerStdio(name=name, command=server.command or "", args=list(server.args), env=variables)


_KNOWN = frozenset(CLIENT_METHODS.values())


class PipeTransport:
    """What the protocol's library sends and receives through. `heard` is told the size of every line."""

    def __init__(self, process: PipedProcess, heard: Callable[[int], Awaitable[None]]) -> None:
        self._process, self._heard = process, heard

    async def send(self, message: dict[str, Any]) -> None:
        self._process.writer.write(json.dumps(message).encode() + b"\n")
        await self._process.writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next message, None at the end. A line that is none is some program's chatter."""
        while line := await self._line():
            await self._heard(len(line))
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict) and not _is_news_of_its_own(message):
                return message
        return None

    async def close(self) -> None:
        """The pipes belong to the process, which ends them."""

    async def _line(self) -> bytes:
        while True:
            try:
                return await self._process.reader.readline()
            except ValueError:
                # The reader has dropped it. It was longer than all that the agent may say, which ends the run.
                await self._heard(self._process.longest + 1)


def _is_news_of_its_own(message: dict[str, Any]) -> bool:
    """What an agent tells those who know it better than the protocol does; the library would complain about it."""
    return "id" not in message and message.get("method") not in _KNOWN


_END_SECONDS = 5.0


def lost(agent: AcpAgent, conversation: str, error: RequestError | None = None) -> ConversationLost:
    why = f"{agent.title} does not know the conversation {conversation}{_words(error)}."
    return ConversationLost(why, reason="conversation-lost", remedy="Start a new session.")


def refused(agent: AcpAgent, error: RequestError, partial: str) -> ExecutorFailure:
    if error.code == RequestError.auth_required().code:
        return ExecutorFailure(f"{agent.title} is not logged in.", remedy=agent.how_to_log_in, reason="not-logged-in")
    return ExecutorFailure(f"{agent.title} could not go on{_words(error)}.", reason="refused", partial=partial)


def stopped(sentence: str, reason: str, partial: str = "") -> ExecutorFailure:
    return ExecutorFailure(sentence, reason=reason.replace("_", "-"), partial=partial)


async def ended_early(process: PipedProcess, partial: str) -> ExecutorFailure:
    try:
        async with asyncio.timeout(_END_SECONDS):
            return process.failure(await process.wait_for_exit(), partial=partial)
    except TimeoutError:
        return ExecutorFailure("The agent stopped talking without ending.", reason="silent", partial=partial)


def _words(error: RequestError | None) -> str:
    if error is None:
        return ""
    details = error.data.get("details") if isinstance(error.data, dict) else error.data
    return f": {error}" + (f" ({details})" if details else "")


_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


def with_schema(prompt: str, schema: Mapping[str, Any] | None) -> str:
    if schema is None:
        return prompt
    wish = "When you are done, answer with one JSON value that fits this schema, and nothing else:"
    return f"{prompt}\n\n{wish}\n\n{json.dumps(schema)}"


def data_in(text: str) -> Any:
    """The JSON value that the text is, or the last that it shows as code. None where there is none."""
    for candidate in (text, *reversed(_FENCED.findall(text))):
        try:
            return json.loads(candidate)
        except ValueError:
            continue
    return None
