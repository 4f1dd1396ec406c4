"""100 scenarios of an agent with a scripted model and real sandboxes. Every gate is at its default."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from fidelio.providers.model import Block, ModelRequest
from fidelio.runtime import events as e
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.sandbox.port import Sandboxes
from tests.runtime.scenarios.continuity import CONTINUITY
from tests.runtime.scenarios.introspection import INTROSPECTION
from tests.runtime.scenarios.quotes import QUOTES
from tests.runtime.scenarios.sharing import PROMOTIONS, READ_BACKS
from tests.runtime.scenarios.shell_writes import SHELL_WRITES
from tests.runtime.scenarios.stage import Scenario, Stage, open_sandboxes, open_stage, require_commands
from tests.runtime.scenarios.tool_calls import TOOL_CALLS
from tests.runtime.scenarios.waiting import CUSTOM_TOOLS, DELAYED_WAKES
from tests.runtime.scenarios.watch import WATCH
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
    for earlier, later in pairwise([flatten(request) for request in own]):
        assert later[: len(earlier)] == earlier
    assert str(stage.context.home.path) not in msgspec.json.encode(own).decode()


def flatten(request: ModelRequest) -> list[tuple[str, Block]]:
    """The conversation without the borders of messages: after an interrupt a message of the user follows another."""
    return [(message.role, block) for message in request.messages for block in message.content]


@proves("runtime.scenario-quotes")
@rows(QUOTES)
async def test_the_agent_quotes_a_bootstrap_file(scenario: Scenario, tmp_path: Path, sandboxes: Sandboxes) -> None:
    await play(scenario, tmp_path, sandboxes)


@proves("runtime.scenario-tools")
@rows(TOOL_CALLS)
async def test_the_agent_calls_a_tool_by_its_name(scenario: Scenario, tmp_path: Path, sandboxes: Sandboxes) -> None:
    await play(scenario, tmp_path, sandboxes)


@proves("runtime.scenario-introspection")
@rows(INTROSPECTION)
async def test_the_agent_finds_out_about_itself(scenario: Scenario, tmp_path: Path, sandboxes: Sandboxes) -> None:
    await play(scenario, tmp_path, sandboxes)


@proves("runtime.scenario-continuity")
@rows(CONTINUITY)
async def test_the_agent_goes_on_where_it_was(scenario: Scenario, tmp_path: Path, sandboxes: Sandboxes) -> None:
    await play(scenario, tmp_path, sandboxes)


@proves("runtime.scenario-watch")
@rows(WATCH)
async def test_the_agent_is_woken_by_watching_workers(scenario: Scenario, tmp_path: Path, sandboxes: Sandboxes) -> None:
    await play(scenario, tmp_path, sandboxes)


@proves("runtime.scenario-shell")
@rows(SHELL_WRITES)
async def test_a_command_writes_only_as_a_person_allows(scenario: Scenario, tmp_path: Path, sandboxes: Sandboxes) -> None:
    await play(scenario, tmp_path, sandboxes)


@proves("runtime.scenario-sharing")
@rows((*PROMOTIONS, *READ_BACKS))
async def test_the_agent_shares_what_has_passed_its_outcome(scenario: Scenario, tmp_path: Path, sandboxes: Sandboxes) -> None:
    await play(scenario, tmp_path, sandboxes)


@proves("runtime.scenario-waiting")
@rows((*CUSTOM_TOOLS, *DELAYED_WAKES))
async def test_the_agent_waits_for_the_caller_and_for_a_time(scenario: Scenario, tmp_path: Path, sandboxes: Sandboxes) -> None:
    await play(scenario, tmp_path, sandboxes)


@proves("runtime.scenario-count")
def test_there_are_a_hundred_scenarios_in_the_groups_of_the_list() -> None:
    groups = (QUOTES, TOOL_CALLS, INTROSPECTION, CONTINUITY, WATCH, SHELL_WRITES, PROMOTIONS, READ_BACKS)
    counts = [len(group) for group in (*groups, CUSTOM_TOOLS, DELAYED_WAKES)]
    names = {scenario.id for group in (*groups, CUSTOM_TOOLS, DELAYED_WAKES) for scenario in group}

    assert counts == [32, 26, 10, 10, 8, 8, 2, 2, 1, 1]
    assert len(names) == 100
    assert all("policies" not in scenario.agent.get("tools", {}) for group in groups for scenario in group)


@proves("runtime.scenario-count")
def test_the_tools_that_are_called_by_name_are_of_every_family() -> None:
    named = {scenario.id.removeprefix("call-") for scenario in TOOL_CALLS}

    assert {DEFINITIONS[name].group for name in named} == {definition.group for definition in DEFINITIONS.values()}
