"""How Claude Code is started: which program, with which options, and what it reads from files.

Whatever a person or a blueprint wrote travels in a file or over its input. A text on the command line is visible to everybody
on the machine, and one that begins with a dash would be an option.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from fidelio.errors import ExecutorFailure
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.claude.stream import encode_first_input, follow_turn
from fidelio.orchestrator.executors.contract import Availability, Reporter, Turn, TurnResult, process_options
from fidelio.processes.spooled import adopt, missing_support, spawn
from fidelio.processes.table import ProcessIdentity

PROGRAM = "claude"
HOW_TO_INSTALL = "Install it with `pip install claude-agent-sdk`, or put `claude` on the PATH."
SETTING_SOURCES = ("user", "project", "local")
# What a single argument of a program may hold is limited by the system.
LONGEST_SCHEMA = 100_000

_OPTIONS = (
    *("-p", "--input-format=stream-json", "--output-format=stream-json", "--verbose"),
    *("--permission-prompt-tool=stdio", "--strict-mcp-config"),
)
# A program must not replace itself while it works; and an agent that is told which tools to use has to see them.
_ENVIRONMENT = {"DISABLE_AUTOUPDATER": "1", "ENABLE_TOOL_SEARCH": "false"}
_CHANGES_FILES = ("Edit", "NotebookEdit", "Write")


def find_claude(search_path: str | None) -> str | None:
    """The program inside the package `claude-agent-sdk`, where that is installed, else the one on the PATH."""
    package = _package_directory()
    if package is not None and os.access(bundled := package / "_bundled" / PROGRAM, os.X_OK):
        return str(bundled)
    return shutil.which(PROGRAM, path=search_path)


def _package_directory() -> Path | None:
    """Where the package is installed. It is not imported: only the program in it is wanted."""
    found = importlib.util.find_spec("claude_agent_sdk")
    return Path(found.origin).parent if found is not None and found.origin is not None else None


def build_command(turn: Turn) -> list[str]:
    """The whole command line. Writes the files that it names."""
    program = find_claude(turn.environment.get("PATH", os.defpath))
    if program is None:
        raise ExecutorFailure("Claude Code is not installed.", reason="command-not-found", remedy=HOW_TO_INSTALL)
    blueprint = turn.blueprint
    sources = ",".join(blueprint.options.get("setting_sources", ()))
    found = [program, *_OPTIONS, f"--setting-sources={sources}", _conversation_option(turn), *_limit_options(blueprint)]
    found += [f"{option}={_write_private(turn.spool / name, content)}" for option, name, content in _files(blueprint)]
    if blueprint.model is not None:
        found.append(f"--model={blueprint.model}")
    if blueprint.output_schema is not None:
        found.append(f"--json-schema={encode_schema(blueprint.output_schema)}")
    return found


def extra_environment(turn: Turn) -> dict[str, str]:
    """What is added to the environment of the turn, which has the last word."""
    return {name: value for name, value in _ENVIRONMENT.items() if name not in turn.environment}


def encode_schema(schema: Mapping[str, Any]) -> str:
    return msgspec.json.encode(schema).decode()


def _conversation_option(turn: Turn) -> str:
    return f"--session-id={turn.fresh}" if turn.conversation is None else f"--resume={turn.conversation}"


def _limit_options(blueprint: Blueprint) -> list[str]:
    # What is spent becomes known to us only at the end; the agent itself knows it after each answer of the model.
    limit = blueprint.limits.cost_usd
    return [] if limit is None else [f"--max-budget-usd={limit}"]


def _files(blueprint: Blueprint) -> list[tuple[str, str, bytes]]:
    files = [("--settings", "settings.json", msgspec.json.encode(_build_settings(blueprint)))]
    if blueprint.system_prompt:
        files.append(("--append-system-prompt-file", "system-prompt.md", blueprint.system_prompt.encode()))
    if blueprint.mcp_servers:
        servers = {name: _describe_server(server) for name, server in blueprint.mcp_servers.items()}
        files.append(("--mcp-config", "mcp.json", msgspec.json.encode({"mcpServers": servers})))
    return files


def _build_settings(blueprint: Blueprint) -> dict[str, Any]:
    """The permissions. Whatever they leave open is asked, and `claude_questions` knows who answers."""
    permissions = blueprint.permissions
    return {
        "permissions": {
            "defaultMode": "acceptEdits" if permissions.mode == "edit" else "default",
            "allow": permissions.allow,
            "deny": (*permissions.deny, *(_CHANGES_FILES if permissions.mode == "read" else ())),
        }
    }


def _describe_server(server: McpServer) -> dict[str, Any]:
    if server.url is not None:
        return {"type": "http", "url": server.url, "headers": server.headers}
    return {"type": "stdio", "command": server.command, "args": server.args, "env": server.env}


def _write_private(path: Path, content: bytes) -> Path:
    """A blueprint may hold keys, so nobody else may read what is written of it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return path


_OPTION = "setting_sources"
_PROBE_SECONDS = 30.0
# Where one of these is set, there is no need to ask the program whether it is logged in.
_KEYS = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"),
)


class ClaudeExecutor:
    """Runs Claude Code."""

    name = "claude"

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """`extra_environment` says where Claude Code and its login are looked for; None is that of this process."""
        self._environment = os.environ if environment is None else environment
        self._versions: dict[str, str] = {}

    async def availability(self, added: Mapping[str, str] | None = None, /) -> Availability:
        if why := missing_support():
            return Availability(works=False, why=why)
        environment = {**self._environment, **(added or {})}
        program = find_claude(environment.get("PATH"))
        if program is None:
            return Availability(works=False, why=f"Claude Code is not installed. {HOW_TO_INSTALL}")
        version = await self._version(program, environment)
        if not version:
            return Availability(works=False, why=f"{program} does not run on this machine. {HOW_TO_INSTALL}")
        works, why = await _check_login(program, environment)
        return Availability(works=works, why=why, version=version)

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:
        unknown = sorted(blueprint.options.keys() - {_OPTION})
        found = [f"The executor claude has no option {name}; it has {_OPTION}." for name in unknown]
        sources = blueprint.options.get(_OPTION, [])
        if not isinstance(sources, list | tuple) or any(source not in SETTING_SOURCES for source in sources):
            found.append(f"{_OPTION} is a list of {', '.join(SETTING_SOURCES)}.")
        schema = blueprint.output_schema
        if schema is not None and len(encode_schema(schema)) > LONGEST_SCHEMA:
            found.append(f"Claude Code takes an output schema of at most {LONGEST_SCHEMA} characters.")
        return tuple(found)

    async def carry_out(self, turn: Turn, reporter: Reporter) -> TurnResult:
        argv = build_command(turn)
        await reporter.report_conversation(turn.conversation or turn.fresh)
        started = spawn(
            argv,
            process_options(turn, reporter),
            stdin=encode_first_input(turn),
            queue=True,
            environment=extra_environment(turn),
        )
        async with await started as process:
            return await follow_turn(process, turn, reporter)

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: Reporter) -> TurnResult | None:
        async with await adopt(process, process_options(turn, reporter)) as adopted:
            return await follow_turn(adopted, turn, reporter)

    async def _version(self, program: str, environment: Mapping[str, str]) -> str:
        """Asked once: it is asked for before every run, and the program takes its time."""
        if not self._versions.get(program):
            self._versions[program] = (await _capture_output(environment, program, "--version")).partition(" ")[0]
        return self._versions[program]


async def _check_login(program: str, environment: Mapping[str, str]) -> tuple[bool, str]:
    key = next((key for key in _KEYS if environment.get(key)), None)
    if key is not None:
        return True, f"{program}, with {key}."
    try:
        status: dict[str, Any] = msgspec.json.decode(await _capture_output(environment, program, "auth", "status"))
    except msgspec.DecodeError:
        return True, f"{program}; it does not say whether it is logged in."
    if status.get("loggedIn"):
        return True, f"{program}, logged in by {status.get('authMethod')}."
    return False, f"Claude Code is not logged in. Set ANTHROPIC_API_KEY, or run `{program} auth login`."


async def _capture_output(environment: Mapping[str, str], *argv: str) -> str:
    """What a program prints, empty when it cannot be run or takes too long. How it ends does not matter."""
    try:
        process = await asyncio.create_subprocess_exec(*argv, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=environment)
    except OSError:
        return ""
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            return (await process.communicate())[0].decode("utf-8", "replace").strip()
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
