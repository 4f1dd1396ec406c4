"""Streams of `fidelio up`: two clients on one session, and streams that are cut, also by the death of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from anthropic import APIConnectionError, AsyncAnthropic

from tests.support import proves
from tests.surfaces.v1.live.conftest import RunJavaScript
from tests.surfaces.v1.live.server import SECONDS, LiveServer
from tests.surfaces.v1.live.story import MODEL, TOOLSET, call, collect_turn, confirm, messages, results, run_turn, user, waiting
from tests.surfaces.v1.support import IDLE


async def prepare(sdk: AsyncAnthropic) -> str:
    """The id of a session of an agent whose tools do not ask."""
    agent = await sdk.beta.agents.create(name="Helper", model=MODEL, tools=[TOOLSET])
    return (await sdk.beta.sessions.create(agent=agent.id, environment_id="env_default")).id


async def resume(sdk: AsyncAnthropic, session: str, after: str) -> Any:
    return await sdk.beta.sessions.events.stream(session, extra_headers={"Last-Event-ID": after})


async def list_ids(sdk: AsyncAnthropic, session: str) -> list[str]:
    return [event.id async for event in sdk.beta.sessions.events.list(session, limit=7)]


@proves("v1.live-streams")
async def test_clients_in_two_languages_see_the_same_events_once(
    sdk: AsyncAnthropic, server: LiveServer, javascript: RunJavaScript
) -> None:
    session = await prepare(sdk)
    before = await run_turn(sdk, session, user("Hello."))

    async with (
        server.connect() as other,
        await sdk.beta.sessions.events.stream(session) as live,
        await resume(other, session, before[-1].id) as resumed,
    ):
        await sdk.beta.sessions.events.send(session, events=[user(call("bash", command="true"), "Done.")])
        seen = await asyncio.gather(collect_turn(live), collect_turn(resumed))
        third = await javascript("resume.mjs", session=session, after=before[-1].id)

    first, second = ([event.id for event in events] for events in seen)
    assert first == second == third
    assert await list_ids(sdk, session) == [*(event.id for event in before), *first]


async def follow_until_cut(sdk: AsyncAnthropic, session: str, last: str, cut: Callable[[], None], *events: Any) -> list[Any]:
    """Send events and follow the session until its stream breaks. `cut` breaks it, after an event of the type `last`."""
    seen: list[Any] = []

    async def follow() -> None:
        async with asyncio.timeout(SECONDS), await sdk.beta.sessions.events.stream(session) as stream:
            await sdk.beta.sessions.events.send(session, events=list(events))
            async for event in stream:
                seen.append(event)
                if event.type == last:
                    cut()

    with pytest.raises((APIConnectionError, httpx2.HTTPError)):
        await follow()
    return seen


@proves("v1.live-streams")
async def test_a_stream_goes_on_after_the_server_was_killed(sdk: AsyncAnthropic, server: LiveServer) -> None:
    session = await prepare(sdk)

    # The server dies as soon as the reply is known: nothing that it has announced may be missing or come twice.
    seen = await follow_until_cut(sdk, session, IDLE, server.kill, user("First."))
    server.start()
    async with await resume(sdk, session, seen[1].id) as stream:
        seen[2:] = await collect_turn(stream)
        await sdk.beta.sessions.events.send(session, events=[user("Second.")])
        seen += await collect_turn(stream)

    assert [event.id for event in seen] == await list_ids(sdk, session)
    assert messages(seen) == ["First.", "Second."]


@pytest.mark.soak
@proves("v1.live-streams")
async def test_a_turn_goes_on_after_the_server_was_killed_in_its_middle(sdk: AsyncAnthropic, server: LiveServer) -> None:
    session = await prepare(sdk)
    message = user("Working.\n" + call("bash", command="echo ran >> log.txt"), "Done.")

    seen = await follow_until_cut(sdk, session, "agent.tool_use", server.kill, message)
    server.start()
    async with await resume(sdk, session, seen[-1].id) as stream:
        # The next worker takes over when the lease of the killed one has ended, after half a minute.
        seen += await collect_turn(stream)
        while unknown := waiting(seen):
            # Nobody knows how far the command came, so the server asks before it repeats it.
            await sdk.beta.sessions.events.send(session, events=[confirm(unknown[0], "deny")])
            seen += await collect_turn(stream)
    log = await run_turn(sdk, session, user(call("bash", command="cat log.txt || true")))

    assert [event.id for event in (*seen, *log)] == await list_ids(sdk, session)
    assert messages(seen) == ["Working.", "Done."]
    assert "".join(results(log).values()).split().count("ran") <= 1
