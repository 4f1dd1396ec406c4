"""`fidelio doctor` reports queued agents that no process hosts."""

from __future__ import annotations

import json
from pathlib import Path

from fidelio.app.agents import open_agents
from fidelio.ledger import open_ledger
from fidelio.locks import host_lock
from fidelio.orchestrator.record.model import StartAgent
from fidelio.orchestrator.runs.host import AgentHost
from fidelio.settings import Settings
from tests.support import proves
from tests.surfaces.conftest import Fidelio


def agents_check(fidelio: Fidelio) -> dict[str, str]:
    checks = json.loads(fidelio("doctor", "--json").stdout)["checks"]
    (found,) = (check for check in checks if check["name"] == "agents")
    assert isinstance(found, dict)
    return found


@proves("cli.doctor", "orchestrator.host-restarts", "orchestrator.why-queued")
async def test_queued_agents_without_a_host_are_reported(fidelio: Fidelio, settings: Settings, project: Path) -> None:
    assert agents_check(fidelio)["sentence"] == "No agent is running or queued."

    settings.home.ensure()
    async with await open_ledger(settings.ledger) as ledger:
        service = open_agents(settings, ledger)
        await service.start(StartAgent(name="task", prompt="Hello.", blueprint="echo", project=str(project)))
        waits = agents_check(fidelio)
        lock = host_lock(settings.home)
        assert lock.acquire()
        hosted = agents_check(fidelio)
        listed = json.loads(fidelio("agents", "list", "--json").stdout)["items"]
        printed = [fidelio("agents", *words).stdout for words in (("list",), ("status", "task", "--project", str(project)))]
        lock.release()
        async with AgentHost(service.context):
            await service.wait(["task"], str(project), mode="all", seconds=20)

    assert (waits["state"], "fidelio work" in waits["remedy"]) == ("warning", True)
    assert hosted["state"] == "ok"
    why = "The agent host starts it in a moment."
    assert f"task is queued: {why}" in hosted["sentence"]
    assert [session["waits_because"] for session in listed] == [why]
    assert all(why in text for text in printed)
