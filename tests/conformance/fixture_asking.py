"""Tools and a prompt of the suite that ask the client something before they reply, in both eras."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
    TextContent,
)

from fidelio.errors import UsageProblem
from fidelio.surfaces.mcp.endpoint import CAPABILITIES_KEY, INVALID_PARAMS, ProtocolError, RequestStates
from fidelio.surfaces.mcp.protocol import RequestContext
from fidelio.tokens.keyring import FixedKeys
from tests.conformance.fixture_content import Json, get_prompt, text

Context = ServerRequestContext[Any, Any]
Special = Callable[[Json, RequestContext], Awaitable[Json]]

STATES = RequestStates(lambda: FixedKeys(b"only for the conformance suite.."))


def says(words: str) -> Json:
    return {"content": [text(words)]}


def fields(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


def ask_for(message: str, schema: Json) -> Json:
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def ask_model(words: str, tokens: int) -> Json:
    message = {"role": "user", "content": text(words)}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": tokens}}


NAME = ask_for("What is your name?", fields(name={"type": "string"}))
ROOTS: Json = {"method": "roots/list", "params": {}}


# Up to 2025-11-25: a request in the middle of the call


async def sampling(context: Context) -> Json:
    words = str((context.params or {})["arguments"]["prompt"])
    message = SamplingMessage(role="user", content=TextContent(type="text", text=words))
    request = CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=100))
    about = ServerMessageMetadata(related_request_id=context.request_id)
    result = await context.session.send_request(request, CreateMessageResult, metadata=about)
    return says(f"LLM response: {result.content}")


def elicitation(schema: Json) -> Special:
    async def handler(params: Json, request: RequestContext) -> Json:
        message = str(params.get("arguments", {}).get("message", "Please fill this in."))
        assert request.elicit is not None
        result: Any = await request.elicit({"message": message, "requestedSchema": schema})
        return says(f"Elicitation completed: action={result['action']}, content={result.get('content')}")

    return handler


# From 2026-07-28 on: a result that says what is missing


def given(params: Json) -> Json:
    return dict(params.get("inputResponses") or {})


def still_needed(params: Json, wanted: Mapping[str, Json]) -> bool:
    return not given(params).keys() >= wanted.keys()


def missing(wanted: Mapping[str, Json], state: str | None = None) -> Json:
    asked: Json = {"resultType": "input_required", "inputRequests": dict(wanted)}
    return asked if state is None else {**asked, "requestState": state}


def asking(**wanted: Json) -> Special:
    async def handler(params: Json, _: RequestContext) -> Json:
        return missing(wanted) if still_needed(params, wanted) else says(f"Received: {given(params)}")

    return handler


def asking_with_state(**wanted: Json) -> Special:
    async def handler(params: Json, _: RequestContext) -> Json:
        if "requestState" not in params or still_needed(params, wanted):
            return missing(wanted, STATES.write("r_1", params["name"], {}))
        opened(params)
        return says(f"state-ok: {given(params)}")

    return handler


def opened(params: Json) -> str:
    try:
        return STATES.read(params["requestState"], params["name"], {}).id
    except UsageProblem as error:
        raise ProtocolError(INVALID_PARAMS, str(error)) from error


async def multi_round(params: Json, _: RequestContext) -> Json:
    reached = opened(params) if "requestState" in params else "start"
    if reached == "first" and "step1" in given(params):
        colour = ask_for("Step 2: What is your favorite color?", fields(color={"type": "string"}))
        return missing({"step2": colour}, STATES.write("second", params["name"], {}))
    if reached == "second" and "step2" in given(params):
        return says("Both steps are done.")
    name = ask_for("Step 1: What is your name?", fields(name={"type": "string"}))
    return missing({"step1": name}, STATES.write("first", params["name"], {}))


def declared(params: Json) -> Json:
    return dict(params.get("_meta", {}).get(CAPABILITIES_KEY, {}))


async def by_capability(params: Json, _: RequestContext) -> Json:
    askable = {"elicitation": ("user_name", NAME), "sampling": ("greeting", ask_model("Generate a greeting", 50))}
    wanted = dict(question for capability, question in askable.items() if capability in declared(params))
    return missing(wanted) if wanted and still_needed(params, wanted) else says("Nothing to ask.")


async def needs_sampling(params: Json, _: RequestContext) -> Json:
    if "sampling" not in declared(params):
        data: Json = {"requiredCapabilities": {"sampling": {}}}
        raise ProtocolError(MISSING_REQUIRED_CLIENT_CAPABILITY, "This tool needs sampling.", data)
    return says("Sampling is there.")


async def prompt_or_question(params: Json) -> Json:
    if params.get("name") != "test_input_required_result_prompt":
        return await get_prompt(params)
    wanted = {"user_context": ask_for("What context should the prompt use?", fields(context={"type": "string"}))}
    if still_needed(params, wanted):
        return missing(wanted)
    return {"messages": [{"role": "user", "content": text(f"Context: {given(params)}")}]}
