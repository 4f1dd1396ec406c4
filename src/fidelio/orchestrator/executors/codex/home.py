"""Home directory of Codex for a session: config.toml, the user's login, and the usage in earlier transcripts.

config.toml is written with a small TOML encoder, because the standard library only reads TOML: a line for each key, with inline
tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fidelio.errors import ExecutorFailure
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint, Permissions
from fidelio.orchestrator.executors.common import link_login, matches_any, mcp_tool_name, merge_settings
from fidelio.orchestrator.executors.contract import Turn
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.table import AGENT_MARKER


def encode_toml(settings: Mapping[str, Any]) -> str:
    return "".join(f"{_encode_text(key)} = {_encode_value(value)}\n" for key, value in settings.items())


def _encode_value(value: Any) -> str:
    if isinstance(value, str):
        return _encode_text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_encode_text(key)} = {_encode_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_encode_value(inner) for inner in value) + "]"
    return json.dumps(value, allow_nan=False)


def _encode_text(text: str) -> str:
    # JSON and TOML quote strings alike, except for DEL and for surrogate pairs, which `ensure_ascii=False` avoids.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def is_toml_value(value: Any) -> bool:
    """Whether `encode_toml` can encode a value: strings, numbers, booleans, lists and tables."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_toml_value(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(is_toml_value(inner) for inner in value)
    return isinstance(value, str | int | float)


DIRECTORY = "codex-home"
LOGIN = "auth.json"
# The sandbox enforces a permission mode even where Codex cannot ask: without approval it changes nothing outside.
_SANDBOXES: Mapping[str, str] = MappingProxyType(
    {"ask": "read-only", "read": "read-only", "edit": "workspace-write", "full": "danger-full-access"}
)
# Features by which Codex downloads extensions that are not in the blueprint.
_DOWNLOADING_FEATURES = ("apps", "plugins", "remote_plugin", "plugin_discovery_prefetch")
# Long, because an MCP server may have to be downloaded first or may start on a busy machine.
_SERVER_START_SECONDS = 60


def session_home(turn: Turn) -> Path:
    """The home for all runs of the session."""
    return (turn.keep or turn.spool.parent) / DIRECTORY


def prepare_home(turn: Turn, *, asks: bool) -> Path:
    """Prepare the home for a turn. `asks`: Codex may ask a person."""
    home = session_home(turn)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        has_login = link_login(user_home(turn.environment) / LOGIN, home / LOGIN)
        (home / "config.toml").write_text(encode_toml(build_settings(turn.blueprint, asks=asks, has_login=has_login)), "utf-8")
    except OSError as error:
        raise ExecutorFailure(f"The home for Codex cannot be prepared: {error}.", reason="home") from error
    return home


def user_home(environment: Mapping[str, str]) -> Path:
    own = environment.get("CODEX_HOME")
    return Path(own) if own else Path(environment.get("HOME", "/")) / ".codex"


def find_api_key(home: Path, environment: Mapping[str, str]) -> str | None:
    """The API key in the environment; None if there is a login file."""
    if (home / LOGIN).exists():
        return None
    return environment.get("CODEX_API_KEY") or environment.get("OPENAI_API_KEY")


def build_settings(blueprint: Blueprint, *, asks: bool, has_login: bool = True) -> dict[str, Any]:
    permissions = blueprint.permissions
    defaults = {
        **({"model": blueprint.model} if blueprint.model else {}),
        **({"developer_instructions": blueprint.system_prompt} if blueprint.system_prompt else {}),
        "approval_policy": "on-request" if asks else "never",
        "sandbox_mode": _SANDBOXES[permissions.mode],
        "check_for_update_on_startup": False,
        # A key from the environment must not be written into a file.
        **({} if has_login else {"cli_auth_credentials_store": "ephemeral"}),
        "analytics": {"enabled": False},
        "features": {
            "default_mode_request_user_input": asks,
            "shell_tool": not matches_any(permissions.deny, ["shell"]),
            **dict.fromkeys(_DOWNLOADING_FEATURES, False),
        },
        **({"web_search": "disabled"} if matches_any(permissions.deny, ["web_search"]) else {}),
        "mcp_servers": {name: _describe_server(name, server, blueprint) for name, server in blueprint.mcp_servers.items()},
    }
    return merge_settings(defaults, blueprint.options.get("config", {}))


def read_previous_usage(home: Path, thread: str) -> Usage:
    """Read the usage of the conversation before this turn; the counts of Codex include it."""
    usage = Usage()
    for counts in _read_token_counts(home, thread):
        usage = Usage(input_tokens=counts["input_tokens"], output_tokens=counts["output_tokens"])
    return usage


def _read_token_counts(home: Path, thread: str) -> Iterator[dict[str, int]]:
    for transcript in home.glob(f"sessions/*/*/*/rollout-*-{thread}.jsonl"):
        with transcript.open(encoding="utf-8") as lines:
            # The last line may be incomplete if Codex was killed.
            for line in (line for line in lines if '"token_count"' in line):
                with suppress(ValueError, KeyError, TypeError):
                    yield json.loads(line)["payload"]["info"]["total_token_usage"]


def _describe_server(name: str, server: McpServer, blueprint: Blueprint) -> dict[str, Any]:
    connection = (
        {"url": server.url, "http_headers": dict(server.headers)}
        if server.url
        else {"command": server.command, "args": list(server.args), "env": dict(server.env), "env_vars": [AGENT_MARKER]}
    )
    return {
        **connection,
        # Without its tools the agent must fail, instead of working without them.
        "required": True,
        "enabled": not matches_any(blueprint.permissions.deny, [mcp_tool_name(name)]),
        "startup_timeout_sec": _SERVER_START_SECONDS,
        # A tool may wait for a person, so only the limit of the run bounds it.
        "tool_timeout_sec": blueprint.limits.wall_seconds,
        **_approval_settings(name, blueprint.permissions),
    }


def _approval_settings(server: str, permissions: Permissions) -> dict[str, Any]:
    allows_all = permissions.mode == "full" or matches_any(permissions.allow, [mcp_tool_name(server)])
    return {
        # `writes`: Codex asks except for tools that are annotated as read-only.
        "default_tools_approval_mode": "approve" if allows_all else "writes",
        "tools": {tool: {"approval_mode": "approve"} for tool in _tools_of(server, permissions.allow)},
        "disabled_tools": _tools_of(server, permissions.deny),
    }


def _tools_of(server: str, entries: tuple[str, ...]) -> list[str]:
    prefix = mcp_tool_name(server) + "__"
    return [entry.removeprefix(prefix) for entry in entries if entry.startswith(prefix)]
