"""The server itself, as a person starts it, killed at any moment. `KILL_SEED=N` repeats a run that has failed."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import httpx2
import msgspec
import pytest
import yaml

from fidelio.errors import AgentSessionNotFound
from fidelio.ledger import open_ledger
from tests.orchestrator.hosting_process import LOG, fake_blueprints, kill, real_service
from tests.orchestrator.kills.test_host_killed import KINDS, KillLoop, check
from tests.support import proves
from tests.surfaces.mcp.wire import META, call

SECONDS = 30.0
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "start_agent_session",
}


class ServerLoop(KillLoop):
    """The same loop around `fidelio up`, which is reached over HTTP. `promised` is what it has acknowledged."""

    promised: frozenset[str] = frozenset()

    async def once(self, number: int) -> None:
        server, address = await asyncio.to_thread(self.up)
        names = [f"{kind}-{number}" for kind in self.chance.sample(KINDS, 2)]
        starting = [asyncio.create_task(self.begin(address, name)) for name in names]
        if number % 2:
            # Every other time it dies with agents at work, else perhaps before it has begun any.
            await asyncio.wait(starting)
        await asyncio.sleep(self.chance.random() * 0.8)  # not for anything to happen: this is the random moment
        if self.chance.random() < 0.5:
            self.kill_an_agent()
        kill(server)
        self.promised |= {name for name, promised in zip(names, await asyncio.gather(*starting), strict=True) if promised}
        for name in names:
            await self.take_note(name)
        await self.answer_everything()

    def up(self) -> tuple[subprocess.Popen[str], str]:
        """The server, and where it offers its tools."""
        home = self.service.context.home.path
        command = [sys.executable, "-m", "fidelio", "up", "--port", "0", "--no-token"]
        environ = {
            **os.environ,
            "FIDELIO_TRUST": str(self.project),
            "FIDELIO_HOME": str(home),
            "FIDELIO_AGENTS_PER_PROJECT": "300",
            "FIDELIO_AGENTS_TOTAL": "300",
        }
        with (home / LOG).open("ab") as log:
            server = subprocess.Popen(command, cwd=self.project, env=environ, stdout=subprocess.PIPE, stderr=log, text=True)
        assert server.stdout is not None
        address = next(line for line in server.stdout if "/mcp" in line).split()[-1]
        return server, f"{address}/orchestrator"

    async def begin(self, address: str, name: str) -> bool:
        """Whether the server has acknowledged the start before it died."""
        wanted = {"session_name": name, "prompt": "Sing.", "agent_blueprint_name": name.rpartition("-")[0], "async": True}
        message = call(1, "start_agent_session", {**wanted, "project_dir": str(self.project)}, _meta=META)
        try:
            async with httpx2.AsyncClient(timeout=SECONDS) as client:
                reply = await client.post(address, json=message, headers=HEADERS)
        except httpx2.TransportError:
            return False
        return name in reply.text and '"isError":true' not in reply.text.replace(" ", "")

    async def take_note(self, name: str) -> None:
        try:
            self.sessions.add((await self.service.find(name)).id)
        except AgentSessionNotFound:
            assert name not in self.promised, f"{name} was acknowledged and is not there"


def write_blueprints(project: Path) -> None:
    """Those of the other loop, as files."""
    folder = project / ".fidelio" / "agents"
    folder.mkdir(parents=True)
    for kind in KINDS:
        known = msgspec.to_builtins(fake_blueprints().known[kind])
        front = {name: known[name] for name in ("name", "executor", "options", "resume_lost")}
        (folder / f"{kind}.md").write_text(f"---\n{yaml.safe_dump({**front, 'description': 'Sings.'})}---\n", "utf-8")


@pytest.mark.timeout(180)
@proves("orchestrator.kill", "orchestrator.durable-start", "orchestrator.once", "orchestrator.adopt")
async def test_nothing_is_lost_doubled_or_left_behind_when_the_server_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(1 << 32))
    sys.stdout.write(f"KILL_SEED={seed}\n")
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    write_blueprints(project)
    async with await open_ledger(home / "ledger.db") as ledger:
        loop = ServerLoop(real_service(ledger, home, project), random.Random(seed))
        for number in range(4):
            await loop.once(number)
        async with asyncio.timeout(60):
            await loop.bring_to_an_end()
        await check(loop, ledger)

    assert len(loop.sessions) >= len(loop.promised) > 0
