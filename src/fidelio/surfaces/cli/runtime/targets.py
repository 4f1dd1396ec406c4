"""The session that a command of the runtime means: named, by id, or the newest of an agent.

An agent may have many sessions. A person mostly means the last one, so the name of an agent stands for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click
import msgspec

from fidelio.app.application import Application
from fidelio.errors import Command, Hint, SessionNotFound
from fidelio.ids import is_short_handle
from fidelio.ledger.model import Session
from fidelio.runtime.agents.files import KIND, resolve_agent
from fidelio.runtime.agents.versions import list_agents
from fidelio.runtime.named_definitions import DefinitionFiles
from fidelio.runtime.reading import find_newest_session
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.service import NewAgentSession, RuntimeService
from fidelio.runtime.sessions import session_namespace
from fidelio.surfaces.cli.context import CliContext, complete_path
from fidelio.surfaces.cli.references import RUNTIME_SESSION, Reference, offer
from fidelio.surfaces.cli.sandbox import real_project

F = TypeVar("F", bound=Callable[..., Any])


async def _load_agents(cli: CliContext) -> list[tuple[str, str]]:
    async with cli.open() as app:
        context, directory = (await app.runtime()).context, real_project(None)
        agents, files = await list_agents(context, directory), DefinitionFiles(KIND, context.home).list(directory)
    return list(
        {
            "default": "",
            **{file.name: file.source for file in files},
            **{each.name: each.definition.description for each in agents},
        }.items()
    )


RUNTIME_AGENT = Reference(lambda cli, start: offer(cli, _load_agents, start))
session_argument = click.argument("session", metavar="SESSION", type=RUNTIME_SESSION)
project_option = click.option(
    "--project",
    metavar="DIR",
    shell_complete=complete_path,
    help="The project of the session (default: the working directory).",
)


class Target(msgspec.Struct, frozen=True):
    """The services and the session that a command works with."""

    app: Application
    service: RuntimeService
    session: str

    async def record(self) -> RuntimeRecord:
        return (await self.service.load(self.session)).record


@asynccontextmanager
async def open_target(cli: CliContext, name: str, project: str | None) -> AsyncIterator[Target]:
    """The session with this name or id, or the newest of this agent. It must exist."""
    async with cli.open() as app:
        service = await app.runtime()
        yield Target(app, service, (await find_session(app, service, name, project)).id)


async def find_session(app: Application, service: RuntimeService, name: str, project: str | None) -> Session:
    """Find a session: by its name in the project, by its id, or as the newest of an agent."""
    records, directory = await app.records(), real_project(project)
    try:
        return await records.find_named(name, namespace=session_namespace(directory))
    except SessionNotFound:
        pass
    if not is_short_handle(name) and (newest := await find_newest_session(service.context, directory, name)) is not None:
        return newest
    try:
        found = await records.find(name, kind="runtime")
    except SessionNotFound as error:
        raise _no_session(name) from error
    if found.kind != "runtime":
        raise _no_session(name)
    return found


async def begin_session(service: RuntimeService, request: NewAgentSession) -> str:
    """Begin a session with the definition that the name of the agent means now."""
    if request.version is None:
        agent = await resolve_agent(service.context, request.project, request.agent)
        request = msgspec.structs.replace(request, version=agent.version)
    return await service.start_session(request)


def begin_options(command: F) -> F:
    """The options of a session that a command begins; `NewAgentSession` has the same names."""
    options = (
        click.option("--model", default="", help="A new session: this model instead of the agent's."),
        click.option("--version", type=click.IntRange(1), help="A new session: this version of the agent, not the newest."),
        click.option("--environment", help="A new session: its environment, instead of the agent's."),
        click.option(
            "--mount",
            metavar="DIR[:copy|ro|rw]",
            shell_complete=complete_path,
            help="A new session: show a directory at /workspace/project, as a copy, read-only or for writing.",
        ),
        click.option("--vault", "vaults", metavar="NAME", multiple=True, help="A new session: attach this vault (repeatable)."),
        click.option("--title", default="", help="A new session: what it is about."),
        click.option("--tokens", type=click.IntRange(0), help="A new session: its limit of tokens; 0 for none."),
        click.option("--usd", type=click.FloatRange(0), help="A new session: its limit of US dollars; 0 for none."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def read_begin_options(project: str, agent: str, name: str | None, options: dict[str, Any]) -> NewAgentSession:
    """The session that the options of `begin_options` describe."""
    limits = {key: options.pop(key) for key in ("tokens", "usd")}
    budget = {key: float(limit) for key, limit in limits.items() if limit is not None}
    return NewAgentSession(project=project, agent=agent, name=name, budget=budget, **options)


def _no_session(name: str) -> SessionNotFound:
    return SessionNotFound(
        f"There is no session and no agent with a session {name!r:.80} here.",
        remedy=Hint(Command("runtime", "sessions"), " lists them; ", Command("runtime", "send", name, "TEXT"), " begins one."),
    )
