"""The environment of an agent's process: an allow-list of ours, its blueprint's, and what a Fidelio below it needs.

Everything else that lies in the environment of whoever runs us (tokens of other tools, keys of other services) stays out. What
an agent needs on top is written in its blueprint.

A Fidelio that an agent starts has to find this home: its ledger and its limits. The agent sees them too, so that the
command line works for it; but not the password of a database: that is given only to those of its servers that are a Fidelio.
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
# How each kind of agent is told its own key and address.
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
    """The part of our environment that any program may see."""
    return {name: value for name, value in ours.items() if name in _NAMES or name.startswith(_PREFIXES)}


def build_agent_environment(
    blueprint: Blueprint, executor: str, run: str, ours: Mapping[str, str], home: Home
) -> dict[str, str]:
    """The whole environment of an agent's process, with the mark that it is one."""
    beginnings = (*_PREFIXES, *_EXECUTOR_PREFIXES.get(executor, ()))
    names = _NAMES.union(blueprint.inherit)
    passed = {name: value for name, value in ours.items() if name in names or name.startswith(beginnings)}
    seen = {name: _strip_password(value) for name, value in build_fidelio_environment(ours, home).items()}
    return {**passed, **blueprint.environment, **seen, AGENT_MARKER: run}


def build_fidelio_environment(ours: Mapping[str, str], home: Home) -> dict[str, str]:
    """What another Fidelio has to be told to use this home. The address of the ledger may hold a password."""
    record = {_LEDGER: find_ledger_address(ours, home)} if ours.get(_LEDGER) else {}
    return {**record, **{name: ours[name] for name in _AGENT_SETTINGS if name in ours}, "FIDELIO_HOME": str(home.path)}


def add_fidelio_environment(blueprint: Blueprint, ours: Mapping[str, str]) -> Blueprint:
    """The blueprint for one run, whose servers that are a Fidelio use this home, unless they say otherwise themselves."""
    servers = {name: _add_environment(server, ours) for name, server in blueprint.mcp_servers.items()}
    return msgspec.structs.replace(blueprint, mcp_servers=servers)


def _add_environment(server: McpServer, ours: Mapping[str, str]) -> McpServer:
    words = (PurePath(server.command or "").name, *server.args)
    # Written as `fidelio mcp`, `python -m fidelio mcp` or behind some other program that starts it.
    if ("fidelio", "mcp") not in pairwise(words):
        return server
    return msgspec.structs.replace(server, env={**ours, **server.env})


def _strip_password(value: str) -> str:
    """An address with which those get in who have the password elsewhere, such as in `~/.pgpass`; the others are told no."""
    if not value.startswith(POSTGRES):
        return value
    address = urlsplit(value)
    person, at, place = address.netloc.rpartition("@")
    options = [(name, said) for name, said in parse_qsl(address.query, keep_blank_values=True) if "password" not in name]
    query = f"?{urlencode(options)}" if options else ""
    return f"{address.scheme}://{person.partition(':')[0]}{at}{place}{address.path}{query}"
