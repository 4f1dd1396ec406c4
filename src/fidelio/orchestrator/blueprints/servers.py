"""The MCP servers of a blueprint: their entries in files, and the placeholders for secrets.

`${NAME}` in a server's entry stands for an environment variable. It is replaced when a run begins, in memory, and only for
names that the blueprint inherits; so a blueprint can be shown, hashed and shared without showing a secret.

A Fidelio server that starts agents gets a header with the run of the calling agent: sessions that it starts become children.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import msgspec

from fidelio.definitions.reading.positions import Path
from fidelio.errors import ExecutorUnavailable
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint, Tools

AGENT_HEADER = "Fidelio-Agent"
# The MCP server of an agent with `tools: sandbox`.
SANDBOX_SERVER = "sandbox"
# The path at which Fidelio serves the tools that start agents, behind any proxy prefix.
_OWN_PATH = "/mcp/orchestrator"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

NonEmptyText = Annotated[str, msgspec.Meta(min_length=1)]


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server in a blueprint file: `stdio` with a command, or `http` with an address."""

    type: Literal["stdio", "http"] | None = None
    command: NonEmptyText | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict)
    url: NonEmptyText | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)


def find_server_problems(
    servers: Mapping[str, ServerEntry], inherit: tuple[str, ...], under: Path, tools: Tools = "own"
) -> Iterator[tuple[Path, str, str]]:
    """Yield the path of each invalid server in its file, what is wrong, and what to do."""
    for name, server in servers.items():
        path = (*under, name)
        if name == SANDBOX_SERVER and tools == "sandbox":
            yield path, "has the name of the server that `tools: sandbox` adds.", "Give it another name."
        if not _NAME.fullmatch(name):
            yield path, "is not a valid server name.", "Use 1 to 64 letters, digits, dashes and underscores."
        if problem := _find_contradiction(server):
            yield path, problem, "Give a server either `command` (with `args` and `env`) or `url` (with `headers`)."
        for variable in sorted(_find_placeholders(server) - set(inherit)):
            remedy = f"Add {variable} to `inherit`: only variables listed there are passed on."
            yield path, f"needs the environment variable {variable}, which the blueprint does not inherit.", remedy


def to_mcp_servers(servers: Mapping[str, ServerEntry]) -> dict[str, McpServer]:
    return {
        name: McpServer(command=entry.command, args=entry.args, env=dict(entry.env), url=entry.url, headers=dict(entry.headers))
        for name, entry in servers.items()
    }


def fill_placeholders(blueprint: Blueprint, environ: Mapping[str, str]) -> Blueprint:
    """Replace the placeholders in the servers of a blueprint; the result holds secrets and must not be stored or shown.

    Raises `ExecutorUnavailable` when a variable is not set.
    """
    return msgspec.structs.replace(
        blueprint,
        mcp_servers={name: _fill_server(blueprint, server, environ) for name, server in blueprint.mcp_servers.items()},
    )


def add_agent_header(blueprint: Blueprint, run: str) -> Blueprint:
    """Add the header with the id of the run to every server of a blueprint that could start other agents."""
    return msgspec.structs.replace(
        blueprint, mcp_servers={name: _add_header(server, run) for name, server in blueprint.mcp_servers.items()}
    )


def add_sandbox_server(blueprint: Blueprint, *, home: str, project: str, session: str) -> Blueprint:
    """Add the server with a copy of the project to a blueprint with `tools: sandbox`, and allow its tools.

    What they may do is decided by the permissions of the sandbox session, where the effect happens.
    """
    if blueprint.tools != "sandbox":
        return blueprint
    options = ("--toolset", "sandbox", "--home", home, "--session", session, "--mount", f"{project}:copy")
    server = McpServer(command=sys.executable, args=("-m", "fidelio", "mcp", *options))
    permissions = blueprint.permissions
    allowed = dict.fromkeys((*permissions.allow, f"mcp__{SANDBOX_SERVER}"))
    return msgspec.structs.replace(
        blueprint,
        mcp_servers={**blueprint.mcp_servers, SANDBOX_SERVER: server},
        permissions=msgspec.structs.replace(permissions, allow=tuple(allowed)),
    )


def _add_header(server: McpServer, run: str) -> McpServer:
    # The address may have a query, and the case of a header name does not matter.
    path = (server.url or "").partition("?")[0].rstrip("/")
    if not path.endswith(_OWN_PATH):
        return server
    headers = {name: value for name, value in server.headers.items() if name.lower() != AGENT_HEADER.lower()}
    return msgspec.structs.replace(server, headers={**headers, AGENT_HEADER: run})


def _fill_server(blueprint: Blueprint, server: McpServer, environ: Mapping[str, str]) -> McpServer:
    wanted = _find_placeholders(server).intersection(blueprint.inherit)
    if missing := sorted(wanted - environ.keys()):
        raise ExecutorUnavailable(
            f"The blueprint {blueprint.name} needs the environment variable {missing[0]}, which is not set.",
            remedy="Set it in the environment of Fidelio, and restart it.",
        )

    def fill(text: str) -> str:
        # In a single pass: a placeholder inside a value must not be replaced.
        return _PLACEHOLDER.sub(lambda match: environ[match[1]] if match[1] in wanted else match[0], text)

    return McpServer(
        command=None if server.command is None else fill(server.command),
        args=tuple(fill(argument) for argument in server.args),
        env={name: fill(value) for name, value in server.env.items()},
        url=None if server.url is None else fill(server.url),
        headers={name: fill(value) for name, value in server.headers.items()},
    )


def _find_placeholders(server: ServerEntry | McpServer) -> set[str]:
    texts = (server.command or "", server.url or "", *server.args, *server.env.values(), *server.headers.values())
    return {name for text in texts for name in _PLACEHOLDER.findall(text)}


def _find_contradiction(server: ServerEntry) -> str:
    if server.command is None and server.url is None:
        return "has neither a command nor an address."
    if server.command is not None and server.url is not None:
        return "has a command and an address."
    kind = "http" if server.command is None else "stdio"
    if server.type not in (None, kind):
        return f"is of the type {server.type}, but has the keys of {kind}."
    stray = server.headers if kind == "stdio" else (server.args or server.env)
    return "mixes keys of the two kinds of servers." if stray else ""
