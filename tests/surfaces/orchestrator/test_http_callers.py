"""Agents that reach Fidelio over HTTP: what they start is theirs, as it is over stdio."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fidelio.app.application import Application
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.blueprints.servers import AGENT_HEADER, add_agent_header
from fidelio.settings import Settings, load_settings
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.serving import serve_http
from fidelio.surfaces.mcp.protocol import Protocol
from fidelio.surfaces.mcp.server import make_identity, make_request_states
from fidelio.surfaces.mcp.toolsets.orchestrator.declarations import open_tools
from tests.support import proves
from tests.surfaces.mcp.wire import call, initialize
from tests.surfaces.orchestrator.conftest import SECONDS, ToolClient, ToolReply
from tests.surfaces.orchestrator.test_questions import ASK

ACCEPT = {"Accept": "application/json, text/event-stream"}
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


@dataclass
class OrchestratorServer:
    """The orchestrator over HTTP, and how a client of each kind calls it."""

    url: str
    app: Application

    async def plain(self, tool: str, arguments: dict[str, Any], **headers: str) -> ToolReply:
        """As from 2026-07-28 on: each request for itself."""
        routed = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool}
        async with httpx2.AsyncClient(timeout=SECONDS) as client:
            message = call(1, tool, arguments, _meta=META)
            return _read(await client.post(self.url, json=message, headers={**ACCEPT, **routed, **headers}))

    async def in_session(self, tool: str, arguments: dict[str, Any], **headers: str) -> ToolReply:
        """As before: a session that lives in a task of its own, begun by a request that claims nothing."""
        async with httpx2.AsyncClient(timeout=SECONDS) as client:
            begun = await client.post(self.url, json=initialize(elicitation={}), headers=ACCEPT)
            session = {**ACCEPT, "mcp-session-id": begun.headers["mcp-session-id"]}
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await client.post(self.url, json=ready, headers=session)
            return _read(await client.post(self.url, json=call(1, tool, arguments), headers={**session, **headers}))


def _read(reply: httpx2.Response) -> ToolReply:
    data = re.findall(r"^data: (\{.*)$", reply.text, re.MULTILINE)
    result = json.loads(data[-1] if data else reply.text)["result"]
    texts = [block["text"] for block in result["content"]]
    return ToolReply(texts, result["isError"], result.get("structuredContent"))


@asynccontextmanager
async def serving(settings: Settings, environ: dict[str, str] | None = None) -> AsyncIterator[OrchestratorServer]:
    async with asyncio.timeout(SECONDS), Application(settings) as app:
        tools = open_tools(app, environ=environ or {})
        protocol = Protocol(make_identity(settings), tools, make_request_states(settings))
        asgi = create_app({"/mcp/orchestrator": protocol})
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(serve_http(asgi, port=0, ready=address.set_result))
        try:
            yield OrchestratorServer(f"{await address}/mcp/orchestrator", app)
        finally:
            task.cancel()
            await asyncio.wait([task], timeout=10)


def client_at(server: OrchestratorServer, project: Path) -> ToolClient:
    return ToolClient(server.plain, project)


def begin(name: str, project: Path, **more: Any) -> dict[str, Any]:
    named = {"session_name": name, "agent_blueprint_name": "echo", "prompt": "Found it.", "async": True}
    return {**named, "project_dir": str(project), **more}


async def begin_busy(server: OrchestratorServer, project: Path, name: str) -> str:
    """Start an agent that waits for an answer; return its session."""
    client = client_at(server, project)
    client.script("busy", [ASK, {"result": "Done."}])
    return str((await client.start(name, "busy")).body["session_id"])


@proves("orchestrator-tools.children", "orchestrator-tools.http-children")
async def test_an_agent_over_http_has_children_that_call_it_back(settings: Settings, project: Path) -> None:
    async with serving(settings) as server:
        client = client_at(server, project)
        asking = {"call": {"tool": "start_agent_session", "arguments": begin("child", project, callback=True)}}
        servers = {"fidelio": {"url": server.url}}
        client.script("parent", [asking, {"result": "Asked."}], [{"result": "{prompt}"}], mcp_servers=servers)

        parent = (await client.start("parent", "parent", **{"async": True})).body["session_id"]

        service = await server.app.agents()
        async for event in service.context.ledger.follow(parent, types=("run.succeeded",)):
            if "Found it." in str(event.body["result"]):
                break
        (child,) = (await service.list(parent=parent)).items
        assert (child.name, child.depth) == ("child", 1)


@proves("orchestrator-tools.http-children")
async def test_an_agent_over_http_is_held_to_the_depth_that_is_allowed(tmp_path: Path, project: Path) -> None:
    environ = {"FIDELIO_HOME": str(tmp_path / "home"), "FIDELIO_SYNC_SECONDS": "20", "FIDELIO_AGENTS_DEPTH": "0"}
    async with serving(load_settings(environ=environ)) as server:
        client = client_at(server, project)
        asking = {"call": {"tool": "start_agent_session", "arguments": begin("child", project), "may_fail": True}}
        client.script("parent", [asking, {"result": "{returned}"}], mcp_servers={"fidelio": {"url": server.url}})

        assert "1 levels below the first; 0 are allowed" in (await client.start("parent", "parent")).text


@proves("orchestrator-tools.http-children")
@pytest.mark.parametrize("way", ["plain", "in_session"])
async def test_a_claim_counts_for_the_request_that_makes_it(settings: Settings, project: Path, way: str) -> None:
    async with serving(settings) as server:
        ask = getattr(server, way)
        parent = await begin_busy(server, project, "parent")
        claim = {AGENT_HEADER.lower(): f"{parent}.1"}

        await ask("start_agent_session", begin("child", project), **claim)
        await ask("start_agent_session", begin("other", project))
        stopped = await ask("delete_agent_session", {"session_name": "other"}, **claim)

        service = await server.app.agents()
        assert [one.name for one in (await service.list(parent=parent)).items] == ["child"]
        assert stopped.body["status"] == "not_existent"


@proves("orchestrator-tools.http-children")
@pytest.mark.parametrize(
    "claim",
    ["x", ".", "s_000000000000", "s_000000000000.", "s_000000000000.x", "../s_000000000000.1", "s_000000000000.1, a", "ä.1"],
)
async def test_a_claim_that_names_no_run_is_an_error_that_says_so(settings: Settings, project: Path, claim: str) -> None:
    async with serving(settings) as server:
        headers: Any = {AGENT_HEADER: claim.encode()}

        refused = await server.plain("start_agent_session", begin("child", project), **headers)
        listed = await server.plain("list_agent_sessions", {}, **headers)

        assert refused.is_error
        assert "malformed or contradict each other. It may only read." in refused.text
        assert listed.body["total"] == 0


@proves("orchestrator-tools.http-children")
async def test_a_claim_of_a_session_that_is_not_there_starts_nothing(settings: Settings, project: Path) -> None:
    async with serving(settings) as server:
        refused = await server.plain("start_agent_session", begin("child", project), **{AGENT_HEADER: "s_000000000000.1"})

        assert refused.is_error
        assert "s_000000000000" in refused.text
        assert (await server.plain("list_agent_sessions", {})).body["total"] == 0


POST = (
    "import sys, urllib.request\n"
    "request = urllib.request.Request(sys.argv[1], sys.stdin.buffer.read(), dict(zip(sys.argv[2::2], sys.argv[3::2])))\n"
    "print(urllib.request.urlopen(request, timeout=30).read().decode())\n"
)


@proves("orchestrator-tools.http-children", "processes.peer")
@pytest.mark.parametrize("run", ["{parent}.1", "garbage"])
async def test_an_agent_that_leaves_out_its_header_is_known_by_its_process(settings: Settings, project: Path, run: str) -> None:
    async with serving(settings) as server:
        parent = await begin_busy(server, project, "parent")
        message = json.dumps(call(1, "start_agent_session", begin("child", project), _meta=META)).encode()
        routed = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "start_agent_session"}
        headers = {**ACCEPT, **routed, "Content-Type": "application/json"}
        words = [word for pair in headers.items() for word in pair]
        agent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", POST, server.url, *words),
            env={"FIDELIO_AGENT": run.format(parent=parent)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        reply = (await agent.communicate(message))[0].decode()

        service = await server.app.agents()
        children = [child.name for child in (await service.list(parent=parent)).items]
    assert children == ([] if run == "garbage" else ["child"]), reply
    assert ("It may only read" in reply) == (run == "garbage")


@proves("orchestrator-tools.http-children")
async def test_no_claim_lifts_a_session_above_the_agent_that_its_server_runs_below(settings: Settings, project: Path) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(serving(settings))
        above = await begin_busy(first, project, "above")
        other = await begin_busy(first, project, "other")
        server = await stack.enter_async_context(serving(settings, {"FIDELIO_AGENT": f"{above}.1"}))
        refused = await server.plain("start_agent_session", begin("child", project), **{AGENT_HEADER: f"{other}.1"})
        await server.plain("start_agent_session", begin("own", project))

        service = await server.app.agents()
        assert refused.is_error
        assert [one.name for one in (await service.list(parent=above)).items] == ["own"]


@proves("orchestrator-tools.http-children")
@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.0.0.1:7333/mcp/orchestrator", True),
        ("https://example.org/fidelio/mcp/orchestrator/?a=b", True),
        ("http://127.0.0.1:7333/mcp", False),
        ("https://example.org/mcp?next=/mcp/orchestrator", False),
    ],
)
def test_only_a_server_that_starts_agents_is_told_which_agent_calls(url: str, told: bool) -> None:
    server = McpServer(url=url, headers={"fidelio-agent": "s_somebody.1", "X-Key": "k"})
    program = McpServer(command="fidelio", args=("mcp",))
    blueprint = Blueprint(name="a", description="", mcp_servers={"web": server, "program": program})

    servers = add_agent_header(blueprint, "s_000000000000.7").mcp_servers

    assert servers["web"].headers == ({"X-Key": "k", AGENT_HEADER: "s_000000000000.7"} if told else server.headers)
    assert servers["program"] == program
