"""The environment of an agent's process: an allow-list, the variables of its blueprint, and those of Fidelio.

Everything else in the environment of this process (tokens of other tools, keys of other services) is filtered out. Variables
are listed by their whole name: a prefix would pass on whatever another program invents. The credentials of a cloud provider are
passed on only where a variable selects that provider, and a proxy with its password only to agents that call a model over the
network. A blueprint can add variables and inherit others by name.

A Fidelio process that an agent starts has to find this home: its ledger and its limits. The agent sees them too, so that the
command line works for it; but the password of a database is passed only to MCP servers that are Fidelio itself.
"""

from __future__ import annotations

import re
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

_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"})
_NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "TERM",
        "TMPDIR",
        "TZ",
        "NO_PROXY",
        "no_proxy",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NODE_EXTRA_CA_CERTS",
        "LANG",
        "LANGUAGE",
        "LC_ALL",
        "LC_COLLATE",
        "LC_CTYPE",
        "LC_MESSAGES",
        "LC_MONETARY",
        "LC_NUMERIC",
        "LC_TIME",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_DIRS",
        "XDG_CONFIG_HOME",
        "XDG_DATA_DIRS",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
    }
)
_LEDGER = "FIDELIO_LEDGER"
_AGENT_SETTINGS = (
    "FIDELIO_AGENTS_EXECUTOR",
    "FIDELIO_AGENTS_PER_PROJECT",
    "FIDELIO_AGENTS_TOTAL",
    "FIDELIO_AGENTS_DEPTH",
)
_ANTHROPIC = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")
_OPENAI = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORGANIZATION", "OPENAI_PROJECT")
_GEMINI = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL")
# The variables with which each executor is configured, such as its key and address. The executors here call a model over the
# network, so they need the password of a proxy.
_EXECUTOR_NAMES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "claude": frozenset(
            {
                *_ANTHROPIC,
                "ANTHROPIC_CUSTOM_HEADERS",
                "ANTHROPIC_MODEL",
                "ANTHROPIC_SMALL_FAST_MODEL",
                "ANTHROPIC_DEFAULT_HAIKU_MODEL",
                "ANTHROPIC_DEFAULT_OPUS_MODEL",
                "ANTHROPIC_DEFAULT_SONNET_MODEL",
                "CLAUDE_CONFIG_DIR",
                "CLAUDE_CODE_OAUTH_TOKEN",
                "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
                "CLAUDE_CODE_SUBAGENT_MODEL",
                "CLAUDE_CODE_CLIENT_CERT",
                "CLAUDE_CODE_CLIENT_KEY",
                "CLAUDE_CODE_CLIENT_KEY_PASSPHRASE",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
                "CLAUDE_CODE_USE_BEDROCK",
                "CLAUDE_CODE_USE_VERTEX",
                "CLAUDE_CODE_USE_FOUNDRY",
                "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
                "CLAUDE_CODE_SKIP_VERTEX_AUTH",
            }
        ),
        "codex": frozenset({*_OPENAI, "CODEX_API_KEY", "CODEX_HOME"}),
        "gemini": frozenset(
            {
                *_GEMINI,
                "GEMINI_CLI_HOME",
                "GEMINI_MODEL",
                "GOOGLE_CLOUD_PROJECT",
                "GOOGLE_GENAI_USE_VERTEXAI",
                "GOOGLE_GENAI_USE_GCA",
            }
        ),
        "opencode": frozenset(
            {
                *_ANTHROPIC,
                *_OPENAI,
                *_GEMINI,
                "GOOGLE_GENERATIVE_AI_API_KEY",
                "OPENCODE_API_KEY",
                "OPENCODE_CONFIG",
                "OPENCODE_CONFIG_CONTENT",
                "OPENCODE_CONFIG_DIR",
                "OPENCODE_MODEL",
            }
        ),
        "qwen": frozenset({*_OPENAI, "OPENAI_MODEL", "DASHSCOPE_API_KEY", "QWEN_HOME", "QWEN_MODEL"}),
    }
)
# The variables of a cloud provider, by executor and by the variable that selects the provider.
_PROVIDER_NAMES: Mapping[tuple[str, str], frozenset[str]] = MappingProxyType(
    {
        ("claude", "CLAUDE_CODE_USE_BEDROCK"): frozenset(
            {
                "AWS_ACCESS_KEY_ID",
                "AWS_SECRET_ACCESS_KEY",
                "AWS_SESSION_TOKEN",
                "AWS_REGION",
                "AWS_DEFAULT_REGION",
                "AWS_PROFILE",
                "AWS_BEARER_TOKEN_BEDROCK",
                "AWS_CONFIG_FILE",
                "AWS_SHARED_CREDENTIALS_FILE",
                "AWS_ROLE_ARN",
                "AWS_ROLE_SESSION_NAME",
                "AWS_WEB_IDENTITY_TOKEN_FILE",
                "ANTHROPIC_BEDROCK_BASE_URL",
                "ANTHROPIC_SMALL_FAST_MODEL_AWS_REGION",
            }
        ),
        ("claude", "CLAUDE_CODE_USE_VERTEX"): frozenset(
            {
                "CLOUD_ML_REGION",
                "ANTHROPIC_VERTEX_PROJECT_ID",
                "ANTHROPIC_VERTEX_BASE_URL",
                "GOOGLE_APPLICATION_CREDENTIALS",
                "GOOGLE_CLOUD_PROJECT",
                "GCLOUD_PROJECT",
                "CLOUDSDK_CONFIG",
            }
        ),
        ("claude", "CLAUDE_CODE_USE_FOUNDRY"): frozenset(
            {"ANTHROPIC_FOUNDRY_API_KEY", "ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_FOUNDRY_RESOURCE"}
        ),
        ("gemini", "GOOGLE_GENAI_USE_VERTEXAI"): frozenset(
            {"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_LOCATION", "GOOGLE_VERTEX_BASE_URL", "CLOUDSDK_CONFIG"}
        ),
        ("gemini", "GOOGLE_GENAI_USE_GCA"): frozenset({"GOOGLE_CLOUD_ACCESS_TOKEN"}),
    }
)
_OFF = frozenset({"", "0", "false", "no", "off"})
_PROXY_LOGIN = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?.*@")


def filter_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """The variables of this environment that any program may see."""
    plain = {name: value for name, value in ours.items() if name in _NAMES}
    return {**plain, **{name: _PROXY_LOGIN.sub(r"\1", ours[name]) for name in _PROXIES if name in ours}}


def _list_names(executor: str, environ: Mapping[str, str]) -> frozenset[str]:
    """The names of the variables for an executor and for the providers that the environment selects."""
    providers = [
        names
        for (name, switch), names in _PROVIDER_NAMES.items()
        if name == executor and environ.get(switch, "").lower() not in _OFF
    ]
    own = _EXECUTOR_NAMES.get(executor)
    return frozenset() if own is None else own.union(_PROXIES, *providers)


def build_agent_environment(
    blueprint: Blueprint, executor: str, run: str, ours: Mapping[str, str], home: Home
) -> dict[str, str]:
    """The complete environment of an agent's process, including the marker with its run."""
    names = _list_names(executor, {**ours, **blueprint.environment}).union(blueprint.inherit)
    inherited = {**filter_environment(ours), **{name: value for name, value in ours.items() if name in names}}
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
