"""Every tool declares what it replies with, and replies with that."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import validate

from fidelio.app.application import Application
from fidelio.settings import Settings
from fidelio.surfaces.mcp.toolsets.orchestrator.declarations import open_tools
from tests.support import proves
from tests.surfaces.orchestrator.conftest import ToolClient, ToolReply

ASYNC: dict[str, Any] = {"async": True}


@pytest.fixture
def declared(settings: Settings) -> dict[str, dict[str, Any]]:
    tools = open_tools(Application(settings), environ={}).table.describe()
    return {tool["name"]: tool.get("outputSchema", {}) for tool in tools}


@proves("orchestrator-tools.hints")
def test_every_tool_declares_an_object_and_what_is_always_in_it(declared: dict[str, dict[str, Any]]) -> None:
    for name, schema in declared.items():
        assert schema.get("type") == "object", name
        assert schema["required"], name
        assert set(schema["required"]) <= set(schema["properties"]), name


@proves("orchestrator-tools.hints")
async def test_replies_hold_nothing_that_the_tools_do_not_declare(
    memory: ToolClient, declared: dict[str, dict[str, Any]]
) -> None:
    memory.script("polite", [{"say": "Hm."}, {"ask": {"text": "May I?", "kind": "question"}}, {"result": "Thanks."}])
    schema = {"type": "object", "required": ["topic"]}
    memory.script("strict", [{"data": {"topic": "brass"}}, {"result": "Brass."}], output_schema=schema)
    memory.script("chatty", [{"use": {"input_tokens": 1, "cost_usd": 0.5}}, {"result": "x" * 60_000}])
    place = {"project_dir": str(memory.project)}
    one = {"session_name": "one", **place}

    async def fits(tool: str, **arguments: Any) -> ToolReply:
        reply = await memory(tool, **arguments)
        validate(reply.body, declared[tool])
        assert set(reply.body) <= set(declared[tool]["properties"]), tool
        return reply

    async def starts(name: str, blueprint: str, **more: Any) -> ToolReply:
        given = {"session_name": name, "agent_blueprint_name": blueprint, "prompt": "Hello.", **place, **more}
        return await fits("start_agent_session", **given)

    assert (await starts("one", "echo")).body["result"] == "Hello."
    assert (await starts("two", "strict")).body["data"] == {"topic": "brass"}
    assert (await starts("long", "chatty")).body["next_offset"] == 25_000
    assert "questions" in (await starts("asks", "polite")).body
    await starts("later", "echo", **ASYNC)
    await fits("resume_agent_session", **one, prompt="Again.")
    await fits("resume_agent_session", **one, prompt="Again.", **ASYNC)
    await fits("wait_for_agent_sessions", session_names=["one", "asks"], **place, timeout_seconds=1)
    await fits("get_agent_session_result", **one)
    assert (await fits("get_agent_session_result", session_name="long", offset=50_000)).body["result"] == "x" * 10_000
    await fits("list_agent_blueprints", **place)
    await fits("list_agent_sessions", limit=1)
    await fits("get_agent_session_status", session_name="long")
    await fits("get_agent_session_status", session_name="nobody")
    await fits("get_agent_session_events", session_name="asks")
    await fits("answer_agent_question", session_name="asks", text="Yes.")
    await fits("send_agent_message", **one, message="x")
    await fits("stop_agent_session", **one)
    await fits("delete_agent_session", **one)
    await fits("delete_all_agent_sessions")
