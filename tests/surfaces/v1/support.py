"""Agents, sessions and events for tests of the API."""

from __future__ import annotations

import asyncio
from typing import Any

from anthropic import AsyncAnthropic
from anthropic.types.beta import BetaEnvironment, BetaManagedAgentsAgent, BetaManagedAgentsSession

SECONDS = 30.0
IDLE = "session.status_idle"


async def start_agent(sdk: AsyncAnthropic, **more: Any) -> tuple[BetaManagedAgentsAgent, BetaEnvironment]:
    """An agent with a scripted model, and an environment."""
    agent = await sdk.beta.agents.create(**{"name": "Helper", "model": "scripted:test", **more})
    environment = await sdk.beta.environments.create(name="Sandbox", config={"type": "cloud"})
    return agent, environment


async def create_session(sdk: AsyncAnthropic, *, definition: Any = None, **more: Any) -> BetaManagedAgentsSession:
    """A session of a new agent."""
    agent, environment = await start_agent(sdk, **(definition or {}))
    return await sdk.beta.sessions.create(agent=agent.id, environment_id=environment.id, **more)


def message(text: str) -> Any:
    return {"type": "user.message", "content": [{"type": "text", "text": text}]}


async def send(sdk: AsyncAnthropic, session: str, *events: Any) -> list[Any]:
    return list((await sdk.beta.sessions.events.send(session, events=list(events))).data or [])


async def converse(sdk: AsyncAnthropic, session: str, *events: Any, last: str = IDLE, count: int = 1) -> list[Any]:
    """Send events to a session; returns what happens up to an event of a type."""
    async with await sdk.beta.sessions.events.stream(session) as stream:
        await send(sdk, session, *events)
        return await collect(stream, last, count)


async def list_events(sdk: AsyncAnthropic, session: str, **filters: Any) -> list[Any]:
    return [event async for event in sdk.beta.sessions.events.list(session, **filters)]


async def collect(stream: Any, last: str = IDLE, count: int = 1) -> list[Any]:
    """The events of a stream up to the last of a type."""
    found: list[Any] = []
    async with asyncio.timeout(SECONDS):
        async for event in stream:
            found.append(event)
            if sum(item.type == last for item in found) >= count:
                return found
    raise AssertionError(f"the stream ended after {[item.type for item in found]}")


def types_of(events: list[Any]) -> list[str]:
    return [event.type for event in events]


def only(events: list[Any], type_: str) -> list[Any]:
    return [event for event in events if event.type == type_]
