"""Ids and names as people type them: a unique beginning, `last`, and completion by the shell.

An exact id or name always wins, so nothing that worked before means something else. The beginning of an id counts only if a
single one has it; several are listed in the error. Completion reads, creates no home, and shows nothing where it fails.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from fidelio.errors import AgentSessionNotFound, FidelioError, RequestNotFound, UsageProblem
from fidelio.inbox import Inbox
from fidelio.ledger.model import Request
from fidelio.orchestrator.record.model import AgentSession
from fidelio.orchestrator.service.service import AgentService
from fidelio.surfaces.cli.context import CliContext, complete_path, resolve_project, run_async
from fidelio.surfaces.text import escape_line, shorten

LAST = "last"
# Newest entries that are searched for a beginning, and entries that completion offers.
_SEARCHED, _OFFERED = 1_000, 100


async def find_request(inbox: Inbox, text: str) -> Request:
    """Find a request by its id, by the beginning of the id of an open request, or `last`: the newest."""
    try:
        return await inbox.find(text)
    except RequestNotFound:
        open_requests = [request async for request in inbox.iterate()]
        if text == LAST and open_requests:
            return open_requests[-1]
        name = choose([request.id for request in open_requests if text and request.id.startswith(text)], text, "requests")
        if name is None:
            raise
        return await inbox.find(name)


async def find_agent(service: AgentService, text: str, project: str | None) -> AgentSession:
    """Find an agent session by its name or id, by the beginning of either, or `last`: the newest."""
    try:
        return await service.find(text, project)
    except AgentSessionNotFound:
        page = await service.list(project, limit=1 if text == LAST else _SEARCHED)
        if text == LAST and page.items:
            return page.items[0]
        found = [session for session in page.items if text and (session.name.startswith(text) or session.id.startswith(text))]
        name = choose([session.id for session in found], text, "agent sessions", [session.name for session in found])
        if name is None:
            raise
        return await service.find(name)


def choose(ids: list[str], text: str, kind: str, names: list[str] | None = None) -> str | None:
    """The only id that was found; None if there is none. Raises `UsageProblem` if the beginning is not unique."""
    if len(ids) > 1:
        listed = ", ".join((names or ids)[:5])
        raise UsageProblem(f"{len(ids)} {kind} begin with {text!r:.80}: {listed}.", remedy="Type more of it.")
    return ids[0] if ids else None


def describe_next_page(program: str, cursor: str) -> str:
    """The command that is running, with its options, from `cursor` on: without them the list would be another."""
    context = click.get_current_context()
    words = [program, *context.command_path.split()[1:]]
    for option in context.command.params:
        name = str(option.name)
        if name != "after" and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            value = context.params[name]
            words += [option.opts[0]] if value is True else [option.opts[0], shlex.quote(str(value))]
    return f"More: {' '.join(words)} --after {cursor}"


Complete = Callable[[CliContext, str], Iterable[CompletionItem]]
Load = Callable[[CliContext], Coroutine[Any, Any, list[tuple[str, str]]]]


class Reference(click.ParamType[str]):
    """A text that names something. Its metavar is that of a plain text; the shell completes it."""

    name = "text"

    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002  # the signature is click's
        cli = CliContext(home=ctx.find_root().params.get("home"), debug=False)
        with suppress(FidelioError, OSError):
            return list(self._complete(cli, incomplete))
        return []


def complete_option(ctx: click.Context, _: click.Parameter, start: str) -> list[CompletionItem]:
    """The options of the request that was named before."""

    async def load(cli: CliContext) -> list[tuple[str, str]]:
        async with cli.open() as application:
            request = await find_request(await application.inbox(), str(ctx.params["request"]))
        return [(str(option["id"]), str(option.get("label", ""))) for option in request.options]

    return Reference(lambda cli, start: offer(cli, load, start)).shell_complete(ctx, _, start)


def offer(cli: CliContext, load: Load, start: str) -> list[CompletionItem]:
    entries = run_async(load(cli))
    return [_item(name, text) for name, text in entries if name.startswith(start)]


def _item(name: str, text: str) -> CompletionItem:
    return CompletionItem(name, help=shorten(escape_line(text), 60))


async def _load_sessions(cli: CliContext) -> list[tuple[str, str]]:
    async with cli.records() as records:
        page = await records.sessions(limit=_OFFERED)
    return [(each.id, f"{each.status} {each.kind} {each.name or each.record.get('workflow', '')}") for each in page.items]


async def _load_runtime_sessions(cli: CliContext) -> list[tuple[str, str]]:
    namespace = f":{os.path.realpath(resolve_project(None))}"  # noqa: ASYNC240  # a few calls, before anything else runs
    async with cli.records() as records:
        page = await records.sessions(kind="runtime", limit=_OFFERED, stores=False)
    # A name is known only in its project.
    named = [each.name if each.name and each.namespace.endswith(namespace) else each.id for each in page.items]
    return [
        (name, f"{each.status}: {each.record.get('title') or each.record.get('agent', '')}")
        for name, each in zip(named, page.items, strict=True)
    ]


async def _load_requests(cli: CliContext) -> list[tuple[str, str]]:
    async with cli.open() as application:
        page = await (await application.inbox()).list_requests(limit=_OFFERED)
    return [(request.id, request.question) for request in page.items]


async def _load_agents(cli: CliContext) -> list[tuple[str, str]]:
    async with cli.open() as application:
        page = await (await application.agents(host=False)).list(None, limit=_OFFERED)
    return [(session.name, f"{session.run.state} {session.blueprint}") for session in page.items]


def _complete_workflows(cli: CliContext, start: str) -> Iterable[CompletionItem]:
    return (_item(entry.id, entry.title) for entry in cli.open().open_library().list() if entry.id.startswith(start))


def _complete_blueprints(cli: CliContext, start: str) -> Iterable[CompletionItem]:
    listing = cli.open().blueprints().list(resolve_project(None))
    return (_item(blueprint.name, blueprint.description) for blueprint in listing.agents if blueprint.name.startswith(start))


SESSION = Reference(lambda cli, start: offer(cli, _load_sessions, start))
RUNTIME_SESSION = Reference(lambda cli, start: offer(cli, _load_runtime_sessions, start))
REQUEST = Reference(lambda cli, start: offer(cli, _load_requests, start))
AGENT = Reference(lambda cli, start: offer(cli, _load_agents, start))
WORKFLOW = Reference(_complete_workflows)
BLUEPRINT = Reference(_complete_blueprints)
session_option = click.option(
    "--session",
    type=RUNTIME_SESSION,
    default="default",
    show_default=True,
    help="The session: its name in the project, or its id.",
)
project_option = click.option(
    "--project",
    metavar="DIR",
    shell_complete=complete_path,
    help="The project of the session (default: the working directory).",
)
