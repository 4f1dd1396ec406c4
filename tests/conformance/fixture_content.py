"""What the suite expects and the product does not have: images, sound, resources and prompts."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from fidelio.surfaces.mcp.endpoint import INVALID_PARAMS, ProtocolError

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="

Json = dict[str, Any]
Handler = Callable[[Json], Awaitable[Json]]
TEXT, BINARY, TEMPLATE = "test://static-text", "test://static-binary", "test://template/{id}/data"
_TEMPLATED = re.compile(r"test://template/([^/]+)/data")


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def image() -> Json:
    return {"type": "image", "data": PNG, "mimeType": "image/png"}


def sound() -> Json:
    return {"type": "audio", "data": WAV, "mimeType": "audio/wav"}


def embedded(uri: str, mime: str, words: str) -> Json:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": words}}


# Resources


async def list_resources(_: Json) -> Json:
    named = {"name": "text", "description": "A text.", "mimeType": "text/plain"}
    picture = {"name": "binary", "description": "A picture.", "mimeType": "image/png"}
    return {"resources": [{"uri": TEXT, **named}, {"uri": BINARY, **picture}]}


async def list_templates(_: Json) -> Json:
    return {"resourceTemplates": [{"uriTemplate": TEMPLATE, "name": "template", "description": "Data by id."}]}


async def read_resource(params: Json) -> Json:
    uri = str(params["uri"])
    if uri == TEXT:
        words = "This is the content of the static text resource."
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": words}]}
    if uri == BINARY:
        return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PNG}]}
    if found := _TEMPLATED.fullmatch(uri):
        data = {"id": found[1], "templateTest": True, "data": f"Data for ID: {found[1]}"}
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}]}
    raise ProtocolError(INVALID_PARAMS, "Resource not found", {"uri": uri})


# Prompts

PROMPTS = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
    "test_input_required_result_prompt": [],
}


async def list_prompts(_: Json) -> Json:
    return {
        "prompts": [
            {"name": name, "description": "A prompt.", "arguments": [{"name": a, "required": True} for a in wanted]}
            for name, wanted in PROMPTS.items()
        ]
    }


def prompt_messages(name: str, given: dict[str, str]) -> list[Json]:
    match name:
        case "test_simple_prompt":
            return [text("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            return [text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")]
        case "test_prompt_with_embedded_resource":
            resource = embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
            return [resource, text("Please process the embedded resource above.")]
        case "test_prompt_with_image":
            return [image(), text("Please analyze the image above.")]
        case _:
            raise ProtocolError(INVALID_PARAMS, "There is no such prompt")


async def get_prompt(params: Json) -> Json:
    content = prompt_messages(params["name"], params.get("arguments", {}))
    return {"messages": [{"role": "user", "content": part} for part in content]}


# The rest


async def complete(_: Json) -> Json:
    return {"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}}


async def accept(_: Json) -> Json:
    return {}


METHODS: dict[str, Handler] = {
    "resources/list": list_resources,
    "resources/templates/list": list_templates,
    "resources/read": read_resource,
    "prompts/list": list_prompts,
    "completion/complete": complete,
}
# The newest revision has no such methods.
HANDSHAKE_METHODS = ("resources/subscribe", "resources/unsubscribe", "logging/setLevel")
CACHED = ("resources/list", "resources/templates/list", "resources/read", "prompts/list")
