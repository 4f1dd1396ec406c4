"""The supported ACP agents and how a home directory is prepared for each: settings, instructions, the user's login.

A home belongs to a session and lasts as long as it does, because the agent keeps its conversations there. Settings come from
the blueprint alone; its option `config` adds to them in the agent's own format.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from fidelio.errors import ExecutorFailure
from fidelio.orchestrator.executors.common import link_login, merge_settings
from fidelio.orchestrator.executors.contract import Turn
from fidelio.orchestrator.record.model import Usage

Environment = Mapping[str, str]


class AcpAgent(msgspec.Struct, frozen=True):
    """Description of an ACP agent. `keys` are variables and `logins` files under the user's home that it can log in with.

    An agent without `keys` needs no login. `read_totals` returns the usage of a conversation, for agents that record it but do
    not report it over the protocol.
    """

    name: str
    title: str
    command: tuple[str, ...]
    package: str
    prepare: Callable[[Turn, Path], Environment]
    keys: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    how_to_log_in: str = ""
    read_totals: Callable[[Path, str], Usage | None] = lambda _home, _conversation: None

    def has_login(self, environment: Environment) -> bool:
        home = Path(environment.get("HOME", "/"))
        found = any(environment.get(key) for key in self.keys) or any((home / login).is_file() for login in self.logins)
        return found or not self.keys


def session_home(agent: AcpAgent, turn: Turn) -> Path:
    return (turn.keep or turn.spool.parent) / f"{agent.name}-home"


def prepare_home(agent: AcpAgent, turn: Turn) -> Environment:
    """Prepare the home of the session; return the variables that point the agent to it."""
    home = session_home(agent, turn)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        return agent.prepare(turn, home)
    except OSError as error:
        raise ExecutorFailure(f"The home for {agent.title} cannot be prepared: {error}.", reason="home") from error


def _prepare_gemini(turn: Turn, home: Path) -> Environment:
    directory, user = home / ".gemini", _user_directory(turn, "GEMINI_CLI_HOME") / ".gemini"
    for login in ("oauth_creds.json", "google_accounts.json"):
        link_login(user / login, directory / login)
    settings = {
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": _choose_gemini_auth(turn.environment)}},
        "tools": {"exclude": list(turn.blueprint.permissions.deny)},
        **({"model": {"name": turn.blueprint.model}} if turn.blueprint.model else {}),
    }
    _write_settings(directory, "settings.json", "GEMINI.md", settings, turn)
    if turn.conversation:
        _protect_chat_file(directory, turn.conversation)
    return {"GEMINI_CLI_HOME": str(home)}


def _protect_chat_file(directory: Path, conversation: str) -> None:
    """Rename the file of a conversation, which Gemini CLI would otherwise truncate.

    Gemini names the file after the minute and truncates it when another conversation begins in the same minute. It finds a
    conversation by the content of the file, so another name is safe, and it continues to write there.
    """
    for file in directory.glob(f"tmp/*/chats/session-2*-{conversation[:8]}.json*"):
        protected = file.with_name(file.name.replace("session-", "session-kept-", 1))
        if not protected.exists():
            file.rename(protected)


def _choose_gemini_auth(environment: Environment) -> str:
    if environment.get("GEMINI_API_KEY"):
        return "gemini-api-key"
    on_cloud = environment.get("GOOGLE_GENAI_USE_VERTEXAI") or environment.get("GOOGLE_API_KEY")
    return "vertex-ai" if on_cloud else "oauth-personal"


def _prepare_qwen(turn: Turn, home: Path) -> Environment:
    user_home = turn.environment.get("QWEN_HOME")
    link_login(
        (Path(user_home) if user_home else _user_directory(turn, "HOME") / ".qwen") / "oauth_creds.json",
        home / "oauth_creds.json",
    )
    auth = "openai" if turn.environment.get("OPENAI_API_KEY") else "qwen-oauth"
    settings = {
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": auth}},
        # By default a model approves tool calls and searches for tools; here the blueprint decides and all tools are listed.
        "tools": {"approvalMode": "default", "toolSearch": {"enabled": False}},
        # No user reads suggestions for a next prompt.
        "ui": {"enableFollowupSuggestions": False},
        "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
        "permissions": {"deny": list(turn.blueprint.permissions.deny)},
        **({"model": {"name": turn.blueprint.model}} if turn.blueprint.model else {}),
    }
    _write_settings(home, "settings.json", "QWEN.md", settings, turn)
    # Without this variable Qwen starts the turn before its MCP servers have listed their tools.
    return {"QWEN_HOME": str(home), "QWEN_CODE_LEGACY_MCP_BLOCKING": "1"}


_READ_ONLY_TOOLS = ("read", "glob", "grep", "list", "todoread", "todowrite", "skill", "lsp")


def _prepare_opencode(turn: Turn, home: Path) -> Environment:
    data = turn.environment.get("XDG_DATA_HOME")
    user_data = Path(data) if data else _user_directory(turn, "HOME") / ".local" / "share"
    link_login(user_data / "opencode" / "auth.json", home / "data" / "opencode" / "auth.json")
    denied = {entry.removeprefix("mcp__").replace("__", "_"): "deny" for entry in turn.blueprint.permissions.deny}
    settings = {
        "autoupdate": False,
        "share": "disabled",
        # The default of OpenCode is to ask for nothing, which would bypass the permissions of the blueprint.
        "permission": {"*": "ask", **dict.fromkeys(_READ_ONLY_TOOLS, "allow"), **denied},
        **({"model": turn.blueprint.model} if turn.blueprint.model else {}),
    }
    config = home / "config" / "opencode"
    _write_settings(config, "opencode.json", "AGENTS.md", settings, turn)
    _mark_packages_installed(config)
    directories = {f"XDG_{kind.upper()}_HOME": str(home / kind) for kind in ("config", "data", "state")}
    # PURE disables the user's plugins, which are not part of the blueprint.
    return {**directories, "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_PURE": "1"}


def _mark_packages_installed(config: Path) -> None:
    """Make OpenCode believe that its plugin package is installed; otherwise it downloads it into the settings directory."""
    (config / "node_modules").mkdir(exist_ok=True)
    lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
    (config / "package-lock.json").write_text(json.dumps(lock), "utf-8")


def _read_opencode_totals(home: Path, conversation: str) -> Usage | None:
    """Read the usage of a conversation from OpenCode's database; the protocol reports only that of the last answer."""
    try:
        with closing(sqlite3.connect(f"file:{home}/data/opencode/opencode.db?mode=ro", uri=True)) as database:
            row = database.execute(
                "SELECT tokens_input, tokens_output, cost FROM session WHERE id = ?", (conversation,)
            ).fetchone()
    except sqlite3.Error:
        return None
    return Usage(input_tokens=row[0], output_tokens=row[1], cost_usd=row[2]) if row else None


def _user_directory(turn: Turn, variable: str) -> Path:
    return Path(turn.environment.get(variable) or turn.environment.get("HOME", "/"))


def _write_settings(directory: Path, settings_name: str, memory_name: str, settings: Mapping[str, Any], turn: Turn) -> None:
    """Write the settings, and the system prompt as the agent's memory file, because the protocol has no system prompt."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / settings_name).write_text(
        json.dumps(merge_settings(settings, turn.blueprint.options.get("config", {}))), "utf-8"
    )
    (directory / memory_name).write_text(turn.blueprint.system_prompt, "utf-8")


AGENTS: Mapping[str, AcpAgent] = MappingProxyType(
    {
        agent.name: agent
        for agent in (
            AcpAgent(
                name="gemini",
                title="Gemini CLI",
                command=("gemini", "--acp", "--skip-trust"),
                package="@google/gemini-cli",
                prepare=_prepare_gemini,
                keys=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"),
                logins=(".gemini/oauth_creds.json",),
                how_to_log_in="Set GEMINI_API_KEY, or run `gemini` once and log in.",
            ),
            AcpAgent(
                name="opencode",
                title="OpenCode",
                command=("opencode", "acp"),
                package="opencode-ai",
                prepare=_prepare_opencode,
                read_totals=_read_opencode_totals,
            ),
            AcpAgent(
                name="qwen",
                title="Qwen Code",
                command=("qwen", "--acp"),
                package="@qwen-code/qwen-code",
                prepare=_prepare_qwen,
                keys=("OPENAI_API_KEY",),
                logins=(".qwen/oauth_creds.json",),
                how_to_log_in="Set OPENAI_API_KEY (and OPENAI_BASE_URL), or run `qwen` once and log in.",
            ),
        )
    }
)
