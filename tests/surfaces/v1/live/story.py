"""The parts of the tests' stories: what an agent is defined with, what it is sent, and what is waited for."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from anthropic import AsyncAnthropic

from tests.surfaces.v1.live.server import SECONDS
from tests.surfaces.v1.support import IDLE

ASK, ALLOW = {"type": "always_ask"}, {"type": "always_allow"}
TOOLSET: Any = {"type": "agent_toolset_20260401"}
ASKING_TOOLSET: Any = {**TOOLSET, "configs": [{"name": "bash", "permission_policy": ASK}]}
DEPLOY: Any = {
    "type": "custom",
    "name": "deploy",
    "description": "Deploy the project.",
    "input_schema": {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]},
}
# The model plays the paragraphs of the message, see docs/reference/models.md.
MODEL = "scripted:steps"


def call(tool: str, **arguments: Any) -> str:
    """A line of a message that the scripted model turns into a call."""
    return f"{tool} {json.dumps(arguments)}"


def user(*paragraphs: str) -> Any:
    """A message whose paragraphs are the turns of the model."""
    return {"type": "user.message", "content": [{"type": "text", "text": "\n\n".join(paragraphs)}]}


def confirm(tool_use_id: str, result: str = "allow", **more: Any) -> Any:
    return {"type": "user.tool_confirmation", "tool_use_id": tool_use_id, "result": result, **more}


async def collect_turn(stream: Any) -> list[Any]:
    """The events of a stream up to the next `session.status_idle`."""
    found: list[Any] = []
    async with asyncio.timeout(SECONDS):
        async for event in stream:
            found.append(event)
            if event.type == IDLE:
                return found
    raise AssertionError(f"The stream ended after {[event.type for event in found]}.")


async def run_turn(sdk: AsyncAnthropic, session: str, *events: Any) -> list[Any]:
    """Send events; returns what happens until the session is idle."""
    async with await sdk.beta.sessions.events.stream(session) as stream:
        await sdk.beta.sessions.events.send(session, events=list(events))
        return await collect_turn(stream)


def waiting(events: list[Any]) -> list[str]:
    """The ids of the calls that the session waits for at the end of a turn."""
    reason = events[-1].stop_reason
    return list(reason.event_ids) if reason.type == "requires_action" else []


def results(events: list[Any]) -> dict[str, str]:
    """The texts of tool results, by the id of their call."""
    return {
        event.tool_use_id: "".join(block.text for block in event.content or [] if block.type == "text")
        for event in events
        if event.type == "agent.tool_result"
    }


def messages(events: list[Any]) -> list[str]:
    return ["".join(block.text for block in event.content) for event in events if event.type == "agent.message"]


async def find_statuses(sdk: AsyncAnthropic, session: str) -> list[str]:
    return [event.type async for event in sdk.beta.sessions.events.list(session) if event.type.startswith("session.status")]
