"""Commands in replies of a server work when they are copied: they name the home of that server."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from fidelio.settings import load_settings
from fidelio.surfaces.mcp.dialects import load_tools
from fidelio.surfaces.mcp.options import McpOptions
from fidelio.surfaces.mcp.server import load_server_settings, make_application
from fidelio.toolkit import Done
from tests.dialects.conftest import Player, playing
from tests.support import proves
from tests.support.tool_calls import call_tool
from tests.surfaces.conftest import UNNAMED_HOME as HOME
from tests.surfaces.conftest import Shell

Serving = Callable[..., AbstractAsyncContextManager[Client]]
SOLO = """
id: solo
version: 1.0.0
title: Alone
initialActivity: alone
activities:
  - id: alone
    version: 1.0.0
    name: Alone
    description: "Look at `fidelio inbox` now and then: fidelio answer is for people."
    checkpoints:
      - id: how
        name: How?
        message: How shall we play?
        options: [{id: loud, label: Loudly}, {id: soft, label: Softly}]
"""
ANSWER = r"fidelio[^`:\n]*? answer \w+ OPTION"


@pytest.fixture
def solo(tmp_path: Path) -> Path:
    """The file of a workflow that the home itself holds."""
    workflows = load_settings(str(tmp_path / HOME), environ={}).home.ensure().workflows
    workflows.mkdir()
    (workflows / "solo.yaml").write_text(SOLO)
    return workflows / "solo.yaml"


@pytest.fixture
def serving(environ: dict[str, str], solo: Path) -> Serving:
    """A server for a home that only its command line names, and that by a relative path."""
    outside = {name: value for name, value in environ.items() if name != "FIDELIO_HOME"}

    def serve(*options: str) -> AbstractAsyncContextManager[Client]:
        arguments = ["-m", "fidelio", "mcp", "--home", HOME, *options]
        return Client(
            stdio_client(StdioServerParameters(command=sys.executable, args=arguments, env=outside, cwd=str(solo.parents[2])))
        )

    return serve


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def said(client: Client, tool: str, **arguments: Any) -> tuple[str, str]:
    """The text of a reply, and the token to go on with."""
    result = await client.call_tool(tool, arguments)
    text = "".join(getattr(part, "text", "") for part in result.content)
    state = re.search(r'"state": ?"([^"]+)"', text)
    return text, state[1] if state else str((result.meta or {}).get("session_token", ""))


async def yielded(client: Client) -> str:
    _, token = await said(client, "start_session", workflow_id="solo")
    _, token = await said(client, "next_activity", session_token=token, activity_id="alone")
    return (await said(client, "yield_checkpoint", session_token=token, checkpoint_id="how"))[0]


async def refused_at_the_gate(client: Client) -> str:
    _, token = await said(client, "start_session", workflow_id="solo")
    _, token = await said(client, "next_activity", session_token=token, activity_id="alone")
    return (await said(client, "respond_checkpoint", session_token=token, checkpoint_id="how", option_id="loud"))[0]


async def refused_on_the_way(client: Client) -> str:
    _, state = await said(client, "nav_start", workflow_id="solo")
    action = {"action": "respond_to_checkpoint", "checkpoint_id": "how", "option_id": "loud"}
    return (await said(client, "nav_action", state=state, **action))[0]


@proves("hints.servers")
@pytest.mark.parametrize(
    ("dialect", "asks"),
    [("sessions", yielded), ("gates", refused_at_the_gate), ("navigator", refused_on_the_way)],
)
async def test_a_question_is_answered_with_what_the_server_says(
    serving: Serving, shell: Shell, dialect: str, asks: Callable[[Client], Any]
) -> None:
    async with serving("--dialect", dialect, "--person") as client:
        text = await asks(client)
        (hint,) = set(re.findall(ANSWER, text))
        answered = await asyncio.to_thread(shell, f"cd / && {hint.replace('OPTION', 'loud')}")

    assert answered.returncode == 0, answered.stderr
    assert "is answered with loud" in answered.stdout


@proves("hints.servers")
async def test_warnings_and_the_orchestrator_name_the_home_and_definitions_stay_as_they_are(solo: Path) -> None:
    home = str(solo.parents[1])
    options = McpOptions(home=home)
    application = make_application(options, load_server_settings(options))
    extra = "\n  - {id: lost, version: 1.0.0, name: Lost, steps: 7}\n"
    write(solo, SOLO + extra)
    async with playing(application.settings, solo.parent, program=application.program) as play:
        begun = await play("start_session", workflow_id="solo")
        read = await activity_of(play, begun.token)
    async with application:
        refused = await call_tool(
            load_tools("orchestrator", application),
            "start_agent_session",
            {"session_name": "aria", "prompt": "?", "agent_blueprint_name": "nobody", "async": True},
        )

    assert application.program == f"fidelio --home '{home}'"
    assert f"`{application.program} lint`" in begun.json["warnings"][0]
    assert begun.warnings == begun.json["warnings"]
    assert "Look at `fidelio inbox` now and then: fidelio answer is for people." in read
    assert isinstance(refused, Done)
    assert f"`{application.program} agents blueprints`" in refused.text


async def activity_of(play: Player, token: str) -> str:
    moved = await play("next_activity", session_token=token, activity_id="alone")
    return (await play("get_activity", session_token=moved.token)).text


@proves("hints.servers")
@pytest.mark.parametrize("asked", [False, True])
def test_nothing_is_added_for_a_home_that_is_found_anyway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    monkeypatch.delenv("FIDELIO_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    options = McpOptions(home=str(tmp_path / "fidelio") if asked else None)

    assert make_application(options, load_server_settings(options)).program == "fidelio"
