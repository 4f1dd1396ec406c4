"""100 scenarios of an agent with a scripted model and real sandboxes. Every gate is at its default."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from fidelio.runtime import events as e
from fidelio.sandbox.port import Sandboxes
from tests.runtime.scenarios.quotes import QUOTES
from tests.runtime.scenarios.stage import Scenario, Stage, open_sandboxes, open_stage, require_commands
from tests.support import proves


@pytest.fixture(scope="module")
async def sandboxes() -> AsyncIterator[Sandboxes]:
    require_commands()
    async with open_sandboxes() as opened:
        yield opened


def rows(scenarios: tuple[Scenario, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("scenario", scenarios, ids=lambda scenario: scenario.id)


async def play(scenario: Scenario, directory: Path, sandboxes: Sandboxes) -> None:
    """Play a scenario to its end, and check what it expects and what always holds."""
    async with open_stage(directory, sandboxes, workers=scenario.workers) as stage:
        await stage.define(**scenario.agent)
        await stage.begin(scenario.model)
        for act in scenario.does:
            await act(stage)
            await stage.settle()
        for session in stage.sessions:
            await check_record(stage, session)
        for check in scenario.expects:
            await check(stage)


async def check_record(stage: Stage, session: str) -> None:
    """What holds after every scenario: nothing is open, nothing failed, and no directory of the host was told."""
    record = await stage.record(session)
    assert (record.status, record.wakes.current, record.wakes.pending, record.wakes.open_calls) == ("idle", "", 0, ())
    assert stage.scripts[session] == [], "the model was asked fewer times than planned"
    assert await stage.events(e.SESSION_ERROR, session=session) == ()
    events = await stage.events(session=session)
    uses = Counter(event.body["id"] for event in events if event.type == e.TOOL_USE)
    assert uses == Counter(event.body["tool_use_id"] for event in events if event.type == e.TOOL_RESULT)
    spans = Counter(event.body["span_id"] for event in events if event.type == e.SPAN_STARTED)
    assert spans == Counter(event.body["span_id"] for event in events if event.type == e.SPAN_COMPLETED)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    own = [request for request in stage.requests if request.conversation == session and not request.force_tool]
    for earlier, later in pairwise(own):
        assert later.messages[: len(earlier.messages)] == earlier.messages
    assert str(stage.context.home.path) not in msgspec.json.encode(own).decode()


@proves("runtime.scenario-quotes")
@rows(QUOTES)
async def test_the_agent_quotes_a_bootstrap_file(scenario: Scenario, tmp_path: Path, sandboxes: Sandboxes) -> None:
    await play(scenario, tmp_path, sandboxes)
