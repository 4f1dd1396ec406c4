"""`claude`: Claude Code as a process, told and heard in structured lines.

Its conversation has an id that we choose, its input is a queue that outlives us, its output a file: a process whose watcher
died is adopted, with the questions it still waits for. By default it reads nobody's settings and memories; the option
`setting_sources` (any of user, project, local) lets it.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from typing import Any

import msgspec

from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.claude.command import (
    HOW_TO_INSTALL,
    LONGEST_SCHEMA,
    SETTING_SOURCES,
    command,
    environment,
    find_claude,
    schema_text,
)
from fidelio.orchestrator.executors.claude.stream import opening, watch
from fidelio.orchestrator.executors.contract import Availability, Finished, Reporter, Turn, process_options
from fidelio.processes.spooled import adopt, missing_support, spawn
from fidelio.processes.table import ProcessIdentity

_OPTION = "setting_sources"
_SECONDS = 30.0
# Where one of these is set, there is no need to ask the program whether it is logged in.
_KEYS = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"),
)


class ClaudeExecutor:
    """Runs Claude Code."""

    name = "claude"

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """`environment` says where Claude Code and its login are looked for; None is that of this process."""
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
        works, why = await _login(program, environment)
        return Availability(works=works, why=why, version=version)

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:
        unknown = sorted(blueprint.options.keys() - {_OPTION})
        found = [f"The executor claude has no option {name}; it has {_OPTION}." for name in unknown]
        sources = blueprint.options.get(_OPTION, [])
        if not isinstance(sources, list | tuple) or any(source not in SETTING_SOURCES for source in sources):
            found.append(f"{_OPTION} is a list of {', '.join(SETTING_SOURCES)}.")
        schema = blueprint.output_schema
        if schema is not None and len(schema_text(schema)) > LONGEST_SCHEMA:
            found.append(f"Claude Code takes an output schema of at most {LONGEST_SCHEMA} characters.")
        return tuple(found)

    async def carry_out(self, turn: Turn, reporter: Reporter) -> Finished:
        argv = command(turn)
        await reporter.conversation(turn.conversation or turn.fresh)
        started = spawn(argv, process_options(turn, reporter), stdin=opening(turn), queue=True, environment=environment(turn))
        async with await started as process:
            return await watch(process, turn, reporter)

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: Reporter) -> Finished | None:
        async with await adopt(process, process_options(turn, reporter)) as adopted:
            return await watch(adopted, turn, reporter)

    async def _version(self, program: str, environment: Mapping[str, str]) -> str:
        """Asked once: it is asked for before every run, and the program takes its time."""
        if not self._versions.get(program):
            self._versions[program] = (await _said(environment, program, "--version")).partition(" ")[0]
        return self._versions[program]


async def _login(program: str, environment: Mapping[str, str]) -> tuple[bool, str]:
    key = next((key for key in _KEYS if environment.get(key)), None)
    if key is not None:
        return True, f"{program}, with {key}."
    try:
        status: dict[str, Any] = msgspec.json.decode(await _said(environment, program, "auth", "status"))
    except msgspec.DecodeError:
        return True, f"{program}; it does not say whether it is logged in."
    if status.get("loggedIn"):
        return True, f"{program}, logged in by {status.get('authMethod')}."
    return False, f"Claude Code is not logged in. Set ANTHROPIC_API_KEY, or run `{program} auth login`."


async def _said(environment: Mapping[str, str], *argv: str) -> str:
    """What a program prints, empty when it cannot be run or takes too long. How it ends does not matter."""
    try:
        process = await asyncio.create_subprocess_exec(*argv, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=environment)
    except OSError:
        return ""
    try:
        async with asyncio.timeout(_SECONDS):
            return (await process.communicate())[0].decode("utf-8", "replace").strip()
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
