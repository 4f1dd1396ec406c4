"""A Fidelio server that an agent starts over stdio uses the home and the limits that the agent was started with."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from fidelio.settings import load_settings
from tests.support import proves
from tests.surfaces.orchestrator.conftest import SECONDS, ToolReply, in_memory

OWN = {"own": {"command": sys.executable, "args": ["-m", "fidelio", "mcp", "--toolset", "orchestrator"]}}


async def parent_asks(
    place: Path, project: Path, monkeypatch: pytest.MonkeyPatch, **environ: str
) -> tuple[ToolReply, list[Any]]:
    """Return the reply to a parent that starts a child, and the sessions afterwards."""
    asked = {"session_name": "child", "prompt": "Hello.", "agent_blueprint_name": "echo", "async": True}
    asking = {"call": {"tool": "start_agent_session", "server": "own", "arguments": asked, "may_fail": True}}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    settings = load_settings(str(place / "home"))
    async with asyncio.timeout(SECONDS), in_memory(settings, project) as client:
        client.script("parent", [asking, {"result": "{returned}"}], mcp_servers=OWN)
        heard = await client.start("parent", "parent")
        page = (await client("list_agent_sessions", response_format="json")).body
    return heard, page["sessions"]


@proves("orchestrator.house")
async def test_an_agent_finds_a_ledger_outside_the_home(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    _, sessions = await parent_asks(tmp_path, project, monkeypatch, FIDELIO_LEDGER="elsewhere.db")

    assert {session["name"] for session in sessions} == {"parent", "child"}


@proves("orchestrator.house", "orchestrator.depth")
async def test_the_limits_of_the_home_hold_for_the_agent_too(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, sessions = await parent_asks(tmp_path, project, monkeypatch, FIDELIO_AGENTS_DEPTH="0")

    assert "0 are allowed" in heard.text
    assert [session["name"] for session in sessions] == ["parent"]
