"""The MCP servers of a blueprint: how they are written down, and how they get values that must not be written down.

`${NAME}` in a server's entry stands for an environment variable. It is filled in when a run begins, in memory, and only for
names that the blueprint inherits; so a blueprint can be shown, hashed and shared without showing a secret.

A server that is a Fidelio which starts agents is told by a header whose agent calls: what that one starts counts as its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import msgspec

from fidelio.errors import ExecutorUnavailable
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint

AGENT_HEADER = "Fidelio-Agent"
# Where a Fidelio serves the tools that start agents, whatever stands in front of it.
_OWN_PATH = "/mcp/orchestrator"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

NonEmptyText = Annotated[str, msgspec.Meta(min_length=1)]


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server as it is written down: `stdio` with a command, or `http` with an address."""

    type: Literal["stdio", "http"] | None = None
    command: NonEmptyText | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict)
    url: NonEmptyText | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)


def find_server_problems(servers: Mapping[str, ServerEntry], inherit: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """The name of a server, what is wrong with it, and what to do."""
    for name, server in servers.items():
        if not _NAME.fullmatch(name):
            yield name, "is no name for a server.", "Use 1 to 64 letters, digits, dashes and underscores."
        if fault := _find_contradiction(server):
            yield name, fault, "Give a server either `command` (with `args` and `env`) or `url` (with `headers`)."
        for variable in sorted(_find_placeholders(server) - set(inherit)):
            remedy = f"Add {variable} to `inherit`: only what stands there is passed on."
            yield name, f"needs the environment variable {variable}, which the blueprint does not inherit.", remedy


def to_mcp_servers(servers: Mapping[str, ServerEntry]) -> dict[str, McpServer]:
    return {
        name: McpServer(command=one.command, args=one.args, env=dict(one.env), url=one.url, headers=dict(one.headers))
        for name, one in servers.items()
    }


def fill_placeholders(blueprint: Blueprint, environ: Mapping[str, str]) -> Blueprint:
    """The blueprint for one run, its servers with the values they need; not to be kept or shown.

    Raises `ExecutorUnavailable` when a variable is not set here.
    """
    return msgspec.structs.replace(
        blueprint,
        mcp_servers={name: _fill_server(blueprint, server, environ) for name, server in blueprint.mcp_servers.items()},
    )


def add_agent_header(blueprint: Blueprint, run: str) -> Blueprint:
    """The blueprint for one run, whose agent says which run it is wherever it could start other agents."""
    return msgspec.structs.replace(
        blueprint, mcp_servers={name: _add_header(server, run) for name, server in blueprint.mcp_servers.items()}
    )


def _add_header(server: McpServer, run: str) -> McpServer:
    # A client does not mind what stands after the path, nor whether a header is written in capitals.
    path = (server.url or "").partition("?")[0].rstrip("/")
    if not path.endswith(_OWN_PATH):
        return server
    kept = {name: value for name, value in server.headers.items() if name.lower() != AGENT_HEADER.lower()}
    return msgspec.structs.replace(server, headers={**kept, AGENT_HEADER: run})


def _fill_server(blueprint: Blueprint, server: McpServer, environ: Mapping[str, str]) -> McpServer:
    wanted = _find_placeholders(server).intersection(blueprint.inherit)
    if missing := sorted(wanted - environ.keys()):
        raise ExecutorUnavailable(
            f"The blueprint {blueprint.name} needs the environment variable {missing[0]}, which is not set.",
            remedy="Set it where Fidelio runs, and start that again.",
        )

    def fill(text: str) -> str:
        # In one pass: what a value says is never read as a placeholder itself.
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
        return f"is of the type {server.type}, but is written like {kind}."
    stray = server.headers if kind == "stdio" else (server.args or server.env)
    return "mixes keys of the two kinds of servers." if stray else ""
