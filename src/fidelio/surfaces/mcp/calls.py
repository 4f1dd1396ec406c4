"""`tools/call`: carries out a call to its end, with the questions to a person in the middle of it.

All revisions show a form with one field, the answer; they differ in how a choice gets a readable label.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from fidelio.errors import FidelioError, UsageProblem
from fidelio.surfaces.mcp.revisions import INVALID_PARAMS, Client, ProtocolError
from fidelio.surfaces.mcp.served import ServedTools
from fidelio.surfaces.mcp.states import RequestStates
from fidelio.toolkit import AskPerson, CallContext, Done, Option, Reporter

FIELD = "answer"
METHOD = "elicitation/create"


class Refused(Exception):
    """The person, or the client, did not choose. The text says what happened, as a whole sentence."""


def form(question: AskPerson, client: Client) -> dict[str, Any]:
    """The parameters of `elicitation/create`."""
    schema = {"type": "object", "properties": {FIELD: _choice(question.options, client)}, "required": [FIELD]}
    params = {"message": _message(question), "requestedSchema": schema}
    return {"mode": "form", **params} if client.knows_titles else params


def _choice(options: Sequence[Option], client: Client) -> dict[str, Any]:
    field = {"type": "string", "title": "Answer"}
    if client.knows_titles:
        return {**field, "oneOf": [{"const": option.id, "title": option.label} for option in options]}
    return {**field, "enum": [option.id for option in options], "enumNames": [option.label for option in options]}


def _message(question: AskPerson) -> str:
    # A form has room for labels only, so what an option means goes into the text above it.
    explained = [f"- {option.label}: {option.description}" for option in question.options if option.description]
    return "\n".join([question.message, "", *explained]) if explained else question.message


def read_choice(response: object, question: AskPerson) -> str:
    """The chosen option; `Refused` when there is none."""
    action = response.get("action") if isinstance(response, Mapping) else None
    if action == "decline":
        raise Refused("The person declined to answer.")
    if action == "cancel":
        raise Refused("The person closed the question without an answer.")
    content = response.get("content") if isinstance(response, Mapping) else None
    chosen = content.get(FIELD) if isinstance(content, Mapping) else None
    if action != "accept" or chosen not in [option.id for option in question.options]:
        known = ", ".join(option.id for option in question.options)
        raise Refused(f"The client brought back no answer that can be taken; the options are: {known}.")
    return str(chosen)


# Clients give up on a call after a minute; a call that waits for a person ends before that and says that it still waits.
ANSWER_SECONDS = 50.0
INPUT = "person"

Elicit = Callable[[dict[str, Any]], Awaitable[object]]


class Exchange(msgspec.Struct, frozen=True):
    """What a front knows about one call beside tool and arguments.

    `elicit` sends a question to the client and gives its response, or raises `Refused`; it is None where there is no way to.
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
    exchange: Exchange
    context: CallContext
    deadline: float
    # The request whose answer this call brings; empty when it brings none.
    brings: str = ""


class Calls:
    """Carries out the calls of one endpoint."""

    def __init__(self, tools: ServedTools, states: RequestStates, *, timeout: float = ANSWER_SECONDS) -> None:
        self._tools = tools
        self._states = states
        self._timeout = timeout

    async def carry_out(self, tool: str, arguments: Mapping[str, Any], exchange: Exchange) -> dict[str, Any]:
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
        except Refused as refused:
            return await _waiting(question, call, f"{refused} Nothing was recorded.")
        except asyncio.CancelledError:
            # The call was made, and is on record, whether its client waits for the end or not.
            await asyncio.shield(_note(question))
            raise
        return None

    async def _ask_between_calls(self, question: AskPerson, call: _Call) -> dict[str, Any] | None:
        client, response = call.exchange.client, call.exchange.responses.get(INPUT)
        if call.brings == question.request_id and response is not None:
            call.brings = ""
            try:
                await question.answered(read_choice(response, question), client.user)
            except Refused as refused:
                return await _waiting(question, call, f"{refused} Nothing was recorded.")
            return None
        if not client.can_ask:
            return await _waiting(question, call)
        requests = {INPUT: {"method": METHOD, "params": form(question, client)}}
        state = self._states.write(question.request_id, call.tool, call.arguments)
        return {"resultType": "input_required", "inputRequests": requests, "requestState": state}


async def _first_answer(question: AskPerson, elicit: Elicit, client: Client, deadline: float) -> object:
    """The client's response; None when the question was answered elsewhere in the meantime."""
    async with asyncio.timeout_at(deadline):
        if question.elsewhere is None:
            return await elicit(form(question, client))
        asking = asyncio.ensure_future(elicit(form(question, client)))
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
