"""The executor `codex`: OpenAI's Codex CLI, as a server or as a command.

The mode `server` runs an app server for the turn, which can ask for approval; it is the default for the permission modes `ask`
and `edit`. The mode `exec` runs the command for scripts, which cannot ask. It is the default for `read` and `full`, where
nothing is asked: its interface is the one that Codex keeps stable, and a turn needs no host once it runs.

In both modes Codex has a home directory of the session. Options of a blueprint:

    mode     server or exec
    config   settings for Codex's config.toml, such as a provider of models; not those that a blueprint itself has keys for
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.codex import exec as codex_exec
from fidelio.orchestrator.executors.codex import server as codex_server
from fidelio.orchestrator.executors.codex.home import LOGIN, is_toml_value, user_home
from fidelio.orchestrator.executors.codex.messages import require_thread_id
from fidelio.orchestrator.executors.common import check_npm_program, refuse_sandbox
from fidelio.orchestrator.executors.contract import Availability, Reporter, Turn, TurnResult
from fidelio.processes.table import ProcessIdentity

_OPTIONS = frozenset({"mode", "config"})
_MODES = ("server", "exec")
# Settings for which a blueprint has keys that hold for every executor.
_RESERVED_SETTINGS = frozenset({"approval_policy", "sandbox_mode", "mcp_servers", "developer_instructions"})


class CodexExecutor:
    """OpenAI's Codex CLI."""

    name = "codex"

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """`environment` is where Codex and its login are looked up; None is the environment of this process."""
        self._environment = os.environ if environment is None else environment

    async def availability(self, added: Mapping[str, str] | None = None, /) -> Availability:
        environment = {**self._environment, **(added or {})}
        has_login, how = _has_login(environment), "Run `codex login`, or set OPENAI_API_KEY."
        return check_npm_program("codex", "Codex", "@openai/codex", environment, has_login=has_login, how_to_log_in=how)

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:
        options = blueprint.options
        unknown = sorted(options.keys() - _OPTIONS)
        found = [f"Codex has no option {name!r}. It has: {', '.join(sorted(_OPTIONS))}." for name in unknown]
        if options.get("mode", "exec") not in _MODES:
            found.append(f"The option `mode` of Codex must be one of: {', '.join(_MODES)}.")
        elif options.get("mode") == "exec" and blueprint.permissions.mode in ("ask", "edit"):
            found.append("`mode: exec` cannot ask a person. Remove it, or set the permission mode to `read` or `full`.")
        found += _config_problems(options.get("config", {}))
        found += [
            f"Codex cannot name an MCP server {name!r}: only letters, digits, - and _."
            for name in blueprint.mcp_servers
            if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii()
        ]
        return (*found, *refuse_sandbox(blueprint, "Codex cannot switch its own shell and patch tools off."))

    async def carry_out(self, turn: Turn, reporter: Reporter) -> TurnResult:
        require_thread_id(turn.conversation)
        if _uses_server(turn.blueprint):
            return await codex_server.run(turn, reporter)
        return await codex_exec.run(turn, reporter)

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: Reporter) -> TurnResult | None:
        if _uses_server(turn.blueprint):
            return await codex_server.follow_adopted(turn, process, reporter)
        return await codex_exec.follow_adopted(turn, process, reporter)


def _has_login(environment: Mapping[str, str]) -> bool:
    keys = ("OPENAI_API_KEY", "CODEX_API_KEY")
    return any(environment.get(key) for key in keys) or (user_home(environment) / LOGIN).is_file()


def _uses_server(blueprint: Blueprint) -> bool:
    default = "server" if blueprint.permissions.mode in ("ask", "edit") else "exec"
    return bool(blueprint.options.get("mode", default) == "server")


def _config_problems(config: Any) -> list[str]:
    if not isinstance(config, Mapping) or not is_toml_value(config):
        return ["The option `config` of Codex must be a table of settings: strings, numbers, booleans, lists and tables."]
    return [
        f"Set {name!r} of Codex in the blueprint itself, not in `config`."
        for name in sorted(config.keys() & _RESERVED_SETTINGS)
    ]
