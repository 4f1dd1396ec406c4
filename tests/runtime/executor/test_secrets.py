"""Secrets in the servers of a blueprint, whose agent is a session of the runtime."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.errors import ToolRefused
from fidelio.home import Home
from fidelio.orchestrator.record.model import AgentSession, StartAgent
from fidelio.providers.model import ModelReply, ModelRequest, TextBlock, ToolResultBlock, ToolUseBlock
from fidelio.providers.registry import Providers
from fidelio.providers.scripted import ScriptedProvider
from fidelio.runtime import events as e
from fidelio.runtime.agents.versions import list_versions, load_agent
from fidelio.runtime.service import NewAgentSession
from fidelio.settings import Settings
from tests.runtime.servers import program
from tests.support import proves

SECRET = "tok-VERYPRIVATE-456"
BLUEPRINT = """---
name: reviewer
description: An agent with a server that needs a secret.
executor: fidelio
model: scripted:caller
inherit: [REVIEW_TOKEN]
permissions: {{mode: ask, allow: [mcp__test]}}
mcp_servers:
  test:
    command: {python}
    args: [{program}, leaks, {notes}]
    env: {{TOKEN: "${{REVIEW_TOKEN}}"}}
{more}---
You call the tool.
"""


async def call_once(request: ModelRequest) -> ModelReply:
    """Call the tool of the server, and say what it returned."""
    last = request.messages[-1].content
    results = [block for block in last if isinstance(block, ToolResultBlock)]
    if results:
        said = "".join(block.text for block in results[-1].content if isinstance(block, TextBlock))
        return ModelReply(content=(TextBlock(said),), stop_reason="end_turn")
    use = ToolUseBlock("call_1", "mcp__test__echo", {"text": "x"})
    return ModelReply(content=(use,), stop_reason="tool_use")


# It gets a header with the id of each run, and does not answer.
OWN_SERVER = "  own:\n    url: http://127.0.0.1:9/mcp/orchestrator\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Application]:
    def open_scripted(**_: Any) -> Providers:
        return Providers({"scripted": ScriptedProvider(call_once)})

    monkeypatch.setattr("fidelio.app.runtime.open_providers", open_scripted)
    monkeypatch.setenv("REVIEW_TOKEN", SECRET)
    home = Home(tmp_path / "home")
    home.ensure()
    home.agents.mkdir(exist_ok=True)
    text = BLUEPRINT.format(python=sys.executable, program=program.__file__, notes=tmp_path / "notes", more=OWN_SERVER)
    (home.agents / "reviewer.md").write_text(text)
    async with Application(Settings(home=home, ledger=str(home.ledger))) as opened:
        yield opened


async def carry_out(app: Application, project: Path, name: str) -> AgentSession:
    service = await app.agents()
    started = await service.start(StartAgent(name=name, prompt="Call it.", blueprint="reviewer", project=str(project)))
    await service.wait([started.id], mode="all", seconds=60)
    return await service.find(started.id)


def read_home(app: Application) -> bytes:
    files = (path for path in app.settings.home.path.rglob("*") if path.is_file())
    return b"\n".join(path.read_bytes() for path in files)


@proves("runtime.executor-secrets")
async def test_a_secret_of_a_blueprint_reaches_its_server_and_is_nowhere_in_the_home(app: Application, project: Path) -> None:
    session = await carry_out(app, project, "one")

    result = await (await app.agents()).result(session.id)
    # The server repeats the value: it has it, and the answer shows that it was removed.
    assert "token (secret)" in result.text
    stored = read_home(app)
    assert b"${REVIEW_TOKEN}" in stored
    assert SECRET.encode() not in stored


@proves("runtime.executor-one-version")
async def test_all_runs_of_a_blueprint_use_the_same_version_of_its_agent(app: Application, project: Path) -> None:
    for name in ("one", "two"):
        assert (await carry_out(app, project, name)).run.state == "succeeded"

    context = (await app.runtime()).context
    assert len(await list_versions(context, str(project), "blueprint-reviewer")) == 1


@proves("runtime.executor-secrets")
async def test_a_process_without_the_variable_says_which_one_is_missing(
    app: Application, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await carry_out(app, project, "one")
    runtime = await app.runtime()
    (inner,) = [found for found in (await (await app.records()).sessions(kind="runtime")).items if found.record.get("title")]
    agent = await load_agent(runtime.context, str(project), "blueprint-reviewer")
    monkeypatch.delenv("REVIEW_TOKEN")

    with pytest.raises(ToolRefused, match="REVIEW_TOKEN, which is not set"):
        await runtime.context.ports.fill_server(inner.id, "test", agent.definition.tools.mcp_servers["test"])
    assert session.run.state == "succeeded"


@proves("runtime.executor-secrets")
async def test_another_session_of_the_same_agent_gets_no_secret(app: Application, project: Path) -> None:
    session = await carry_out(app, project, "one")
    runtime = await app.runtime()
    # A session that pretends to be the run.
    request = NewAgentSession(project=str(project), agent="blueprint-reviewer", title=session.run.id)
    other = await runtime.start_session(request)
    await app.host_runtime()
    (sent,) = await runtime.send(other, [{"type": e.USER_MESSAGE, "content": "Call it."}], by="person:test", channel="cli")
    async for event in runtime.follow(other, after=sent.seq):
        if event.type == e.STATUS_IDLE:
            break

    errors = await runtime.context.ledger.events(other, types=(e.SESSION_ERROR,))
    assert any("only a run of its blueprint gets" in error.body["error"]["message"] for error in errors)
