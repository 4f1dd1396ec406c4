"""Inputs of custom tools, which are checked before the caller is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fidelio.providers.model import ModelReply, TextBlock, ToolUseBlock
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import CustomTool
from fidelio.runtime.wakes.custom_inputs import check_custom_calls, check_custom_request
from tests.runtime.wakes.support import open_runtime, replies, results_of, say
from tests.support import proves

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = CustomTool(name="weather", description="The weather of a city.", input_schema=SCHEMA)
TOOLS = {"weather": WEATHER}


@proves("runtime.custom-pause")
@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("weather", {"city": "Rome"}, ""),
        ("weather", {}, "The input of weather is not valid: "),
        ("weather", {"city": 3}, "The input of weather is not valid: "),
        ("wether", {"city": "Rome"}, "There is no custom tool 'wether'; declared are: weather."),
    ],
)
async def test_a_request_for_a_custom_tool_must_fit_its_declaration(name: str, arguments: dict[str, Any], problem: str) -> None:
    found = await check_custom_request(TOOLS, name, arguments)

    assert found.startswith(problem)
    assert bool(found) == bool(problem)


@proves("runtime.custom-pause")
async def test_only_calls_of_custom_tools_with_invalid_inputs_get_a_problem() -> None:
    good, bad = ToolUseBlock("1", "weather", {"city": "Rome"}), ToolUseBlock("2", "weather", {})
    other = ToolUseBlock("3", "read", {"path": 1})
    reply = ModelReply(content=(TextBlock("Now."), good, bad, other), stop_reason="tool_use")

    checked = await check_custom_calls(TOOLS, reply)

    assert [block.problem != "" for block in checked.tool_uses] == [False, True, False]
    assert checked.content[:2] == reply.content[:2]


@proves("runtime.custom-pause")
async def test_a_custom_call_with_a_problem_is_answered_with_an_error_and_does_not_pause(tmp_path: Path) -> None:
    call = ToolUseBlock("call_0", "weather", {}, "The input of weather is not valid: city is missing.")
    async with open_runtime(tmp_path, replies(ModelReply(content=(call,), stop_reason="tool_use"), say("Sorry."))) as runtime:
        session = await runtime.begin(tools={"custom": [{"name": "weather", "description": "x", "input_schema": SCHEMA}]})
        await runtime.tell(session, "How is the weather?")
        await runtime.work()

        (result,) = results_of(runtime.requests[1])
        assert result.is_error
        assert "city is missing" in str(result.content)
        assert await runtime.events(session, e.CUSTOM_TOOL_USE, e.CUSTOM_TOOL_REQUESTED) == ()
        assert (await runtime.record(session)).status == "idle"
