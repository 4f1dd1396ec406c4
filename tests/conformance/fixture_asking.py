"""Tools and a prompt of the suite that ask the client something before they reply, in both eras."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    GetPromptRequestParams,
    SamplingMessage,
    TextContent,
)

from fidelio.errors import UsageProblem
from fidelio.surfaces.mcp.endpoint import RequestStates
from fidelio.tokens.keyring import FixedKeys
from tests.conformance.fixture_content import Json, get_prompt, text

Context = ServerRequestContext[Any, Any]
Special = Callable[[Context, CallToolRequestParams], Awaitable[Json]]

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


async def sampling(context: Context, params: CallToolRequestParams) -> Json:
    words = str((params.arguments or {})["prompt"])
    message = SamplingMessage(role="user", content=TextContent(type="text", text=words))
    request = CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=100))
    about = ServerMessageMetadata(related_request_id=context.request_id)
    result = await context.session.send_request(request, CreateMessageResult, metadata=about)
    return says(f"LLM response: {result.content}")


def elicitation(schema: Json) -> Special:
    async def handler(context: Context, params: CallToolRequestParams) -> Json:
        message = str((params.arguments or {}).get("message", "Please fill this in."))
        result = await context.session.elicit_form(message, schema, context.request_id)
        return says(f"Elicitation completed: action={result.action}, content={result.content}")

    return handler


# From 2026-07-28 on: a result that says what is missing


def still_needed(params: CallToolRequestParams | GetPromptRequestParams, wanted: Mapping[str, Json]) -> bool:
    given = params.input_responses or {}
    return not all(key in given for key in wanted)


def missing(wanted: Mapping[str, Json], state: str | None = None) -> Json:
    asked: Json = {"resultType": "input_required", "inputRequests": dict(wanted)}
    return asked if state is None else {**asked, "requestState": state}


def asking(**wanted: Json) -> Special:
    async def handler(_: Context, params: CallToolRequestParams) -> Json:
        if still_needed(params, wanted):
            return missing(wanted)
        return says(f"Received: {params.input_responses}")

    return handler


def asking_with_state(**wanted: Json) -> Special:
    async def handler(_: Context, params: CallToolRequestParams) -> Json:
        if params.request_state is None or still_needed(params, wanted):
            return missing(wanted, STATES.write("r_1", params.name, {}))
        opened(params)
        return says(f"state-ok: {params.input_responses}")

    return handler


def opened(params: CallToolRequestParams) -> str:
    try:
        return STATES.read(params.request_state or "", params.name, {})
    except UsageProblem as error:
        raise MCPError(code=INVALID_PARAMS, message=str(error)) from error


async def multi_round(_: Context, params: CallToolRequestParams) -> Json:
    reached = opened(params) if params.request_state else "start"
    given = params.input_responses or {}
    if reached == "first" and "step1" in given:
        colour = ask_for("Step 2: What is your favorite color?", fields(color={"type": "string"}))
        return missing({"step2": colour}, STATES.write("second", params.name, {}))
    if reached == "second" and "step2" in given:
        return says("Both steps are done.")
    name = ask_for("Step 1: What is your name?", fields(name={"type": "string"}))
    return missing({"step1": name}, STATES.write("first", params.name, {}))


async def by_capability(context: Context, params: CallToolRequestParams) -> Json:
    declared = context.session.client_capabilities
    wanted: dict[str, Json] = {}
    if declared is not None and declared.elicitation is not None:
        wanted["user_name"] = NAME
    if declared is not None and declared.sampling is not None:
        wanted["greeting"] = ask_model("Generate a greeting", 50)
    return missing(wanted) if wanted and still_needed(params, wanted) else says("Nothing to ask.")


async def needs_sampling(context: Context, _: CallToolRequestParams) -> Json:
    declared = context.session.client_capabilities
    if declared is None or declared.sampling is None:
        data: Json = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(code=MISSING_REQUIRED_CLIENT_CAPABILITY, message="This tool needs sampling.", data=data)
    return says("Sampling is there.")


async def prompt_or_question(context: Context, params: GetPromptRequestParams) -> Json:
    if params.name != "test_input_required_result_prompt":
        return await get_prompt(context, params)
    wanted = {"user_context": ask_for("What context should the prompt use?", fields(context={"type": "string"}))}
    if still_needed(params, wanted):
        return missing(wanted)
    return {"messages": [{"role": "user", "content": text(f"Context: {params.input_responses}")}]}
