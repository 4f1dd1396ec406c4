"""Code that several executors share: permission decisions, installed programs and their settings, background tasks.

Permissions: every agent names its own tools, so an entry of `allow` or `deny` is such a name or a pattern for it. The tools of
an MCP server have the same name everywhere: `mcp__SERVER__TOOL`, and `mcp__SERVER` for all of them.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from fidelio.errors import ExecutorFailure
from fidelio.orchestrator.blueprints.model import Blueprint, Permissions
from fidelio.orchestrator.executors.contract import Availability
from fidelio.processes.table import missing_support

PermissionDecision = Literal["allow", "deny", "ask"]
# What a tool call changes: nothing, files of the project, or something else.
Change = Literal["nothing", "files", "something"]
# Ids of the options of a permission request.
ALLOW, REFUSE = "allow", "refuse"
S = TypeVar("S", bound=msgspec.Struct)


def decide_permission(permissions: Permissions, names: Iterable[str], change: Change) -> PermissionDecision:
    """Decide whether a tool with these names may be called, or a person must approve it."""
    names = tuple(names)
    if matches_any(permissions.deny, names):
        return "deny"
    if permissions.mode == "full" or change == "nothing" or matches_any(permissions.allow, names):
        return "allow"
    if permissions.mode == "read":
        return "deny"
    return "allow" if permissions.mode == "edit" and change == "files" else "ask"


def matches_any(entries: Iterable[str], names: Iterable[str]) -> bool:
    """Whether an entry is or matches any of the names, or is the MCP server of such a tool."""
    names = tuple(names)
    return any(fnmatchcase(name, entry) or name.startswith(f"{entry}__") for entry in entries for name in names)


def refuse_sandbox(blueprint: Blueprint, why: str) -> tuple[str, ...]:
    """The problem of a blueprint with `tools: sandbox` whose agent would keep tools of its own, or get none."""
    if blueprint.tools != "sandbox":
        return ()
    return (f"`tools: sandbox` is refused: {why} Use the executor claude, or remove the key.",)


def mcp_tool_name(server: str, tool: str = "") -> str:
    """The name of a tool of an MCP server, or of the whole server, in a blueprint."""
    return f"mcp__{server}__{tool}" if tool else f"mcp__{server}"


def _find_package_version(program: str) -> str:
    """The version in the `package.json` above the program, or an empty text if it was not installed by npm.

    The file is read because some of these programs take seconds to print their version.
    """
    for directory in Path(program).resolve().parents:
        try:
            return str(json.loads((directory / "package.json").read_text("utf-8")).get("version", ""))
        except (OSError, ValueError):
            continue
    return ""


def check_npm_program(
    program: str, title: str, package: str, environment: Mapping[str, str], *, has_login: bool, how_to_log_in: str
) -> Availability:
    """Check an agent that is installed by npm."""
    if missing := missing_support():
        return Availability(works=False, why=missing)
    found = shutil.which(program, path=environment.get("PATH"))
    if found is None:
        return Availability(works=False, why=f"{title} is not on the PATH. Install it: npm install -g {package}")
    version = _find_package_version(found)
    if not has_login:
        return Availability(works=False, why=f"{title} is installed but not logged in. {how_to_log_in}", version=version)
    return Availability(works=True, why=f"{title} is installed at {found}.", version=version)


def parse_options(executor: str, options: Mapping[str, Any], shape: type[S], remedy: str = "") -> S:
    """Parse the options of a blueprint, or raise `ExecutorFailure`."""
    try:
        return msgspec.convert(dict(options), shape)
    except msgspec.ValidationError as error:
        sentence = f"The options of the executor {executor} are invalid: {error}."
        raise ExecutorFailure(sentence, reason="options", remedy=remedy) from error


def link_login(login: Path, target: Path) -> bool:
    """Link the user's login file into an agent home, if it exists. A symlink, because either side may renew the token."""
    if not target.is_symlink() and not target.exists() and login.is_file():
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.symlink_to(login.resolve())
    return target.exists()


def merge_settings(defaults: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested settings; `overrides` win."""
    merged = {**defaults, **overrides}
    for key in defaults.keys() & overrides.keys():
        if isinstance(defaults[key], Mapping) and isinstance(overrides[key], Mapping):
            merged[key] = merge_settings(defaults[key], overrides[key])
    return merged


class BackgroundTasks:
    """Tasks of a conversation, so that a question that waits for a person does not block reading.

    They end with the conversation. If one of them fails, the conversation ends with its error.
    """

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def background_tasks() -> AsyncIterator[BackgroundTasks]:
    """Cancel what still runs at the end of the block. The first error is raised as itself, not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = BackgroundTasks(group)
            yield tasks
            tasks.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
