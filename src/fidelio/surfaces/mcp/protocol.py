"""JSON-RPC and MCP without a transport: maps a message to its reply.

`CallDispatcher` runs `tools/call` to its end, including elicitation in the middle of it. An unexpected error becomes a reply
here, at the outermost boundary of a request: without a reply the client would wait until its timeout.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from fidelio.errors import Command, FidelioError, UsageProblem
from fidelio.processes.caller import PERSON, Caller
from fidelio.surfaces.mcp.elicitation import NoAnswer, build_elicitation, read_choice
from fidelio.surfaces.mcp.endpoint import (
    CACHE_MILLISECONDS,
    CACHE_SCOPE,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    STATELESS_REVISIONS,
    Client,
    Identity,
    Prompts,
    ProtocolError,
    RequestStates,
    SentRequest,
    ServedTools,
    error_response,
    find_resource,
    is_request_id,
    negotiate,
    read_envelope,
    render_result,
)
from fidelio.toolkit import AskPerson, CallContext, DeliveredTexts, Done, IdentifyPeer, Reporter

ELICIT_METHOD = "elicitation/create"
# Clients time out after 60 s, so a call that waits for a person replies before that and says that the request is still open.
ANSWER_SECONDS = 50.0
_SIGNED_ON_THE_PAGE = "Its answer must be signed with a registered key, on the web page, so your user was not asked here."
INPUT_KEY = "person"

CAPABILITIES: Mapping[str, Any] = {"tools": {"listChanged": False}}

Elicit = Callable[[dict[str, Any]], Awaitable[object]]


class RequestContext(msgspec.Struct, frozen=True):
    """What the transport knows about a `tools/call` request besides tool and arguments.

    `elicit` sends a question to the client and returns its response, or raises `NoAnswer`; None if the transport cannot send
    requests. `Protocol` fills in `state` and `responses`, which a repeated call has from 2026-07-28 on. `claimed` is the agent
    that the header of a request names, and `identify_peer` looks at the process of the client. Both only take rights away:
    sessions that an agent starts become its children, and it is not asked for a person. Over stdio the server is a child of
    the client, and the signs of its own process count instead. `delivered` are the texts that this connection has delivered;
    None for a transport without connections. `session` is the session that the query of the address names.
    """

    client: Client = msgspec.field(default_factory=Client)
    elicit: Elicit | None = None
    state: str | None = None
    responses: Mapping[str, Any] = msgspec.field(default_factory=dict)
    progress: Reporter | None = None
    claimed: Caller = PERSON
    identify_peer: IdentifyPeer | None = None
    delivered: DeliveredTexts | None = None
    session: str = ""

    @property
    def can_elicit(self) -> bool:
        """Whether the client can ask its user: during the call, or between two calls."""
        return self.client.can_elicit and (self.elicit is not None or self.client.is_stateless)


# Identifies the client of a request by its method and params; raises `ProtocolError` if it refuses the client.
ContextFactory = Callable[[str, Mapping[str, Any]], RequestContext]


class _Call(msgspec.Struct):
    tool: str
    arguments: Mapping[str, Any]
    request: RequestContext
    context: CallContext
    deadline: float
    # The request whose answer came with this call.
    answered: SentRequest = SentRequest()


class CallDispatcher:
    """Runs the tool calls of an endpoint, including elicitation."""

    def __init__(self, tools: ServedTools, states: RequestStates, *, timeout: float = ANSWER_SECONDS) -> None:
        self._tools = tools
        self._states = states
        self._timeout = timeout

    async def call(self, tool: str, arguments: Mapping[str, Any], request: RequestContext) -> dict[str, Any]:
        """Return the result of `tools/call`. Failures are results too; raise `ProtocolError` only for a broken protocol."""
        context = self._tools.make_context(request.progress, request.claimed, request.identify_peer)
        context.delivered, context.session, context.can_elicit = request.delivered, request.session, request.can_elicit
        call = _Call(tool, arguments, request, context, asyncio.get_running_loop().time() + self._timeout)
        try:
            return await self._run_until_done(call)
        except ProtocolError:
            raise
        except FidelioError as error:
            return Done(context.render(error.text), is_error=True).as_result()
        except Exception as error:  # noqa: BLE001  # the outermost boundary of a request: the client must get a reply
            traceback.print_exc(file=sys.stderr)
            text = f"Unexpected {type(error).__name__} in {tool}; details are in the server's log."
            return Done(text, is_error=True).as_result()

    async def _run_until_done(self, call: _Call) -> dict[str, Any]:
        if call.request.state is not None:
            call.answered = self._read_state(call.request.state, call)
            # This call put the request to the person, who may have answered through another channel meanwhile.
            call.context.person_requests.add(call.answered.id)
        while True:
            outcome = await self._tools.table.call(call.tool, call.arguments, call.context)
            if isinstance(outcome, Done):
                return outcome.as_result()
            reply = await self._ask(outcome, call)
            if reply is not None:
                return reply

    def _read_state(self, state: str, call: _Call) -> SentRequest:
        try:
            return self._states.read(state, call.tool, call.arguments)
        except UsageProblem as error:
            # The client carries the state, not the model, so the client gets the error.
            raise ProtocolError(INVALID_PARAMS, str(error)) from error

    async def _ask(self, question: AskPerson, call: _Call) -> dict[str, Any] | None:
        """Ask the person. Return the reply if there is no answer yet; None if there is, so that the handler runs again."""
        request = call.request
        why = await call.context.explain_silence()
        if why or question.needs_proof:
            return await _reply_waiting(question, call, why or _SIGNED_ON_THE_PAGE)
        if request.client.is_stateless:
            return await self._ask_between_calls(question, call)
        if request.elicit is None or not request.client.can_elicit:
            return await _reply_waiting(question, call)
        now = asyncio.get_running_loop().time
        sent_at = now()
        try:
            response = await _wait_for_answer(question, request.elicit, request.client, call.deadline)
            if response is not None:
                await _record_choice(question, response, request.client, (now() - sent_at) * 1000)
        except TimeoutError:
            return await _reply_waiting(
                question, call, f"Nobody answered within {self._timeout:g} seconds; the question still waits."
            )
        except NoAnswer as problem:
            return await _reply_waiting(question, call, f"{problem} No answer was recorded.")
        except asyncio.CancelledError:
            # A cancelled call must be recorded like any other unanswered call.
            await asyncio.shield(_record_unanswered(question))
            raise
        return None

    async def _ask_between_calls(self, question: AskPerson, call: _Call) -> dict[str, Any] | None:
        client, response = call.request.client, call.request.responses.get(INPUT_KEY)
        if call.answered.id == question.request_id and response is not None:
            sent, call.answered = call.answered, SentRequest()
            try:
                await _record_choice(question, response, client, sent.ago_ms)
            except NoAnswer as problem:
                return await _reply_waiting(question, call, f"{problem} No answer was recorded.")
            return None
        if not client.can_elicit:
            return await _reply_waiting(question, call)
        requests = {INPUT_KEY: {"method": ELICIT_METHOD, "params": build_elicitation(question, client)}}
        state = self._states.write(question.request_id, call.tool, call.arguments)
        return {"resultType": "input_required", "inputRequests": requests, "requestState": state}


async def _record_choice(question: AskPerson, response: object, client: Client, after_ms: float) -> None:
    """Record the chosen option; raise `NoAnswer` if there is none, or if it came too soon."""
    choice = read_choice(response, question)
    if problem := question.find_haste(after_ms):
        raise NoAnswer(problem)
    await question.record_answer(choice, client.user)


async def _wait_for_answer(question: AskPerson, elicit: Elicit, client: Client, deadline: float) -> object:
    """Wait for the client's response; None if the request was answered through another channel first."""
    async with asyncio.timeout_at(deadline):
        if question.wait_until_answered is None:
            return await elicit(build_elicitation(question, client))
        client_task = asyncio.ensure_future(elicit(build_elicitation(question, client)))
        inbox_task = asyncio.ensure_future(question.wait_until_answered())
        try:
            await asyncio.wait({client_task, inbox_task}, return_when=asyncio.FIRST_COMPLETED)
            return client_task.result() if client_task.done() else inbox_task.result()
        finally:
            client_task.cancel()
            inbox_task.cancel()
            await asyncio.gather(client_task, inbox_task, return_exceptions=True)


async def _record_unanswered(question: AskPerson) -> None:
    if question.record_unanswered is not None:
        await question.record_unanswered()


async def _reply_waiting(question: AskPerson, call: _Call, remark: str = "") -> dict[str, Any]:
    await _record_unanswered(question)
    done = question.waiting_reply or _default_waiting_reply(question, call.context)
    return (msgspec.structs.replace(done, remarks=(*done.remarks, remark)) if remark else done).as_result()


def _default_waiting_reply(question: AskPerson, context: CallContext) -> Done:
    options = ", ".join(option.id for option in question.options)
    how = context.render(Command("answer", question.request_id, "OPTION"))
    return Done(
        f"This waits for a person: {question.message}\n"
        f"It is answered with {how}, where OPTION is one of: {options}. Then call this tool again."
    )


class Peer(msgspec.Struct, frozen=True):
    """Sends requests and notifications to the client; None for what the transport cannot send."""

    request: Callable[[str, dict[str, Any]], Awaitable[object]] | None = None
    notify: Callable[[str, dict[str, Any]], Awaitable[None]] | None = None


class Protocol:
    """The MCP server of an endpoint, without a transport: stdio, plain HTTP and the SDK call it."""

    def __init__(self, identity: Identity, tools: ServedTools, states: RequestStates) -> None:
        self.identity = identity
        self.tools = tools
        self._dispatcher = CallDispatcher(tools, states)
        self.capabilities = {
            **CAPABILITIES,
            **({"resources": {"subscribe": False, "listChanged": False}} if tools.resources else {}),
            **({"prompts": {"listChanged": False}} if tools.load_prompts is not None else {}),
        }

    def connect(self, peer: Peer | None = None) -> ClientConnection:
        return ClientConnection(self, peer or Peer())

    async def answer(self, message: Mapping[str, Any], open_request: ContextFactory) -> dict[str, Any]:
        """Return the response to a request, or an error response."""
        try:
            method, params = _read_request(message)
            result = await self.handle(method, params, open_request(method, params))
        except ProtocolError as error:
            return error_response(message["id"], error.code, str(error), error.data)
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    async def handle(self, method: str, params: Mapping[str, Any], request: RequestContext) -> dict[str, Any]:
        """Return the result of a request in the form of the client's revision; raise `ProtocolError` if there is none."""
        return render_result(await self._dispatch(method, params, request), request.client, self.identity)

    async def _dispatch(self, method: str, params: Mapping[str, Any], request: RequestContext) -> dict[str, Any]:
        client = request.client
        match method:
            case "tools/call":
                return await self._call_tool(params, request)
            case "tools/list":
                return _mark_cacheable({"tools": self.tools.table.describe()}, client)
            case "resources/list" | "resources/read" if self.tools.resources:
                return _mark_cacheable(self._read_resources(params, is_list=method == "resources/list"), client)
            case "prompts/list" | "prompts/get" if self.tools.load_prompts is not None:
                return await self._read_prompts(self.tools.load_prompts(), params, is_list=method == "prompts/list")
            case "ping" if not client.is_stateless:
                return {}
            case "initialize" | "server/discover" if client.is_stateless is (method == "server/discover"):
                return self._introduce(client)
            case _:
                raise ProtocolError(METHOD_NOT_FOUND, f"Method {method[:100]} not found.")

    def _introduce(self, client: Client) -> dict[str, Any]:
        introduction = {"capabilities": self.capabilities, "instructions": self.tools.instructions}
        if client.is_stateless:
            return _mark_cacheable({"supportedVersions": list(STATELESS_REVISIONS), **introduction}, client)
        return {"protocolVersion": client.revision, "serverInfo": self.identity.info, **introduction}

    def _read_resources(self, params: Mapping[str, Any], *, is_list: bool) -> dict[str, Any]:
        if is_list:
            return {"resources": [resource.describe() for resource in self.tools.resources]}
        try:
            return find_resource(self.tools.resources, params.get("uri")).contents()
        except UsageProblem as error:
            raise ProtocolError(INVALID_PARAMS, str(error)) from error

    async def _read_prompts(self, prompts: Prompts, params: Mapping[str, Any], *, is_list: bool) -> dict[str, Any]:
        try:
            return await (
                prompts.list(params.get("cursor")) if is_list else prompts.get(params.get("name"), params.get("arguments"))
            )
        except FidelioError as error:
            raise ProtocolError(INVALID_PARAMS, str(error)) from error

    async def _call_tool(self, params: Mapping[str, Any], request: RequestContext) -> dict[str, Any]:
        name, arguments = params.get("name"), params.get("arguments")
        arguments = {} if arguments is None else arguments
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise ProtocolError(INVALID_PARAMS, "tools/call needs name, a string, and arguments, an object.")
        state, responses = params.get("requestState"), params.get("inputResponses")
        if isinstance(state, str) and request.client.is_stateless:
            responses = responses if isinstance(responses, dict) else {}
            request = msgspec.structs.replace(request, state=state, responses=responses)
        return await self._dispatcher.call(name, arguments, request)


class ClientConnection:
    """A connection on which both sides send messages, and the client of its handshake."""

    def __init__(self, protocol: Protocol, peer: Peer) -> None:
        self._protocol = protocol
        self._peer = peer
        self._client = Client()
        self._delivered = DeliveredTexts()

    async def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the response to a request, or an error response."""
        return await self._protocol.answer(message, self._open_request)

    def _open_request(self, method: str, params: Mapping[str, Any]) -> RequestContext:
        if method == "initialize":
            self._client = negotiate(params)
            return RequestContext(self._client)
        client = read_envelope(params) or self._client
        elicit = self._elicit if self._peer.request is not None else None
        progress = self._make_reporter(params.get("_meta"))
        return RequestContext(client, elicit, progress=progress, delivered=self._delivered)

    async def _elicit(self, params: dict[str, Any]) -> object:
        assert self._peer.request is not None
        return await self._peer.request(ELICIT_METHOD, params)

    def _make_reporter(self, meta: object) -> Reporter | None:
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        notify = self._peer.notify
        if notify is None or not is_request_id(token):
            return None

        async def report(done: float, total: float | None, message: str | None) -> None:
            params = {"progressToken": token, "progress": done, "total": total, "message": message}
            await notify("notifications/progress", {key: value for key, value in params.items() if value is not None})

        return report


def _read_request(message: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    method, params = message.get("method"), message.get("params")
    if not isinstance(method, str):
        raise ProtocolError(INVALID_REQUEST, "The method of a request must be a string.")
    params = {} if params is None else params
    if not isinstance(params, dict):
        raise ProtocolError(INVALID_PARAMS, "The params of a request must be an object.")
    return method, params


def _mark_cacheable(result: dict[str, Any], client: Client) -> dict[str, Any]:
    return {"ttlMs": CACHE_MILLISECONDS, "cacheScope": CACHE_SCOPE, **result} if client.is_stateless else result
