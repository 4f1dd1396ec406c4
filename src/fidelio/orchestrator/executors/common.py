"""What an agent may do without asking: one rule for every kind of agent that lets us decide.

Each of them names its tools in its own words, so an entry of `allow` or `deny` is one of those words or a pattern for them. The
tools of an MCP server have one spelling that holds everywhere: `mcp__SERVER__TOOL`, and `mcp__SERVER` for all of them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from fidelio.orchestrator.blueprints.model import Permissions

Verdict = Literal["allow", "deny", "ask"]
# What a use of a tool changes: nothing, files of the project, or something else.
Change = Literal["nothing", "files", "something"]
# How the answers are called that a person can give to a request for leave.
ALLOW, REFUSE = "allow", "refuse"


def verdict(permissions: Permissions, names: Iterable[str], change: Change) -> Verdict:
    """Whether the tool that is called by these names may be used, or a person has to be asked."""
    names = tuple(names)
    if is_named(permissions.deny, names):
        return "deny"
    if permissions.mode == "full" or change == "nothing" or is_named(permissions.allow, names):
        return "allow"
    if permissions.mode == "read":
        return "deny"
    return "allow" if permissions.mode == "edit" and change == "files" else "ask"


def is_named(entries: Iterable[str], names: Iterable[str]) -> bool:
    """Whether one of the entries means one of the names."""
    names = tuple(names)
    return any(fnmatchcase(name, entry) or name.startswith(f"{entry}__") for entry in entries for name in names)


def mcp_name(server: str, tool: str = "") -> str:
    """How a tool of a server, or the whole server, is called in a blueprint."""
    return f"mcp__{server}__{tool}" if tool else f"mcp__{server}"


def version_of(program: str) -> str:
    """The version in the package that the program lies in, or nothing where it does not come from npm.

    Some of these programs take seconds to say it themselves.
    """
    for directory in Path(program).resolve().parents:
        try:
            return str(json.loads((directory / "package.json").read_text("utf-8")).get("version", ""))
        except (OSError, ValueError):
            continue
    return ""


def link(login: Path, place: Path) -> bool:
    """Makes a user's login known in a home of ours, if there is one. It stays one file, so a renewal is seen by both."""
    if not place.is_symlink() and not place.exists() and login.is_file():
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.symlink_to(login.resolve())
    return place.exists()


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Both settings, table by table; where both say something, theirs holds."""
    both = {**ours, **theirs}
    for key in ours.keys() & theirs.keys():
        if isinstance(ours[key], Mapping) and isinstance(theirs[key], Mapping):
            both[key] = merged(ours[key], theirs[key])
    return both


class BackgroundTasks:
    """Tasks that end with the conversation. If one of them fails, the conversation ends with its error."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def background_tasks() -> AsyncIterator[BackgroundTasks]:
    """Whatever is still going on at the end of the block is cancelled. The first error comes out as itself, not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = BackgroundTasks(group)
            yield tasks
            tasks.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
