"""A server that an agent has started: it starts sessions, and another process hosts their runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fidelio.locks import host_lock
from fidelio.processes.table import AGENT_MARKER
from fidelio.settings import Settings
from tests.support import proves
from tests.surfaces.orchestrator.conftest import SECONDS, in_memory


@proves("orchestrator-tools.children")
async def test_another_process_hosts_the_sessions_that_an_agent_starts(
    settings: Settings, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AGENT_MARKER, "s_nobody.1")
    gate = project / "gate"
    async with asyncio.timeout(SECONDS), in_memory(settings, project) as client:
        client.script("slow", [{"pause": {"until": str(gate), "seconds": 30}}, {"result": "Done."}])
        began = await client.start("task", "slow", **{"async": True})
        status = {"session_name": began.body["session_id"]}
        while (await client("get_agent_session_status", **status)).body["state"] == "queued":
            await client("wait_for_agent_sessions", session_names=[status["session_name"]], timeout_seconds=1)
        assert not host_lock(settings.home).acquire(), "another process hosts"
        gate.write_text("")
        await client("wait_for_agent_sessions", session_names=[status["session_name"]], timeout_seconds=30)
        assert (await client("get_agent_session_result", **status)).text == "Done."
