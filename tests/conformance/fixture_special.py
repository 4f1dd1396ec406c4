"""The suite's tools that are beyond a table of texts, by name, with the schemas it looks for."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from mcp.shared.exceptions import MCPDeprecationWarning

from fidelio.surfaces.mcp.protocol import RequestContext
from tests.conformance.fixture_asking import (
    NAME,
    ROOTS,
    Context,
    Special,
    ask_for,
    ask_model,
    asking,
    asking_with_state,
    by_capability,
    elicitation,
    fields,
    multi_round,
    needs_sampling,
    sampling,
    says,
)
from tests.conformance.fixture_content import Json, embedded, image, sound, text


@dataclass(frozen=True)
class SpecialTool:
    handler: Special
    schema: Json = field(default_factory=lambda: {"type": "object", "properties": {}})


def showing(*content: Json) -> SpecialTool:
    async def handler(_: Json, __: RequestContext) -> Json:
        return {"content": list(content)}

    return SpecialTool(handler)


async def logging(context: Context) -> Json:
    with warnings.catch_warnings():
        # The suite still looks at what newer revisions have deprecated.
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await context.session.send_log_message("info", words, related_request_id=context.request_id)
    return says("Three messages were logged.")


def choices(key: str, *names: str) -> list[Json]:
    return [{"const": f"{key}{number}", "title": name} for number, name in enumerate(names, start=1)]


DEFAULTS = fields(
    name={"type": "string", "default": "John Doe"},
    age={"type": "integer", "default": 30},
    score={"type": "number", "default": 95.5},
    status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    verified={"type": "boolean", "default": True},
)
OPTIONS = ["option1", "option2", "option3"]
ENUMS = fields(
    untitledSingle={"type": "string", "enum": OPTIONS},
    titledSingle={"type": "string", "oneOf": choices("value", "First Option", "Second Option", "Third Option")},
    legacyEnum={
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    untitledMulti={"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    titledMulti={"type": "array", "items": {"anyOf": choices("value", "First Choice", "Second Choice", "Third Choice")}},
)
PERSON = fields(username={"type": "string", "description": "A name"}, email={"type": "string", "description": "An address"})
CONFIRM = ask_for("Please confirm", fields(ok={"type": "boolean"}))
WIDE_SCHEMA: Json = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
MIRRORED = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}

SPECIAL: dict[str, SpecialTool] = {
    "test_image_content": showing(image()),
    "test_audio_content": showing(sound()),
    "test_embedded_resource": showing(
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": showing(
        text("Multiple content types test:"),
        image(),
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ),
    "test_tool_with_logging": showing(text("Nothing was logged.")),
    "test_logging_tool": showing(text("Nothing was logged.")),
    "test_sampling": SpecialTool(showing(text("Nothing was sampled.")).handler, fields(prompt={"type": "string"})),
    "test_elicitation": SpecialTool(elicitation(PERSON), fields(message={"type": "string"})),
    "test_elicitation_sep1034_defaults": SpecialTool(elicitation(DEFAULTS)),
    "test_elicitation_sep1330_enums": SpecialTool(elicitation(ENUMS)),
    "json_schema_2020_12_tool": SpecialTool(showing(text("ok")).handler, WIDE_SCHEMA),
    # Our streams cannot be taken up again, so this one simply replies.
    "test_reconnection": showing(text("Replied without a break.")),
    "test_mirrored_header": SpecialTool(showing(text("ok")).handler, MIRRORED),
    "test_missing_capability": SpecialTool(needs_sampling),
    "test_streaming_elicitation": SpecialTool(asking(user_name=NAME)),
    "test_input_required_result_elicitation": SpecialTool(asking(user_name=NAME)),
    "test_input_required_result_sampling": SpecialTool(
        asking(capital_question=ask_model("What is the capital of France?", 100))
    ),
    "test_input_required_result_list_roots": SpecialTool(asking(client_roots=ROOTS)),
    "test_input_required_result_request_state": SpecialTool(asking_with_state(confirm=CONFIRM)),
    "test_input_required_result_tampered_state": SpecialTool(asking_with_state(confirm=CONFIRM)),
    "test_input_required_result_multiple_inputs": SpecialTool(
        asking_with_state(user_name=NAME, greeting=ask_model("Generate a greeting", 50), client_roots=ROOTS)
    ),
    "test_input_required_result_multi_round": SpecialTool(multi_round),
    "test_input_required_result_capabilities": SpecialTool(by_capability),
}


# What these send in the middle of a call, only the SDK can send, in a session or a stream.
STREAMED: dict[str, Callable[[Context], Awaitable[Json]]] = {
    "test_tool_with_logging": logging,
    "test_logging_tool": logging,
    "test_sampling": sampling,
}
