"""What a model is offered: short lists, for a worker only its own tools, and a prompt for each workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fidelio.app.application import Application
from fidelio.definitions.library import Root
from fidelio.settings import Settings
from fidelio.surfaces.mcp.dialects import load_tools
from fidelio.surfaces.mcp.dialects.prompts import PAGE
from tests.definitions.libraries import manifest, save
from tests.dialects.conftest import playing
from tests.dialects.test_repeated_texts import serving
from tests.support import proves

BOUNDS = {"sessions": 6_500, "gates": 5_500, "navigator": 6_000, "orchestrator": 8_300}
ALL = pytest.mark.parametrize("dialect", ["sessions", "gates", "navigator"])


def count_characters(listed: list[dict[str, Any]]) -> int:
    """The characters of name, description and schema of all tools, as JSON."""
    parts = [{key: tool[key] for key in ("name", "description", "inputSchema")} for tool in listed]
    return len(msgspec.json.encode(parts).decode())


@proves("dialects.tool-lists")
@pytest.mark.parametrize("tools", BOUNDS)
def test_a_list_of_tools_is_short_enough(settings: Settings, tools: str) -> None:
    listed = load_tools(tools, Application(settings)).table.describe()

    assert count_characters(listed) <= BOUNDS[tools] + 2 * len(listed)


@proves("dialects.tool-lists")
@ALL
async def test_a_worker_is_offered_only_what_it_may_call(settings: Settings, library: Path, dialect: str) -> None:
    whole = {tool["name"] for tool in load_tools(dialect, Application(settings)).table.describe()}
    served = load_tools(dialect, Application(settings, worker=True))
    own = {tool["name"] for tool in served.table.describe()}

    assert own < whole
    assert not own & {"next_activity", "respond_checkpoint", "nav_start", "list_workflows"}
    assert served.load_prompts is None


@proves("dialects.tool-lists")
async def test_a_worker_that_calls_another_tool_hears_why_not(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play:
        token = await play.at("tune")
    async with playing(settings, library, worker=True) as play:
        refused = await play("next_activity", session_token=token, activity_id="bow")

    assert refused.is_error
    assert "You carry out one activity of this workflow" in refused.text


async def ask(protocol: Any, method: str, **params: Any) -> dict[str, Any]:
    return dict(await protocol.connect().answer({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))


@proves("dialects.prompts")
@ALL
async def test_each_workflow_is_a_prompt_that_says_how_to_begin_it(settings: Settings, library: Path, dialect: str) -> None:
    start = "nav_start" if dialect == "navigator" else "start_session"
    async with serving(settings, library, dialect) as protocol:
        introduced = await ask(protocol, "initialize", protocolVersion="2025-11-25")
        listed = (await ask(protocol, "prompts/list"))["result"]
        given = (await ask(protocol, "prompts/get", name="score", arguments={"goal": "Play it well."}))["result"]
        unknown = await ask(protocol, "prompts/get", name="nothing")
        wrong = await ask(protocol, "prompts/list", cursor="-1")

    assert introduced["result"]["capabilities"]["prompts"] == {"listChanged": False}
    assert [prompt["name"] for prompt in listed["prompts"]] == ["score", "solo"]
    assert listed["prompts"][0]["description"] == "One of everything."
    text = given["messages"][0]["content"]["text"]
    assert f"Call {start} with workflow_id 'score'" in text
    assert text.endswith("What I want to achieve: Play it well.")
    assert "The prompts are: score, solo." in unknown["error"]["message"]
    assert "cursor" in wrong["error"]["message"]


@proves("dialects.prompts")
async def test_many_prompts_come_in_pages(settings: Settings, tmp_path: Path) -> None:
    names = [f"w{number:03}" for number in range(PAGE + 5)]
    root = save(tmp_path / "many", {f"{name}.yaml": manifest(name) for name in names})
    async with serving(settings, Root(root, "many").path) as protocol:
        first = (await ask(protocol, "prompts/list"))["result"]
        rest = (await ask(protocol, "prompts/list", cursor=first["nextCursor"]))["result"]

    assert [prompt["name"] for prompt in (*first["prompts"], *rest["prompts"])] == names
    assert "nextCursor" not in rest
