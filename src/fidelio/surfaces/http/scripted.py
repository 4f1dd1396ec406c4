"""An agent without a model, connected over HTTP: it reads what it is given and does what is written in `hello`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent
from toon_format import decode

from fidelio.errors import UsageProblem

AGENT = "demo-agent"
END = "__terminal__"
SECONDS = 30.0


@asynccontextmanager
async def scripted_agent(address: str, token: str | None = None) -> AsyncIterator[ScriptedAgent]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        # Nobody's proxy lies between a server and the agent that it brings along.
        httpx2.AsyncClient(headers=headers, timeout=SECONDS, trust_env=False) as web,
        Client(streamable_http_client(address, http_client=web)) as client,
    ):
        yield ScriptedAgent(client)


class ScriptedAgent:
    """Carries out `hello` through the same calls that any agent makes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._token = ""

    async def begin(self) -> str:
        """Starts the session and gives its id."""
        await self._call("discover")
        await self._call("list_workflows")
        await self._call("start_session", workflow_id="hello", agent_id=AGENT)
        return str(json.loads(await self._call("get_trace"))["traceId"])

    async def reach_question(self) -> str:
        """Up to the checkpoint; the id of the request that waits."""
        await self._call("get_workflow")
        await self._call("next_activity", activity_id="greet")
        await self._call("get_activity")
        await self._call("get_skill", step_id="look")
        yielded = json.loads(await self._call("yield_checkpoint", checkpoint_id="choose-tone"))
        return str(yielded["request_id"])

    async def go_on(self) -> None:
        """From the answer to the end, along the ways that hold."""
        await self._call("resume_checkpoint", variables={"project_name": "this project"})
        done = [{"step_id": "look", "output": "Read the README."}, {"step_id": "ask", "output": "Answered."}]
        while (target := await self._open_way()) != END:
            await self._call("next_activity", activity_id=target, step_manifest=done)
            done = await self._do_steps()
        await self._call("next_activity", activity_id=END, step_manifest=done)

    async def _open_way(self) -> str:
        status = json.loads(await self._call("get_workflow_status"))
        return next((way["to"] for way in status["transitions"] if way["holds"]), END)

    async def _do_steps(self) -> list[dict[str, str]]:
        """Says that every step of the current activity was done; a scripted agent has no hands."""
        text = await self._call("get_activity")
        activity: Any = decode(text.partition("\n\n")[2])
        return [{"step_id": step["id"], "output": f"Done: {step['name']}."} for step in activity.get("steps", [])]

    async def _call(self, tool: str, **arguments: Any) -> str:
        token = {"session_token": self._token} if self._token else {}
        result = await self._client.call_tool(tool, {**token, **arguments})
        assert isinstance(result, CallToolResult)
        block = result.content[0]
        assert isinstance(block, TextContent)
        if result.is_error:
            raise UsageProblem(f"The scripted agent's call of {tool} failed: {block.text}")
        self._token = (result.meta or {}).get("session_token", self._token)
        return block.text
