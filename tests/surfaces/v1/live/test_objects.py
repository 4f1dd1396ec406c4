"""Every method of the SDK for hosted agents against `fidelio up`, and every object that it answers with."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest
from anthropic import AsyncAnthropic
from anthropic.lib.tools import beta_async_tool

from scripts.generate_api_docs import PAGE, render
from tests.support import proves
from tests.surfaces.v1.live.server import SECONDS, TOKEN, LiveServer
from tests.surfaces.v1.live.story import DEPLOY, MODEL, call, messages, user
from tests.surfaces.v1.live.table import DIFFERENCES, HELPERS, NOT_OFFERED, WALK, list_known_methods
from tests.surfaces.v1.live.walk import walk_everything

# Those that need an error, a deletion or a restart have tests of their own, in `test_events.py` and `test_threads.py`.
EVENTS = {
    *("agent.custom_tool_use", "agent.mcp_tool_result", "agent.mcp_tool_use", "agent.message", "agent.tool_result"),
    *("agent.thread_message_received", "agent.thread_message_sent", "agent.tool_use"),
    *("session.status_idle", "session.status_rescheduled", "session.status_running", "session.updated", "session.usage"),
    *("session.thread_created", "session.thread_status_idle", "session.thread_status_running"),
    *("span.model_request_end", "span.model_request_start"),
    *("span.outcome_evaluation_end", "span.outcome_evaluation_start"),
    *("system.message", "user.custom_tool_result", "user.define_outcome", "user.interrupt", "user.message"),
    *("user.tool_confirmation", "user.tool_result"),
}


@proves("v1.live-objects", "v1.compatibility")
async def test_every_method_answers_with_objects_of_the_sdk(sdk: AsyncAnthropic, server: LiveServer) -> None:
    walk = await walk_everything(sdk, server.url, TOKEN)

    refused = {method: 400 for method, difference in DIFFERENCES.items() if difference.refused}
    assert (walk.called | set(refused) | set(HELPERS), walk.refused) == (set(list_known_methods()), refused)
    assert walk.events >= EVENTS
    assert server.errors == ""


@proves("v1.compatibility")
async def test_the_helpers_of_the_sdk_run_tools(sdk: AsyncAnthropic) -> None:
    @beta_async_tool
    async def deploy(to: str) -> str:
        """Deploy it."""
        return f"Deployed to {to}."

    agent = await sdk.beta.agents.create(name="Helper", model=MODEL, tools=[DEPLOY])
    session = await sdk.beta.sessions.create(agent=agent.id, environment_id="env_default")
    await sdk.beta.sessions.events.send(session.id, events=[user(call("deploy", to="test"), "All done.")])

    runner = sdk.beta.sessions.events.tool_runner(session.id, tools=[deploy], max_idle=0.2)
    async with asyncio.timeout(SECONDS):
        calls = [done.name async for done in runner]

    events = [event async for event in sdk.beta.sessions.events.list(session.id)]
    (result,) = [event for event in events if event.type == "user.custom_tool_result"]
    assert calls == ["deploy"]
    assert result.content is not None
    assert [block.text for block in result.content if block.type == "text"] == ["Deployed to test."]
    assert messages(events) == ["All done."]


@proves("v1.compatibility")
@pytest.mark.parametrize("path", NOT_OFFERED.values(), ids=list(NOT_OFFERED))
async def test_what_is_not_offered_is_not_found(server: LiveServer, path: str) -> None:
    async with httpx2.AsyncClient(timeout=SECONDS) as client:
        answers = [await client.request(method, server.url + path, headers={"x-api-key": TOKEN}) for method in ("GET", "POST")]

    assert [answer.status_code for answer in answers] == [404, 404]
    assert {answer.json()["error"]["type"] for answer in answers} == {"not_found_error"}


@proves("v1.compatibility")
def test_the_compatibility_table_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == render(), "docs/reference/api-compatibility.md is stale: run `make docs`"


@proves("v1.compatibility")
def test_every_row_of_the_compatibility_table_names_a_test_that_exists() -> None:
    tests = {WALK, *HELPERS.values(), *(difference.test for difference in DIFFERENCES.values())}
    place = Path(__file__).parents[1]

    missing = [
        test
        for file, _, name in (test.partition("::") for test in tests)
        if f"def {name}(" not in (place / file).read_text("utf-8")
        for test in [f"{file}::{name}"]
    ]

    assert missing == []
    assert set(DIFFERENCES) | set(HELPERS) <= set(list_known_methods())
