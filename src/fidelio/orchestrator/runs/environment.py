"""The environment of an agent's process: an allow-list, the variables of its blueprint, and those of Fidelio.

Everything else in the environment of this process (tokens of other tools, keys of other services) is filtered out. A blueprint
can add variables and inherit others by name.

A Fidelio process that an agent starts has to find this home: its ledger and its limits. The agent sees them too, so that the
command line works for it; but the password of a database is passed only to MCP servers that are Fidelio itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import PurePath
from types import MappingProxyType
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from fidelio.home import Home
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.processes.table import AGENT_MARKER
from fidelio.settings import POSTGRES, find_ledger_address

_NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "TERM",
        "TMPDIR",
        "TZ",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "all_proxy",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NODE_EXTRA_CA_CERTS",
    }
)
_PREFIXES = ("LC_", "XDG_")
_LEDGER = "FIDELIO_LEDGER"
_AGENT_SETTINGS = (
    "FIDELIO_AGENTS_EXECUTOR",
    "FIDELIO_AGENTS_PER_PROJECT",
    "FIDELIO_AGENTS_TOTAL",
    "FIDELIO_AGENTS_DEPTH",
)
# The prefixes of variables with which each executor is configured, such as its key and address.
_EXECUTOR_PREFIXES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "claude": ("ANTHROPIC_", "CLAUDE_CODE_", "CLAUDE_CONFIG_DIR", "AWS_", "CLOUD_ML_REGION"),
        "codex": ("OPENAI_", "CODEX_"),
        "gemini": ("GEMINI_", "GOOGLE_"),
        "opencode": ("OPENCODE_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_"),
        "qwen": ("QWEN_", "OPENAI_", "DASHSCOPE_"),
    }
)


def filter_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """The variables of this environment that any program may see."""
    return {name: value for name, value in ours.items() if name in _NAMES or name.startswith(_PREFIXES)}


def build_agent_environment(
    blueprint: Blueprint, executor: str, run: str, ours: Mapping[str, str], home: Home
) -> dict[str, str]:
    """The complete environment of an agent's process, including the marker with its run."""
    prefixes = (*_PREFIXES, *_EXECUTOR_PREFIXES.get(executor, ()))
    names = _NAMES.union(blueprint.inherit)
    inherited = {name: value for name, value in ours.items() if name in names or name.startswith(prefixes)}
    fidelio = {name: _strip_password(value) for name, value in build_fidelio_environment(ours, home).items()}
    return {**inherited, **blueprint.environment, **fidelio, AGENT_MARKER: run}


def build_fidelio_environment(ours: Mapping[str, str], home: Home) -> dict[str, str]:
    """The variables with which another Fidelio process uses this home. The address of the ledger may hold a password."""
    record = {_LEDGER: find_ledger_address(ours, home)} if ours.get(_LEDGER) else {}
    return {**record, **{name: ours[name] for name in _AGENT_SETTINGS if name in ours}, "FIDELIO_HOME": str(home.path)}


def add_fidelio_environment(blueprint: Blueprint, ours: Mapping[str, str]) -> Blueprint:
    """Add these variables to every server of a blueprint that is Fidelio itself; its own variables have precedence."""
    servers = {name: _add_environment(server, ours) for name, server in blueprint.mcp_servers.items()}
    return msgspec.structs.replace(blueprint, mcp_servers=servers)


def _add_environment(server: McpServer, ours: Mapping[str, str]) -> McpServer:
    command = (PurePath(server.command or "").name, *server.args)
    # The command is `fidelio mcp`, `python -m fidelio mcp`, or has another program in front of it.
    if ("fidelio", "mcp") not in pairwise(command):
        return server
    return msgspec.structs.replace(server, env={**ours, **server.env})


def _strip_password(value: str) -> str:
    """The address of a database without its password, which a client can still read from `~/.pgpass`."""
    if not value.startswith(POSTGRES):
        return value
    address = urlsplit(value)
    credentials, separator, host = address.netloc.rpartition("@")
    options = [pair for pair in parse_qsl(address.query, keep_blank_values=True) if "password" not in pair[0]]
    query = f"?{urlencode(options)}" if options else ""
    return f"{address.scheme}://{credentials.partition(':')[0]}{separator}{host}{address.path}{query}"
