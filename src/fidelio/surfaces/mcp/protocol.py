"""JSON-RPC and MCP without a transport: a message comes in, a reply goes out.

`CallDispatcher` carries out `tools/call` to its end, including the question to a person in the middle of it; HTTP uses it too. All
revisions show a form with one field, the answer; they differ in how a choice gets a readable label. An unexpected error becomes
a reply here, at the outermost boundary of a request: without one the client would wait until its timeout.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from fidelio.errors import FidelioError, UsageProblem
from fidelio.surfaces.mcp.endpoint import (
    CACHE_MILLISECONDS,
    CACHE_SCOPE,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    STATELESS_REVISIONS,
    Client,
    Identity,
    ProtocolError,
    RequestStates,
    ServedTools,
    find_resource,
    negotiate,
    read_envelope,
    render_result,
)
from fidelio.toolkit import AnswerOption, AskPerson, CallContext, Done, Reporter

ANSWER_FIELD = "answer"
ELICIT_METHOD = "elicitation/create"


class NoAnswer(Exception):
    """The person, or the client, did not choose. The text says what happened, as a whole sentence."""


def build_elicitation(question: AskPerson, client: Client) -> dict[str, Any]:
    """The parameters of `elicitation/create`."""
    schema = {"type": "object", "properties": {ANSWER_FIELD: _choice(question.options, client)}, "required": [ANSWER_FIELD]}
    params = {"message": _message(question), "requestedSchema": schema}
    return {"mode": "form", **params} if client.knows_titles else params


def _choice(options: Sequence[AnswerOption], client: Client) -> dict[str, Any]:
    field = {"type": "string", "title": "Answer"}
    if client.knows_titles:
        return {**field, "oneOf": [{"const": option.id, "title": option.label} for option in options]}
    return {**field, "enum": [option.id for option in options], "enumNames": [option.label for option in options]}


def _message(question: AskPerson) -> str:
    # A form has room for labels only, so what an option means goes into the text above it.
    explained = [f"- {option.label}: {option.description}" for option in question.options if option.description]
    return "\n".join([question.message, "", *explained]) if explained else question.message


def read_choice(response: object, question: AskPerson) -> str:
    """The chosen option; `NoAnswer` when there is none."""
    action = response.get("action") if isinstance(response, Mapping) else None
    if action == "decline":
        raise NoAnswer("The person declined to answer.")
    if action == "cancel":
        raise NoAnswer("The person closed the question without an answer.")
    content = response.get("content") if isinstance(response, Mapping) else None
    chosen = content.get(ANSWER_FIELD) if isinstance(content, Mapping) else None
    if action != "accept" or chosen not in [option.id for option in question.options]:
        known = ", ".join(option.id for option in question.options)
        raise NoAnswer(f"The client brought back no answer that can be taken; the options are: {known}.")
    return str(chosen)


# Clients give up on a call after a minute; a call that waits for a person ends before that and says that it still waits.
ANSWER_SECONDS = 50.0
INPUT_KEY = "person"

Elicit = Callable[[dict[str, Any]], Awaitable[object]]


class RequestContext(msgspec.Struct, frozen=True):
    """What a front knows about one call beside tool and arguments.

    `elicit` sends a question to the client and gives its response, or raises `NoAnswer`; it is None where there is no way to.
    `state` and `responses` are what a repeated call brings back from 2026-07-28 on. `caller` is the run that an agent's client
    claims with its request. The claim only takes away rights: what the agent starts counts as its own, and what it asks is
    answered by others. A client that holds the bearer token and claims nothing counts as a person's program. Over stdio the
    server is a child of the agent and has the mark in its environment instead.
    """

    client: Client = msgspec.field(default_factory=Client)
    elicit: Elicit | None = None
    state: str | None = None
    responses: Mapping[str, Any] = msgspec.field(default_factory=dict)
    progress: Reporter | None = None
    caller: str = ""


class _Call(msgspec.Struct):
    tool: str
    arguments: Mapping[str, Any]
    exchange: RequestContext
    context: CallContext
    deadline: float
    # The request whose answer this call brings; empty when it brings none.
    brings: str = ""


class CallDispatcher:
    """Carries out the calls of one endpoint."""

    def __init__(self, tools: ServedTools, states: RequestStates, *, timeout: float = ANSWER_SECONDS) -> None:
        self._tools = tools
        self._states = states
        self._timeout = timeout

    async def carry_out(self, tool: str, arguments: Mapping[str, Any], exchange: RequestContext) -> dict[str, Any]:
        """The result of `tools/call`. Every failure is a result, too, unless it is the client that broke the protocol."""
        context = self._tools.context(exchange.progress, exchange.caller)
        call = _Call(tool, arguments, exchange, context, asyncio.get_running_loop().time() + self._timeout)
        try:
            return await self._to_the_end(call)
        except ProtocolError:
            raise
        except FidelioError as error:
            return Done(context.render(error), is_error=True).as_result()
        except Exception as error:  # noqa: BLE001  # the outermost boundary of a request: the client must get a reply
            traceback.print_exc(file=sys.stderr)
            text = f"Unexpected {type(error).__name__} in {tool}; details are in the server's log."
            return Done(text, is_error=True).as_result()

    async def _to_the_end(self, call: _Call) -> dict[str, Any]:
        if call.exchange.state is not None:
            call.brings = self._read_state(call.exchange.state, call)
            # The call that asked was this one: meanwhile the person may have answered elsewhere.
            call.context.person_requests.add(call.brings)
        while True:
            outcome = await self._tools.table.call(call.tool, call.arguments, call.context)
            if isinstance(outcome, Done):
                return outcome.as_result()
            reply = await self._ask(outcome, call)
            if reply is not None:
                return reply

    def _read_state(self, state: str, call: _Call) -> str:
        try:
            return self._states.read(state, call.tool, call.arguments)
        except UsageProblem as error:
            # The client carries it, not the model: so this is for the client to hear.
            raise ProtocolError(INVALID_PARAMS, str(error)) from error

    async def _ask(self, question: AskPerson, call: _Call) -> dict[str, Any] | None:
        """The reply when there is no answer yet; None when there is one, so that the handler can go on."""
        exchange = call.exchange
        if exchange.client.is_stateless:
            return await self._ask_between_calls(question, call)
        if exchange.elicit is None or not exchange.client.can_ask:
            return await _waiting(question, call)
        try:
            response = await _first_answer(question, exchange.elicit, exchange.client, call.deadline)
            if response is not None:
                await question.answered(read_choice(response, question), exchange.client.user)
        except TimeoutError:
            return await _waiting(
                question, call, f"Nobody answered within {self._timeout:g} seconds; the question still waits."
            )
        except NoAnswer as refused:
            return await _waiting(question, call, f"{refused} Nothing was recorded.")
        except asyncio.CancelledError:
            # The call was made, and is on record, whether its client waits for the end or not.
            await asyncio.shield(_note(question))
            raise
        return None

    async def _ask_between_calls(self, question: AskPerson, call: _Call) -> dict[str, Any] | None:
        client, response = call.exchange.client, call.exchange.responses.get(INPUT_KEY)
        if call.brings == question.request_id and response is not None:
            call.brings = ""
            try:
                await question.answered(read_choice(response, question), client.user)
            except NoAnswer as refused:
                return await _waiting(question, call, f"{refused} Nothing was recorded.")
            return None
        if not client.can_ask:
            return await _waiting(question, call)
        requests = {INPUT_KEY: {"method": ELICIT_METHOD, "params": build_elicitation(question, client)}}
        state = self._states.write(question.request_id, call.tool, call.arguments)
        return {"resultType": "input_required", "inputRequests": requests, "requestState": state}


async def _first_answer(question: AskPerson, elicit: Elicit, client: Client, deadline: float) -> object:
    """The client's response; None when the question was answered elsewhere in the meantime."""
    async with asyncio.timeout_at(deadline):
        if question.elsewhere is None:
            return await elicit(build_elicitation(question, client))
        asking = asyncio.ensure_future(elicit(build_elicitation(question, client)))
        watching = asyncio.ensure_future(question.elsewhere())
        try:
            await asyncio.wait({asking, watching}, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else watching.result()
        finally:
            asking.cancel()
            watching.cancel()
            await asyncio.gather(asking, watching, return_exceptions=True)


async def _note(question: AskPerson) -> None:
    if question.unanswered is not None:
        await question.unanswered()


async def _waiting(question: AskPerson, call: _Call, remark: str = "") -> dict[str, Any]:
    await _note(question)
    done = question.waiting or _plain_waiting(question, call.context)
    return (msgspec.structs.replace(done, remarks=(*done.remarks, remark)) if remark else done).as_result()


def _plain_waiting(question: AskPerson, context: CallContext) -> Done:
    options = ", ".join(option.id for option in question.options)
    how = context.render(f"`fidelio answer {question.request_id} OPTION`")
    return Done(
        f"This waits for a person: {question.message}\n"
        f"It is answered with {how}, where OPTION is one of: {options}. Then call this tool again."
    )


# What writing a reply as JSON can end in when a tool replies with what is none.
ENCODING_ERRORS: Final = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
CAPABILITIES: Mapping[str, Any] = {"tools": {"listChanged": False}}


class Peer(msgspec.Struct, frozen=True):
    """The way back to a client, as far as the transport has one."""

    request: Callable[[str, dict[str, Any]], Awaitable[object]] | None = None
    notify: Callable[[str, dict[str, Any]], Awaitable[None]] | None = None


class Protocol:
    """Answers the MCP messages of one endpoint."""

    def __init__(self, identity: Identity, tools: ServedTools, states: RequestStates) -> None:
        self.identity = identity
        self.tools = tools
        self.calls = CallDispatcher(tools, states)
        self.capabilities = (
            {**CAPABILITIES, "resources": {"subscribe": False, "listChanged": False}} if tools.resources else CAPABILITIES
        )

    def conversation(self, peer: Peer | None = None) -> ClientConnection:
        return ClientConnection(self, peer or Peer())


class ClientConnection:
    """Everything said with one client."""

    def __init__(self, protocol: Protocol, peer: Peer) -> None:
        self._protocol = protocol
        self._peer = peer
        self._client = Client()

    async def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a request."""
        try:
            result = await self._request(message.get("method"), message.get("params"))
        except ProtocolError as error:
            return error_response(message["id"], error.code, str(error), error.data)
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    async def _request(self, method: object, params: object) -> dict[str, Any]:
        if not isinstance(method, str):
            raise ProtocolError(INVALID_REQUEST, "The method of a request is text.")
        params = {} if params is None else params
        if not isinstance(params, dict):
            raise ProtocolError(INVALID_PARAMS, "The params of a request are an object.")
        if method == "initialize":
            return self._initialize(params)
        introduced = read_envelope(params)
        client = introduced or self._client
        return render_result(await self._result(method, params, client), client, self._protocol.identity)

    async def _result(self, method: str, params: dict[str, Any], client: Client) -> dict[str, Any]:
        match method:
            case "tools/call":
                return await self._call(params, client)
            case "tools/list":
                return _cacheable({"tools": self._protocol.tools.table.describe()}, client)
            case "resources/list" | "resources/read" if self._protocol.tools.resources:
                return _cacheable(self._resources(params, listed=method == "resources/list"), client)
            case "ping" if not client.is_stateless:
                return {}
            case "server/discover" if client.is_stateless:
                about = {"supportedVersions": list(STATELESS_REVISIONS), "capabilities": self._protocol.capabilities}
                return _cacheable({**about, "instructions": self._protocol.tools.instructions}, client)
            case _:
                raise ProtocolError(METHOD_NOT_FOUND, f"Method {method[:100]} not found.")

    def _initialize(self, params: Mapping[str, Any]) -> dict[str, Any]:
        self._client = negotiate(params)
        identity = self._protocol.identity
        return {
            "protocolVersion": self._client.revision,
            "capabilities": self._protocol.capabilities,
            "serverInfo": identity.info,
            "instructions": self._protocol.tools.instructions,
        }

    def _resources(self, params: Mapping[str, Any], *, listed: bool) -> dict[str, Any]:
        resources = self._protocol.tools.resources
        if listed:
            return {"resources": [one.describe() for one in resources]}
        try:
            return find_resource(resources, params.get("uri")).contents()
        except UsageProblem as error:
            raise ProtocolError(INVALID_PARAMS, str(error)) from error

    async def _call(self, params: Mapping[str, Any], client: Client) -> dict[str, Any]:
        name, arguments = params.get("name"), params.get("arguments")
        arguments = {} if arguments is None else arguments
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise ProtocolError(INVALID_PARAMS, "tools/call takes a name, which is text, and an object of arguments.")
        return await self._protocol.calls.carry_out(name, arguments, self._exchange(params, client))

    def _exchange(self, params: Mapping[str, Any], client: Client) -> RequestContext:
        state, responses = params.get("requestState"), params.get("inputResponses")
        return RequestContext(
            client,
            self._elicit if self._peer.request is not None else None,
            state if isinstance(state, str) and client.is_stateless else None,
            responses if isinstance(responses, dict) else {},
            self._reporter(params.get("_meta")),
        )

    async def _elicit(self, params: dict[str, Any]) -> object:
        assert self._peer.request is not None
        return await self._peer.request(ELICIT_METHOD, params)

    def _reporter(self, meta: object) -> Reporter | None:
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        notify = self._peer.notify
        if notify is None or not is_request_id(token):
            return None

        async def report(done: float, total: float | None, message: str | None) -> None:
            said = {"progressToken": token, "progress": done, "total": total, "message": message}
            await notify("notifications/progress", {key: value for key, value in said.items() if value is not None})

        return report


def _cacheable(result: dict[str, Any], client: Client) -> dict[str, Any]:
    return {"ttlMs": CACHE_MILLISECONDS, "cacheScope": CACHE_SCOPE, **result} if client.is_stateless else result


def is_request_id(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def error_response(request: object, code: int, message: str, data: object = None) -> dict[str, Any]:
    error = {"code": code, "message": message} if data is None else {"code": code, "message": message, "data": data}
    return {"jsonrpc": "2.0", "id": request, "error": error}
