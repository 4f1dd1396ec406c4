"""Settings written as TOML, which the standard library only reads. One line for each key, tables within the line."""

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
    # JSON and TOML quote alike, except for one control character and for pairs of surrogates, which JSON need not use.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def is_toml_value(value: Any) -> bool:
    """Whether it can be written: texts, numbers, truths, lists and tables of such."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_toml_value(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(is_toml_value(inner) for inner in value)
    return isinstance(value, str | int | float)


DIRECTORY = "codex-home"
LOGIN = "auth.json"
# The sandbox does what a mode promises even where nobody is asked: without leave, nothing outside it is changed.
_SANDBOXES: Mapping[str, str] = MappingProxyType(
    {"ask": "read-only", "read": "read-only", "edit": "workspace-write", "full": "danger-full-access"}
)
# What Codex would fetch from elsewhere for an agent that nobody has given it to.
_DOWNLOADING_FEATURES = ("apps", "plugins", "remote_plugin", "plugin_discovery_prefetch")
# A server may be a program that has to be fetched first, or start on a busy machine.
_SERVER_START_SECONDS = 60


def session_home(turn: Turn) -> Path:
    """One for all runs of the session."""
    return (turn.keep or turn.spool.parent) / DIRECTORY


def prepare_home(turn: Turn, *, asks: bool) -> Path:
    """The home, ready for a turn. `asks`: there is a way to ask a person."""
    home = session_home(turn)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        has_login = _link_login(home, turn.environment)
        (home / "config.toml").write_text(encode_toml(build_settings(turn.blueprint, asks=asks, has_login=has_login)), "utf-8")
    except OSError as error:
        raise ExecutorFailure(f"The home for Codex cannot be prepared: {error}.", reason="home") from error
    return home


def user_home(environment: Mapping[str, str]) -> Path:
    own = environment.get("CODEX_HOME")
    return Path(own) if own else Path(environment.get("HOME", "/")) / ".codex"


def find_api_key(home: Path, environment: Mapping[str, str]) -> str | None:
    """The key to log in with, where there is no login."""
    if (home / LOGIN).exists():
        return None
    return environment.get("CODEX_API_KEY") or environment.get("OPENAI_API_KEY")


def build_settings(blueprint: Blueprint, *, asks: bool, has_login: bool = True) -> dict[str, Any]:
    permissions = blueprint.permissions
    ours = {
        **({"model": blueprint.model} if blueprint.model else {}),
        **({"developer_instructions": blueprint.system_prompt} if blueprint.system_prompt else {}),
        "approval_policy": "on-request" if asks else "never",
        "sandbox_mode": _SANDBOXES[permissions.mode],
        "check_for_update_on_startup": False,
        # A key that came in the environment stays out of the files.
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
    return merge_settings(ours, blueprint.options.get("config", {}))


def read_previous_usage(home: Path, thread: str) -> Usage:
    """What the conversation had cost when it was last left: Codex counts on from there."""
    usage = Usage()
    for counted in _read_token_counts(home, thread):
        usage = Usage(input_tokens=counted["input_tokens"], output_tokens=counted["output_tokens"])
    return usage


def _read_token_counts(home: Path, thread: str) -> Iterator[dict[str, int]]:
    for account in home.glob(f"sessions/*/*/*/rollout-*-{thread}.jsonl"):
        with account.open(encoding="utf-8") as lines:
            # A line that was cut off when Codex was killed counts for nothing.
            for line in (line for line in lines if '"token_count"' in line):
                with suppress(ValueError, KeyError, TypeError):
                    yield json.loads(line)["payload"]["info"]["total_token_usage"]


def _link_login(home: Path, environment: Mapping[str, str]) -> bool:
    return link_login(user_home(environment) / LOGIN, home / LOGIN)


def _describe_server(name: str, server: McpServer, blueprint: Blueprint) -> dict[str, Any]:
    reached = (
        {"url": server.url, "http_headers": dict(server.headers)}
        if server.url
        else {"command": server.command, "args": list(server.args), "env": dict(server.env), "env_vars": [AGENT_MARKER]}
    )
    return {
        **reached,
        # An agent without the tools it was given would only seem to work.
        "required": True,
        "enabled": not matches_any(blueprint.permissions.deny, [mcp_tool_name(name)]),
        "startup_timeout_sec": _SERVER_START_SECONDS,
        # Whoever waits for a person waits long. The run has its own end.
        "tool_timeout_sec": blueprint.limits.wall_seconds,
        **_approval_settings(name, blueprint.permissions),
    }


def _approval_settings(server: str, permissions: Permissions) -> dict[str, Any]:
    everything = permissions.mode == "full" or matches_any(permissions.allow, [mcp_tool_name(server)])
    return {
        # `writes`: a tool that only reads, as it says itself, is used without asking.
        "default_tools_approval_mode": "approve" if everything else "writes",
        "tools": {tool: {"approval_mode": "approve"} for tool in _tools_of(server, permissions.allow)},
        "disabled_tools": _tools_of(server, permissions.deny),
    }


def _tools_of(server: str, entries: tuple[str, ...]) -> list[str]:
    prefix = mcp_tool_name(server) + "__"
    return [entry.removeprefix(prefix) for entry in entries if entry.startswith(prefix)]
