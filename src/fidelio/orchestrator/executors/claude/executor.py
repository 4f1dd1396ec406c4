"""The executor `claude`: Claude Code as a process that reads and writes JSON lines.

The executor chooses the id of the conversation; input and output of the process are files in the spool, so another host can
adopt the process together with its unanswered questions. By default Claude Code reads none of the user's settings and memories;
the option `setting_sources` (any of user, project, local) enables them.

Prompts and blueprint texts are passed in files or over standard input: a command line is visible to every user of the machine,
and a text that begins with a dash would be parsed as an option.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
# The operating system limits the length of a command-line argument.
LONGEST_SCHEMA = 100_000

_OPTIONS = (
    *("-p", "--input-format=stream-json", "--output-format=stream-json", "--verbose"),
    *("--permission-prompt-tool=stdio", "--strict-mcp-config"),
)
# The program must not update itself during a turn, and all tools are listed at once because the prompt may name them.
_ENVIRONMENT = {"DISABLE_AUTOUPDATER": "1", "ENABLE_TOOL_SEARCH": "false"}
_CHANGES_FILES = ("Edit", "NotebookEdit", "Write")


def find_claude(search_path: str | None) -> str | None:
    """Find the program inside the package `claude-agent-sdk` if it is installed, else on the PATH."""
    package = _package_directory()
    if package is not None and os.access(bundled := package / "_bundled" / PROGRAM, os.X_OK):
        return str(bundled)
    return shutil.which(PROGRAM, path=search_path)


def _package_directory() -> Path | None:
    """The directory of the package, which is not imported because only its program is needed."""
    found = importlib.util.find_spec("claude_agent_sdk")
    return Path(found.origin).parent if found is not None and found.origin is not None else None


def build_command(turn: Turn) -> list[str]:
    """Build the command line and write the files that it names."""
    program = find_claude(turn.environment.get("PATH", os.defpath))
    if program is None:
        raise ExecutorFailure("Claude Code is not installed.", reason="command-not-found", remedy=HOW_TO_INSTALL)
    blueprint = turn.blueprint
    sources = ",".join(blueprint.options.get("setting_sources", ()))
    conversation = f"--session-id={turn.fresh}" if turn.conversation is None else f"--resume={turn.conversation}"
    argv = [program, *_OPTIONS, f"--setting-sources={sources}", conversation]
    argv += [f"{option}={_write_private(turn.spool / name, content)}" for option, name, content in _files(blueprint)]
    if blueprint.limits.cost_usd is not None:
        # Claude Code must enforce this limit: it reports the cost to its client only at the end of the turn.
        argv.append(f"--max-budget-usd={blueprint.limits.cost_usd}")
    if blueprint.tools == "sandbox":
        # Without a value: none of the built-in tools. Those of the MCP servers stay.
        argv.append("--tools=")
    if blueprint.model is not None:
        argv.append(f"--model={blueprint.model}")
    if blueprint.output_schema is not None:
        argv.append(f"--json-schema={encode_schema(blueprint.output_schema)}")
    return argv


def extra_environment(turn: Turn) -> dict[str, str]:
    """Variables to add to the environment of the turn, which takes precedence."""
    return {name: value for name, value in _ENVIRONMENT.items() if name not in turn.environment}


def encode_schema(schema: Mapping[str, Any]) -> str:
    return msgspec.json.encode(schema).decode()


def _files(blueprint: Blueprint) -> list[tuple[str, str, bytes]]:
    files = [("--settings", "settings.json", msgspec.json.encode(_build_settings(blueprint)))]
    if blueprint.system_prompt:
        files.append(("--append-system-prompt-file", "system-prompt.md", blueprint.system_prompt.encode()))
    if blueprint.mcp_servers:
        servers = {name: _describe_server(server) for name, server in blueprint.mcp_servers.items()}
        files.append(("--mcp-config", "mcp.json", msgspec.json.encode({"mcpServers": servers})))
    return files


def _build_settings(blueprint: Blueprint) -> dict[str, Any]:
    """Settings with the permissions of the blueprint. Claude Code asks its client about all other tool calls."""
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
    """Write a file that only the user can read, because a blueprint may hold API keys."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return path


_OPTION = "setting_sources"
_PROBE_SECONDS = 30.0
# The variable that names the directory of Claude Code's files.
_DIRECTORY = "CLAUDE_CONFIG_DIR"
# If one of these is set, the login status of the program is not checked.
_KEYS = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"),
)


class ClaudeExecutor:
    """Run Claude Code."""

    name = "claude"

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """`environment` is where Claude Code and its login are looked up; None is the environment of this process."""
        self._environment = os.environ if environment is None else environment
        self._versions: dict[str, str] = {}

    async def availability(self, added: Mapping[str, str] | None = None, /) -> Availability:
        if why := missing_support():
            return Availability(works=False, why=why)
        environment = {**self._environment, **(added or {})}
        program = find_claude(environment.get("PATH"))
        if program is None:
            return Availability(works=False, why=f"Claude Code is not installed. {HOW_TO_INSTALL}")
        with _probe_environment(environment) as probing:
            version = await self._version(program, probing)
            if not version:
                return Availability(works=False, why=f"{program} does not run on this machine. {HOW_TO_INSTALL}")
            works, why = await _check_login(program, probing)
        return Availability(works=works, why=why, version=version)

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:
        unknown = sorted(blueprint.options.keys() - {_OPTION})
        found = [f"The executor claude has no option {name}; it has {_OPTION}." for name in unknown]
        sources = blueprint.options.get(_OPTION, [])
        if not isinstance(sources, list | tuple) or any(source not in SETTING_SOURCES for source in sources):
            found.append(f"The option {_OPTION} must be a list of {', '.join(SETTING_SOURCES)}.")
        if sources and blueprint.tools == "sandbox":
            found.append(f"{_OPTION} contradicts `tools: sandbox`: settings may contain hooks, which run outside. Remove one.")
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
        """The cached version of the program: it is needed before every run, and the program is slow to print it."""
        if not self._versions.get(program):
            self._versions[program] = (await _capture_output(environment, program, "--version")).partition(" ")[0]
        return self._versions[program]


@contextmanager
def _probe_environment(environment: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """The environment of a check, with a temporary directory for files of Claude Code if the home has none.

    It writes files at every call, and `fidelio init` would take them for a sign that Claude Code is used.
    """
    home = Path(environment.get("HOME") or os.devnull)
    if _DIRECTORY in environment or any(os.path.lexists(home / name) for name in (".claude", ".claude.json")):
        yield environment
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        yield {**environment, _DIRECTORY: directory}


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
    """Run a program and return its output, whatever its exit status; empty if it cannot be run or takes too long."""
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
