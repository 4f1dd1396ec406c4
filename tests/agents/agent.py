"""Claude Code as a real program with a home of its own and no network except loopback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agents.model import SECONDS

PROMPT = "Use the fidelio server and carry out the workflow hello."
# `--bare` and an empty list of tools leave the agent with nothing but its MCP client. Nobody is there to be asked for leave.
OPTIONS = (
    *("--bare", "--tools", "", "--strict-mcp-config", "--allowedTools", "mcp__fidelio"),
    *("--no-session-persistence", "--output-format", "stream-json", "--verbose"),
)
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    "ENABLE_TOOL_SEARCH": "false",  # every tool is offered at once, instead of one that finds the others
}


@dataclass(frozen=True, slots=True)
class Agent:
    """A running agent. `account` is the file in which it says what it does, one event a line."""

    process: asyncio.subprocess.Process
    account: Path

    async def end(self) -> dict[str, Any]:
        """Waits for the end of its turn; what it says of it."""
        async with asyncio.timeout(SECONDS):
            assert await self.process.wait() == 0, self.account.read_text("utf-8")
        events = [json.loads(line) for line in self.account.read_text("utf-8").splitlines()]
        return next(dict(event) for event in events if event["type"] == "result")


@asynccontextmanager
async def working(command: Path, project: Path, model: str, **environ: str) -> AsyncIterator[Agent]:
    """An agent at work in `project`, with the servers of its `.mcp.json`. At the end it is gone, and its children with it."""
    home = project.parent / "agent"
    home.mkdir()
    with (home / "account").open("wb") as account:
        process = await asyncio.create_subprocess_exec(
            *(str(command), "-p", PROMPT, *OPTIONS, "--mcp-config", str(project / ".mcp.json")),
            cwd=project,
            env={**QUIET, **_loopback_only(model), "HOME": str(home), "TMPDIR": str(home), "PATH": os.defpath, **environ},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=account,
            start_new_session=True,
        )
    try:
        yield Agent(process, home / "account")
    finally:
        with suppress(ProcessLookupError):  # nobody of them is left
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _loopback_only(model: str) -> dict[str, str]:
    """Whatever is meant for elsewhere goes to the model as to a proxy, which refuses and remembers it."""
    proxies = {"HTTP_PROXY": model, "HTTPS_PROXY": model, "NO_PROXY": "127.0.0.1,localhost"}
    return {"ANTHROPIC_BASE_URL": model, "ANTHROPIC_API_KEY": "test", **proxies}
