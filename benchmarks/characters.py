"""Benchmark of what an agent has to read: the characters of a walk through a bundled workflow.

python -m benchmarks characters

An agent reads the workflow, the skill of every step and the resources of every skill again in each activity, as the procedure
says. The same walk is made twice: asking for whole texts, and letting the server leave out what the agent got before.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from fidelio.app.application import Application
from fidelio.definitions.library.search_path import bundled_root
from fidelio.settings import load_settings
from fidelio.surfaces.mcp.dialects import DEFAULT, load_tools
from fidelio.surfaces.mcp.protocol import Protocol
from fidelio.surfaces.mcp.server import make_identity, make_request_states

WORKFLOW = "work-package"
MOST = 0.6
# The walk is about reading: nothing holds it up.
_HOLDS = re.compile(r"^\s*(?:- )?fidelity:.*\n|,? ?\banswered_by: person", re.MULTILINE)


class _Reader:
    """Calls tools over a connection, and counts the characters of the replies."""

    def __init__(self, protocol: Protocol, *, full: bool) -> None:
        self._connection = protocol.connect()
        self._ids = count(1)
        self._full = {"full": True} if full else {}
        self.token = ""
        self.characters = 0

    async def __call__(self, tool: str, **arguments: Any) -> str:
        own = {"session_token": self.token} if self.token else {}
        params = {"name": tool, "arguments": {**own, **arguments}}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}
        reply = await self._connection.answer(message)
        result = reply["result"]
        assert not result["isError"], result
        self.token = result.get("_meta", {}).get("session_token", self.token)
        text = str(result["content"][0]["text"])
        self.characters += len(text)
        return text

    async def read(self, tool: str, **arguments: Any) -> str:
        return await self(tool, **arguments, **self._full)


async def _walk(protocol: Protocol, application: Application, *, full: bool) -> int:
    library = await application.library()
    reader = _Reader(protocol, full=full)
    await reader("start_session", workflow_id=WORKFLOW)
    for activity in library.workflow(WORKFLOW).activities:
        await reader.read("get_workflow")
        await reader("next_activity", activity_id=activity.id)
        await reader("get_activity")
        for step in activity.steps:
            if step.skill:
                await reader.read("get_skill", step_id=step.id)
                for resource in library.skill(step.skill, workflow=WORKFLOW, owner=activity.owner).definition.resources:
                    await reader.read("get_resource", resource_id=resource)
    return reader.characters


async def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as place:
        library = Path(place) / "workflows"
        shutil.copytree(bundled_root().path, library)
        for file in library.rglob("*.yaml"):
            file.write_text(_HOLDS.sub("", file.read_text("utf-8")), "utf-8")
        settings = load_settings(str(Path(place) / "home"))
        async with Application(settings, [str(library)]) as application:
            application.creates_missing_home = True
            protocol = Protocol(make_identity(settings), load_tools(DEFAULT, application), make_request_states(settings))
            whole, once = [await _walk(protocol, application, full=full) for full in (True, False)]
    return [
        Figure(name=f"characters of a walk through {WORKFLOW}, every text whole", value=whole, unit=""),
        Figure(name=f"characters of a walk through {WORKFLOW}, nothing sent twice", value=once, unit=""),
        Figure(name="characters with nothing sent twice / with every text whole", value=once / whole, unit="x", at_most=MOST),
    ]


def main() -> list[Figure]:
    return asyncio.run(measure())
