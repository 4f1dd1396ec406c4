"""Scripted demo agent: an MCP client over HTTP that carries out the workflow `hello` without a model.

Its session is the first record that a new user sees, so it reports only the steps that apply and claims no work that it has not
done.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from fidelio.errors import UsageProblem
from fidelio.orchestrator.executors.scripted.worker import applies, parse_activity

AGENT = "demo-agent"
END = "__terminal__"
SECONDS = 30.0
LOOK_OUTPUT = "Scripted: the skill was loaded, no file was read."
QUESTION_OUTPUT = "Scripted: the question was put, and it was answered."
SKIPPED_OUTPUT = "Scripted: nothing was done here, and nothing was written."


@asynccontextmanager
async def connect_demo_agent(address: str, token: str | None = None, *, project: str = "") -> AsyncIterator[DemoAgent]:
    """Connect the agent to the server. `project` is the value of the variable `project_name`; empty leaves it unset."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        # The server is in this process, so proxies from the environment must not be used.
        httpx2.AsyncClient(headers=headers, timeout=SECONDS, trust_env=False) as http,
        Client(streamable_http_client(address, http_client=http)) as client,
    ):
        yield DemoAgent(client, project)


class DemoAgent:
    """Runs the workflow `hello` with the calls that any agent makes."""

    def __init__(self, client: Client, project: str) -> None:
        self._client, self._project = client, project
        self._token = ""

    async def start_session(self) -> str:
        """Start the session and return its id."""
        await self._call("discover")
        await self._call("list_workflows")
        await self._call("start_session", workflow_id="hello", agent_id=AGENT)
        return str(json.loads(await self._call("get_trace"))["traceId"])

    async def advance_to_question(self) -> str:
        """Work up to the checkpoint; return the id of its request."""
        await self._call("get_workflow")
        await self._call("next_activity", activity_id="greet")
        await self._call("get_activity")
        await self._call("get_skill", step_id="look")
        reply = json.loads(await self._call("yield_checkpoint", checkpoint_id="choose-tone"))
        return str(reply["request_id"])

    async def finish(self) -> None:
        """Work from the answer to the end, along the transitions that hold."""
        await self._call("resume_checkpoint", variables={"project_name": self._project} if self._project else {})
        reports = [_make_report("look", LOOK_OUTPUT), _make_report("ask", QUESTION_OUTPUT)]
        status = await self.read_status()
        while (target := _find_transition(status)) != END:
            await self._call("next_activity", activity_id=target, step_manifest=reports)
            status = await self.read_status()
            reports = await self._report_steps(status["variables"])
        await self._call("next_activity", activity_id=END, step_manifest=reports)

    async def _report_steps(self, variables: Mapping[str, Any]) -> list[dict[str, str]]:
        """Report the steps of the current activity that apply. The script does no work in them."""
        activity = parse_activity(await self._call("get_activity"))
        return [_make_report(step.id, SKIPPED_OUTPUT) for step in activity.steps if applies(step, variables)]

    async def read_status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(await self._call("get_workflow_status"))
        return status

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


def _find_transition(status: Mapping[str, Any]) -> str:
    return next((transition["to"] for transition in status["transitions"] if transition["holds"]), END)


def _make_report(step: str, output: str) -> dict[str, str]:
    return {"step_id": step, "output": output}
