"""A server that an agent has started: it starts others, and carries none of them out itself."""

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
async def test_below_an_agent_others_carry_out_what_it_starts(
    settings: Settings, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AGENT_MARKER, "s_nobody.1")
    gate = project / "gate"
    async with asyncio.timeout(SECONDS), in_memory(settings, project) as desk:
        desk.script("slow", [{"pause": {"until": str(gate), "seconds": 30}}, {"result": "Done."}])
        began = await desk.start("task", "slow", **{"async": True})
        status = {"session_name": began.body["session_id"]}
        while (await desk("get_agent_session_status", **status)).body["state"] == "queued":
            await desk("wait_for_agent_sessions", session_names=[status["session_name"]], timeout_seconds=1)
        assert not host_lock(settings.home).acquire(), "another process hosts"
        gate.write_text("")
        await desk("wait_for_agent_sessions", session_names=[status["session_name"]], timeout_seconds=30)
        assert (await desk("get_agent_session_result", **status)).text == "Done."
