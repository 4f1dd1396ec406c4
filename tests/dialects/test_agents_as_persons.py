"""An agent that Fidelio started offers to ask a person, and answers itself: nobody is asked, and nothing is recorded."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestParams, ElicitResult

from fidelio.ledger import open_ledger
from fidelio.processes.table import NEUTRAL_MARK, compute_mark
from fidelio.settings import Settings, load_settings
from tests.dialects.conftest import Opens
from tests.dialects.test_elicitation import call, reach_the_conductor
from tests.support import proves

RUN = "s_000000000001.1"
CLEARED = (
    "import os, resource, sys\n"
    f"resource.setrlimit(resource.RLIMIT_RTTIME, ({compute_mark(RUN)}, {NEUTRAL_MARK}))\n"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
)
both_eras = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])


class Impostor:
    """Accepts whatever it is asked, at once."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, context: Any, params: ElicitRequestParams) -> ElicitResult:
        assert context is not None
        assert params.message
        self.asked += 1
        return ElicitResult(action="accept", content={"answer": "begin"})


async def answers(settings: Settings) -> list[dict[str, Any]]:
    async with await open_ledger(settings.ledger) as ledger:
        return [event.body for event in await ledger.events(types=["request.answered"])]


def open_server(settings: Settings, library: Path, way: str, *, seconds: str = "0") -> Any:
    environ = {**os.environ, "FIDELIO_HOME": str(settings.home.path), "FIDELIO_MIN_RESPONSE_SECONDS": seconds}
    argv = ["-m", "fidelio", "mcp", "--workflows", str(library)]
    if way == "marker":
        environ["FIDELIO_AGENT"] = RUN
    if way == "cleared":
        argv = ["-c", CLEARED, *argv]
    if way == "worker":
        argv += ["--worker"]
    return stdio_client(StdioServerParameters(command=sys.executable, args=argv, env=environ))


@proves("mcp.agents-not-asked")
@both_eras
@pytest.mark.parametrize("way", ["marker", "worker", "cleared"])
async def test_an_agent_is_not_asked_for_a_person(settings: Settings, library: Path, era: Any, way: str) -> None:
    # Reached by a person's program: an agent whose run is not known cannot get there.
    async with Client(open_server(settings, library, "person"), mode=era) as person:
        handle = await reach_the_conductor(person)
    impostor = Impostor()
    async with Client(open_server(settings, library, way), mode=era, elicitation_callback=impostor) as agent:
        failed, text = await call(agent, "respond_checkpoint", checkpoint_handle=handle, option_id="begin")

    assert failed
    assert "person" in text or "agent" in text
    assert impostor.asked == 0
    assert await answers(settings) == []


@proves("mcp.agents-not-asked")
@both_eras
async def test_an_agent_over_http_is_not_asked_for_a_person(http: Opens, settings: Settings, era: Any) -> None:
    impostor = Impostor()
    async with http(era=era) as player:
        address = player.address
        async with (
            httpx2.AsyncClient(headers={"Fidelio-Agent": RUN}) as web,
            Client(streamable_http_client(address, http_client=web), mode=era, elicitation_callback=impostor) as agent,
        ):
            handle = await reach_the_conductor(agent)
            failed, _ = await call(agent, "respond_checkpoint", checkpoint_handle=handle, option_id="begin")

    assert failed
    assert impostor.asked == 0
    assert await answers(settings) == []


@proves("mcp.min-response")
@both_eras
async def test_an_answer_that_no_person_can_have_given_is_not_taken(settings: Settings, library: Path, era: Any) -> None:
    impostor = Impostor()
    server = open_server(settings, library, "person", seconds="60")
    async with Client(server, mode=era, elicitation_callback=impostor) as hasty:
        handle = await reach_the_conductor(hasty)
        result = await hasty.call_tool("respond_checkpoint", {"checkpoint_handle": handle, "option_id": "begin"})

    assert impostor.asked == 1
    assert "a person needs at least 60000 ms. The question stays open." in str(result.content)
    assert await answers(settings) == []


@proves("mcp.agents-not-asked")
async def test_an_agent_of_unknown_run_may_only_read(settings: Settings, library: Path) -> None:
    garbage = {"FIDELIO_AGENT": "garbage"}
    environ = {**os.environ, "FIDELIO_HOME": str(settings.home.path), **garbage}
    argv = ["-m", "fidelio", "mcp", "--workflows", str(library)]
    server = StdioServerParameters(command=sys.executable, args=argv, env=environ)
    async with Client(stdio_client(server)) as agent:
        failed, text = await call(agent, "start_session", workflow_id="score")
        listed = await agent.call_tool("list_workflows", {})

    assert failed
    assert "It may only read" in text
    assert "score" in str(listed.content)
    assert load_settings(environ=environ).home == settings.home
