"""Inputs of custom tools: checked before the caller gets them, because only the model can correct them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from fidelio.providers.model import ModelReply, ToolUseBlock
from fidelio.runtime.agents.definition import CustomTool
from fidelio.validation import CheckUndecided, find_violations


async def check_custom_request(custom: Mapping[str, CustomTool], name: str, arguments: Mapping[str, Any]) -> str:
    """What is wrong with a request for a custom tool, as a sentence for the model; empty if nothing is."""
    tool = custom.get(name)
    if tool is None:
        known = ", ".join(sorted(custom)) or "none"
        return f"There is no custom tool {name!r:.100}; declared are: {known}."
    try:
        unusable, violated = await find_violations(tool.input_schema, dict(arguments))
    except CheckUndecided:
        # The caller gets what nobody could check in time, as it would without a schema.
        return ""
    return f"The input of {name} is not valid: {violated}"[:300] if violated and not unusable else ""


async def check_custom_calls(custom: Mapping[str, CustomTool], reply: ModelReply) -> ModelReply:
    """The reply in which each call of a custom tool with an invalid input has its problem, so that it is not carried out."""
    blocks = [await _check(custom, block) if isinstance(block, ToolUseBlock) else block for block in reply.content]
    return replace(reply, content=tuple(blocks))


async def _check(custom: Mapping[str, CustomTool], use: ToolUseBlock) -> ToolUseBlock:
    if use.problem or use.name not in custom:
        return use
    problem = await check_custom_request(custom, use.name, use.input)
    return replace(use, problem=problem) if problem else use
