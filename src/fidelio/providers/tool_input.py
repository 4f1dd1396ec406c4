"""Parsing of tool calls: their input is JSON from a model, and can be broken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fidelio.providers.model import ToolUseBlock


def parse_tool_use(id_: str, name: str, arguments: str | Mapping[str, Any]) -> ToolUseBlock:
    """The call, with the problem of arguments that are no JSON object. It is for the model, which wrote them."""
    if not isinstance(arguments, str):
        return ToolUseBlock(id_, name, arguments)
    if not arguments.strip():
        return ToolUseBlock(id_, name, {})
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError) as error:
        return ToolUseBlock(id_, name, {}, f"The input of {name} is not valid JSON: {error}.")
    if not isinstance(value, dict):
        return ToolUseBlock(id_, name, {}, f"The input of {name} is not an object.")
    return ToolUseBlock(id_, name, value)
