"""The MCP servers of agents that are made from blueprints: stored with placeholders, filled in when a wake connects.

The ledger keeps what the blueprint says: `${NAME}` in place of a secret, and nothing that belongs to a single run. The process
that carries out a wake fills in the values of its own environment, only for names that the blueprint inherits, and only for the
session of the run: another session that uses the same agent gets no value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from fidelio.errors import ExecutorUnavailable, SessionNotFound, ToolRefused
from fidelio.ids import session_of_run
from fidelio.ledger import Ledger
from fidelio.ledger.unit_of_work import UnitOfWork
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.blueprints.servers import SANDBOX_SERVER
from fidelio.orchestrator.record.unit_of_work import LoadedAgent
from fidelio.orchestrator.runs.context import OrchestratorContext
from fidelio.orchestrator.runs.environment import filter_environment
from fidelio.orchestrator.runs.preparation import resolve_blueprint
from fidelio.runtime.agents.definition import ServerDefinition
from fidelio.runtime.record import RuntimeRecord, RuntimeRecords
from fidelio.runtime.tools.model import Policy

# How the names of agents begin that are made from blueprints.
AGENT_PREFIX = "blueprint-"
FilledServer: TypeAlias = tuple[ServerDefinition, tuple[str, ...]]
_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def describe_servers(template: Blueprint) -> dict[str, ServerDefinition]:
    """The servers of a blueprint without secrets, as the definition of its agent keeps them."""
    return {name: _describe(name, server, template) for name, server in template.mcp_servers.items()}


class BlueprintServers:
    """Fills in a server for a wake. `open_context` is called by the first session that needs it."""

    def __init__(self, ledger: Ledger, open_context: Callable[[], OrchestratorContext]) -> None:
        self._ledger, self._open_context = ledger, open_context

    async def fill(self, session: str, name: str, server: ServerDefinition) -> FilledServer:
        """A server with the values that it is connected with, and the secrets among them. Raises `ToolRefused`."""
        record = await self._load(session)
        if not record.agent.startswith(AGENT_PREFIX):
            return server, ()
        context = self._open_context()
        agent = await self._find_agent(context, record.root or session)
        blueprint = None if agent is None else await context.load_run_blueprint(agent.record)
        if agent is None or blueprint is None or blueprint.options.get("agent"):
            return _refuse_placeholders(name, server), ()
        return _fill(context, agent.record.run.id, blueprint, name, server)

    async def _load(self, session: str) -> RuntimeRecord:
        return await UnitOfWork(self._ledger, lambda: 0, RuntimeRecords()).load_record(await self._ledger.session(session))

    async def _find_agent(self, context: OrchestratorContext, session: str) -> LoadedAgent | None:
        """The agent session whose runs are carried out by this runtime session."""
        try:
            found = await context.unit.load(session_of_run((await self._load(session)).title))
        except SessionNotFound:
            return None
        # Anybody can begin a session with the title of a run; only the orchestrator records a conversation.
        return found if found.record.conversation == session else None


def _fill(context: OrchestratorContext, run: str, blueprint: Blueprint, name: str, server: ServerDefinition) -> FilledServer:
    unfilled = _to_mcp_server(server)
    if name == SANDBOX_SERVER and blueprint.tools == "sandbox":
        # It serves the copy of one session, so its arguments are not in the definition.
        unfilled = blueprint.mcp_servers.get(name, unfilled)
    try:
        filled = resolve_blueprint(context, msgspec.structs.replace(blueprint, mcp_servers={name: unfilled}), run)
    except ExecutorUnavailable as error:
        raise ToolRefused(error.sentence, remedy=error.remedy, reason="mcp_server_failed", retryable=True) from error
    known = filled.mcp_servers[name]
    definition = _to_definition(known, server.policies)
    return definition, _find_secrets(unfilled, blueprint)


def _find_secrets(server: McpServer, blueprint: Blueprint) -> tuple[str, ...]:
    """The values that were filled in, without those that any program may see, such as the home directory."""
    names = _find_placeholders(server).intersection(blueprint.inherit) - filter_environment(os.environ).keys()
    return tuple(part for name in sorted(names) for part in (os.environ[name], *os.environ[name].split()))


def _refuse_placeholders(name: str, server: ServerDefinition) -> ServerDefinition:
    if _find_placeholders(_to_mcp_server(server)):
        raise ToolRefused(
            f"The MCP server {name} needs environment variables that only a run of its blueprint gets.",
            remedy="Start an agent with the blueprint.",
            reason="mcp_server_failed",
        )
    return server


def _find_placeholders(server: McpServer) -> set[str]:
    texts = (server.command or "", server.url or "", *server.args, *server.env.values(), *server.headers.values())
    return {name for text in texts for name in _PLACEHOLDER.findall(text)}


def _describe(name: str, server: McpServer, blueprint: Blueprint) -> ServerDefinition:
    allowed = f"mcp__{name}"
    named = [tool.removeprefix(f"{allowed}__") for tool in blueprint.permissions.allow if tool.startswith(f"{allowed}__")]
    is_whole = allowed in blueprint.permissions.allow or blueprint.permissions.mode == "full"
    policies: dict[str, Policy] = {"*": "always_allow"} if is_whole else dict.fromkeys(named, "always_allow")
    if blueprint.permissions.needs_proof:
        policies = {"*": "proven", **policies}
    if name == SANDBOX_SERVER and blueprint.tools == "sandbox":
        server = msgspec.structs.replace(server, args=())
    return _to_definition(server, policies)


def _to_definition(server: McpServer, policies: dict[str, Policy]) -> ServerDefinition:
    return ServerDefinition(
        command=server.command or "",
        args=server.args,
        url=server.url or "",
        env=dict(server.env),
        headers=dict(server.headers),
        policies=policies,
    )


def _to_mcp_server(server: ServerDefinition) -> McpServer:
    return McpServer(
        command=server.command or None, args=server.args, env=server.env, url=server.url or None, headers=server.headers
    )
