"""The agents that speak the Agent Client Protocol, and what each needs before it can: settings, a home, the user's login.

A home belongs to one session and lasts as long as it does, because there the agent keeps its conversations. Settings come from
the blueprint alone; the option `config` adds to them in the agent's own words.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fidelio.errors import ExecutorFailure
from fidelio.orchestrator.executors.common import link, merged
from fidelio.orchestrator.executors.contract import Turn
from fidelio.orchestrator.record.model import Usage

Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AcpAgent:
    """One of them. `keys` and `logins` are what it can log in with, `logins` under the user's home; none: it needs nothing."""

    name: str
    title: str
    command: tuple[str, ...]
    package: str
    prepare: Callable[[Turn, Path], Environment]
    keys: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    how_to_log_in: str = ""
    # What a conversation has cost in all, from agents that keep count but do not say it over the protocol.
    totals: Callable[[Path, str], Usage | None] = lambda _home, _conversation: None

    def has_login(self, environment: Environment) -> bool:
        home = Path(environment.get("HOME", "/"))
        found = any(environment.get(key) for key in self.keys) or any((home / login).is_file() for login in self.logins)
        return found or not self.keys


def home_of(agent: AcpAgent, turn: Turn) -> Path:
    return (turn.keep or turn.spool.parent) / f"{agent.name}-home"


def prepare(agent: AcpAgent, turn: Turn) -> Environment:
    """Makes the home of the session ready; what leads the agent there."""
    home = home_of(agent, turn)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        return agent.prepare(turn, home)
    except OSError as error:
        raise ExecutorFailure(f"The home for {agent.title} cannot be prepared: {error}.", reason="home") from error


def _gemini(turn: Turn, home: Path) -> Environment:
    place, user = home / ".gemini", _users(turn, "GEMINI_CLI_HOME") / ".gemini"
    for login in ("oauth_creds.json", "google_accounts.json"):
        link(user / login, place / login)
    ours = {
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": _gemini_auth(turn.environment)}},
        "tools": {"exclude": list(turn.blueprint.permissions.deny)},
        **({"model": {"name": turn.blueprint.model}} if turn.blueprint.model else {}),
    }
    _write(place, "settings.json", "GEMINI.md", ours, turn)
    if turn.conversation:
        _put_aside(place, turn.conversation)
    return {"GEMINI_CLI_HOME": str(home)}


def _put_aside(place: Path, conversation: str) -> None:
    """Saves a conversation from Gemini, which names the file of one after the minute and empties it when it opens another.

    It finds a conversation by what is in the file, so any other name will do, and it goes on writing there.
    """
    for file in place.glob(f"tmp/*/chats/session-2*-{conversation[:8]}.json*"):
        aside = file.with_name(file.name.replace("session-", "session-kept-", 1))
        if not aside.exists():
            file.rename(aside)


def _gemini_auth(environment: Environment) -> str:
    if environment.get("GEMINI_API_KEY"):
        return "gemini-api-key"
    on_cloud = environment.get("GOOGLE_GENAI_USE_VERTEXAI") or environment.get("GOOGLE_API_KEY")
    return "vertex-ai" if on_cloud else "oauth-personal"


def _qwen(turn: Turn, home: Path) -> Environment:
    own = turn.environment.get("QWEN_HOME")
    link((Path(own) if own else _users(turn, "HOME") / ".qwen") / "oauth_creds.json", home / "oauth_creds.json")
    auth = "openai" if turn.environment.get("OPENAI_API_KEY") else "qwen-oauth"
    ours = {
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": auth}},
        # By default a model decides what is harmless and looks for its tools; here the blueprint does and gives them.
        "tools": {"approvalMode": "default", "toolSearch": {"enabled": False}},
        # Nobody is there to be told what to ask next.
        "ui": {"enableFollowupSuggestions": False},
        "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
        "permissions": {"deny": list(turn.blueprint.permissions.deny)},
        **({"model": {"name": turn.blueprint.model}} if turn.blueprint.model else {}),
    }
    _write(home, "settings.json", "QWEN.md", ours, turn)
    # Otherwise it begins before its servers have said what tools they have.
    return {"QWEN_HOME": str(home), "QWEN_CODE_LEGACY_MCP_BLOCKING": "1"}


_READING = ("read", "glob", "grep", "list", "todoread", "todowrite", "skill", "lsp")


def _opencode(turn: Turn, home: Path) -> Environment:
    data = turn.environment.get("XDG_DATA_HOME")
    users = Path(data) if data else _users(turn, "HOME") / ".local" / "share"
    link(users / "opencode" / "auth.json", home / "data" / "opencode" / "auth.json")
    denied = {entry.removeprefix("mcp__").replace("__", "_"): "deny" for entry in turn.blueprint.permissions.deny}
    ours = {
        "autoupdate": False,
        "share": "disabled",
        # Without this nothing is asked about, and the blueprint would have no say.
        "permission": {"*": "ask", **dict.fromkeys(_READING, "allow"), **denied},
        **({"model": turn.blueprint.model} if turn.blueprint.model else {}),
    }
    config = home / "config" / "opencode"
    _write(config, "opencode.json", "AGENTS.md", ours, turn)
    _has_all_packages(config)
    places = {f"XDG_{kind.upper()}_HOME": str(home / kind) for kind in ("config", "data", "state")}
    # Pure: without plugins, which nobody has given to this agent.
    return {**places, "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_PURE": "1"}


def _has_all_packages(config: Path) -> None:
    """OpenCode fetches a package for plugins into a directory of settings that does not look as if it had it."""
    (config / "node_modules").mkdir(exist_ok=True)
    lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
    (config / "package-lock.json").write_text(json.dumps(lock), "utf-8")


def _opencode_totals(home: Path, conversation: str) -> Usage | None:
    """OpenCode says over the protocol only what its last answer has cost. Its records say it all."""
    try:
        with closing(sqlite3.connect(f"file:{home}/data/opencode/opencode.db?mode=ro", uri=True)) as records:
            row = records.execute(
                "SELECT tokens_input, tokens_output, cost FROM session WHERE id = ?", (conversation,)
            ).fetchone()
    except sqlite3.Error:
        return None
    return Usage(input_tokens=row[0], output_tokens=row[1], cost_usd=row[2]) if row else None


def _users(turn: Turn, variable: str) -> Path:
    return Path(turn.environment.get(variable) or turn.environment.get("HOME", "/"))


def _write(place: Path, settings: str, memory: str, ours: Mapping[str, Any], turn: Turn) -> None:
    """Settings, and the system prompt where the agent looks for what it has to bear in mind: the protocol has none."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    (place / settings).write_text(json.dumps(merged(ours, turn.blueprint.options.get("config", {}))), "utf-8")
    (place / memory).write_text(turn.blueprint.system_prompt, "utf-8")


AGENTS: Mapping[str, AcpAgent] = MappingProxyType(
    {
        agent.name: agent
        for agent in (
            AcpAgent(
                name="gemini",
                title="Gemini CLI",
                command=("gemini", "--acp", "--skip-trust"),
                package="@google/gemini-cli",
                prepare=_gemini,
                keys=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"),
                logins=(".gemini/oauth_creds.json",),
                how_to_log_in="Set GEMINI_API_KEY, or run `gemini` once and log in.",
            ),
            AcpAgent(
                name="opencode",
                title="OpenCode",
                command=("opencode", "acp"),
                package="opencode-ai",
                prepare=_opencode,
                totals=_opencode_totals,
            ),
            AcpAgent(
                name="qwen",
                title="Qwen Code",
                command=("qwen", "--acp"),
                package="@qwen-code/qwen-code",
                prepare=_qwen,
                keys=("OPENAI_API_KEY",),
                logins=(".qwen/oauth_creds.json",),
                how_to_log_in="Set OPENAI_API_KEY (and OPENAI_BASE_URL), or run `qwen` once and log in.",
            ),
        )
    }
)
