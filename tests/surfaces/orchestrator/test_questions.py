"""Questions of agents: every client sees them, and no agent can answer its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fidelio.settings import Settings
from tests.support import proves
from tests.surfaces.orchestrator.conftest import SECONDS, ToolClient, in_memory

OPTIONS = {"yes": "Go on", "no": "Stop"}
ASK: dict[str, Any] = {"ask": {"text": "May I sing?", "kind": "permission", "options": OPTIONS}}
ASYNC: dict[str, Any] = {"async": True}


@proves("orchestrator-tools.questions")
@pytest.mark.every_transport
async def test_every_look_at_a_waiting_session_shows_what_it_asks(client: ToolClient) -> None:
    client.script("polite", [ASK, {"result": "You said {answer.option}."}])
    place = {"session_name": "task", "project_dir": str(client.project)}
    begun = (await client.start("task", "polite")).body
    waited = await client("wait_for_agent_sessions", session_names=["task"], project_dir=str(client.project), timeout_seconds=0)
    looks = [
        begun,
        (await client("get_agent_session_status", **place)).body,
        waited.body["sessions"][0],
        (await client("get_agent_session_events", **place)).body,
    ]
    for look in looks:
        (question,) = look["questions"]
        labels = {option["id"]: option["label"] for option in question["options"]}
        assert (question["text"], question["kind"], labels) == ("May I sing?", "permission", OPTIONS)
    request = looks[0]["questions"][0]["request_id"]
    await client("answer_agent_question", **place, request_id=request, option_id="yes")
    ended = (await client("get_agent_session_status", **place, wait_seconds=30)).body
    assert "questions" not in ended
    assert (await client("get_agent_session_result", **place)).text == "You said yes."


@proves("orchestrator-tools.own-questions")
@pytest.mark.parametrize("kind", ["permission", "question"])
async def test_no_agent_answers_what_it_or_one_above_it_asks(settings: Settings, project: Path, kind: str) -> None:
    async with asyncio.timeout(SECONDS), in_memory(settings, project) as client:
        client.script("polite", [{"ask": {**ASK["ask"], "kind": kind}}, {"result": "You said {answer.option}."}])
        ids = {"asker": (await client.start("asker", "polite")).body["session_id"]}
        for above, name in (("asker", "child"), ("child", "grandchild")):
            async with in_memory(settings, project, {"FIDELIO_AGENT": f"{ids[above]}.1"}) as below:
                ids[name] = (await below.start(name, "polite", **ASYNC)).body["session_id"]
        for caller in ids.values():
            async with in_memory(settings, project, {"FIDELIO_AGENT": f"{caller}.1"}) as below:
                refused = await below("answer_agent_question", session_name=ids["asker"], option_id="yes")
            assert refused.is_error
            assert "Let a person answer" in refused.text
        assert (await client("get_agent_session_status", session_name=ids["asker"])).body["state"] == "waiting"


@proves("orchestrator-tools.own-questions")
async def test_an_agent_answers_what_those_below_it_ask(settings: Settings, project: Path) -> None:
    async with asyncio.timeout(SECONDS), in_memory(settings, project) as client:
        client.script("polite", [{"ask": {**ASK["ask"], "kind": "question"}}, {"result": "You said {answer.option}."}])
        parent = (await client.start("parent", "polite")).body["session_id"]
        async with in_memory(settings, project, {"FIDELIO_AGENT": f"{parent}.1"}) as below:
            asker = (await below.start("asker", "polite")).body["session_id"]
            assert not (await below("answer_agent_question", session_name=asker, option_id="no")).is_error
        await client("get_agent_session_status", session_name=asker, wait_seconds=30)
        assert (await client("get_agent_session_result", session_name=asker)).text == "You said no."


@proves("orchestrator-tools.own-questions")
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the system does not show the processes above")
def test_a_server_below_an_agent_knows_it_with_a_cleared_environment() -> None:
    server = "from fidelio.processes.caller import identify_process; print(identify_process().run)"
    agent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {server!r}], env={{}}, check=True, timeout=30)"
    environ = {**os.environ, "FIDELIO_AGENT": "s_000000000000.3"}
    done = subprocess.run([sys.executable, "-c", agent], env=environ, capture_output=True, text=True, timeout=40, check=True)
    assert done.stdout.strip() == "s_000000000000.3"
