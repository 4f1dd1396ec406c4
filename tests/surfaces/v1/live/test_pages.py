"""Many sessions of `fidelio up`, created at once and listed in pages by both SDKs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from anthropic import AsyncAnthropic

from tests.support import proves
from tests.surfaces.v1.live.conftest import RunJavaScript
from tests.surfaces.v1.live.server import LiveServer, run_server
from tests.surfaces.v1.live.story import MODEL

CLIENTS, PAGE = 16, 128


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    """A server without sessions."""
    with run_server(tmp_path) as running:
        yield running


@proves("v1.live-pages")
@pytest.mark.parametrize("count", [200, pytest.param(1_000, marks=pytest.mark.soak)])
async def test_many_sessions_are_listed_once_each_newest_first(
    sdk: AsyncAnthropic, javascript: RunJavaScript, count: int
) -> None:
    agent = await sdk.beta.agents.create(name="Helper", model=MODEL)
    other = await sdk.beta.agents.create(name="Other", model=MODEL)
    waiting = list(range(count))

    async def create() -> None:
        while waiting:
            number = waiting.pop()
            name = other.id if number % 100 == 0 else agent.id
            await sdk.beta.sessions.create(agent=name, environment_id="env_default", metadata={"number": str(number)})

    await asyncio.gather(*(create() for _ in range(CLIENTS)))
    found = [session async for session in sdk.beta.sessions.list(limit=PAGE)]
    oldest = [session.id async for session in sdk.beta.sessions.list(limit=PAGE, order="asc")]
    few = [session.metadata["number"] async for session in sdk.beta.sessions.list(limit=3, agent_id=other.id)]
    seen = await javascript("pages.mjs", limit=PAGE)

    ids = [session.id for session in found]
    assert sorted(int(session.metadata["number"]) for session in found) == list(range(count))
    assert [session.created_at for session in found] == sorted((session.created_at for session in found), reverse=True)
    assert oldest == ids[::-1]
    assert sorted(map(int, few)) == list(range(0, count, 100))
    assert seen == {"ids": ids, "pages": -(-count // PAGE)}
