"""`fidelio agents`: start, watch, resume and stop agent sessions, with a command for each tool of the orchestrator."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click
from msgspec.structs import replace

from fidelio.app.application import Application
from fidelio.errors import AgentSessionNotFound, UsageProblem
from fidelio.orchestrator.blueprints.model import effective_mode
from fidelio.orchestrator.record.model import AgentSession, StartAgent
from fidelio.orchestrator.service.delete import DeletionResult
from fidelio.orchestrator.service.service import AgentService
from fidelio.orchestrator.service.wait import WaitMode
from fidelio.surfaces.cli.agent_output import (
    print_event,
    print_remains,
    print_result,
    print_session,
    session_row,
)
from fidelio.surfaces.cli.agent_watch import follow_start, print_detached
from fidelio.surfaces.cli.context import (
    CliContext,
    CommandGroup,
    calling_actor,
    calling_session,
    complete_path,
    escape_line,
    json_option,
    print_items,
    print_json,
    print_line,
    print_sentence,
    print_table,
    quote_name,
    resolve_project,
    run_async,
    with_cli_context,
)
from fidelio.surfaces.cli.prompting import can_prompt
from fidelio.surfaces.cli.references import AGENT, BLUEPRINT, describe_next_page, find_agent
from fidelio.surfaces.views.agents import blueprints_json, sessions_json

POLL_SECONDS = 1.0
STATES = ["queued", "starting", "running", "waiting", "succeeded", "failed", "stopped", "lost"]


@click.group("agents", cls=CommandGroup)
def agents_command() -> None:
    """Start, watch, resume and stop agents."""


project_option = click.option(
    "--project",
    metavar="DIR",
    shell_complete=complete_path,
    help="The project of the session (default: the working directory, else any project with a session of that name).",
)


def confirm_deletion(question: str) -> None:
    """Ask at the terminal. Without a terminal nothing is deleted, and the error names --yes."""
    if not sys.stdin.isatty():
        raise UsageProblem(
            "Nothing was deleted: there is no terminal to ask at.", remedy="Pass --yes to delete without asking."
        )
    click.confirm(question, abort=True, err=True)


def _resolve_project(project: str | None) -> str | None:
    return None if project is None else resolve_project(project)


def _read_text(_: click.Context, __: click.Parameter, text: str) -> str:
    return sys.stdin.read() if text == "-" else text


@agents_command.command("blueprints")
@project_option
@json_option
@with_cli_context
def blueprints(cli: CliContext, project: str | None, as_json: bool) -> None:
    """List the blueprints that agents can be started from."""
    listing = cli.open().blueprints().list(resolve_project(project))
    if as_json:
        body = blueprints_json(listing)
        print_items(body.pop("agents"), body.pop("next_cursor", None), **body)
        return
    rows = [
        {
            "name": blueprint.name,
            "executor": blueprint.executor or "default",
            "may": effective_mode(blueprint),
            "description": blueprint.description,
        }
        for blueprint in listing.agents
    ]
    print_table(rows, ["name", "executor", "may", "description"])
    for broken in listing.broken:
        print_sentence(f"broken: {escape_line(broken.name)}: {escape_line(broken.error)}", err=True)


@agents_command.command("list")
@click.option("--project", metavar="DIR", shell_complete=complete_path, help="Only sessions of this project.")
@click.option("--state", type=click.Choice(STATES), help="Only sessions whose newest run is in this state.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="How many to list at most.")
@click.option("--after", metavar="CURSOR", help="Start after this cursor; the end of a longer list shows it.")
@json_option
@with_cli_context
async def list_sessions(
    cli: CliContext, project: str | None, state: str | None, limit: int, after: str | None, as_json: bool
) -> None:
    """List agent sessions, newest first."""
    async with cli.agents() as service:
        page = await service.list(_resolve_project(project), status=state, cursor=after, limit=limit)
        total = await service.count(_resolve_project(project), status=state)
        waiting = {name: cli.render(why) for name, why in (await service.explain_waiting(page.items)).items()}
    if as_json:
        body = sessions_json(page.items, page.next, total, waiting)
        print_items(body.pop("sessions"), body.pop("next_cursor", None), **body)
    elif not page.items:
        print_sentence(f"No agent sessions. `{cli.program} agents start NAME PROMPT` starts one.")
    else:
        print_table([session_row(session) for session in page.items], ["name", "state", "blueprint", "changed", "project"])
        for session in (item for item in page.items if item.id in waiting):
            print_line(f"Session {quote_name(session.name)} waits: {escape_line(waiting[session.id])}")
        if page.next:
            print_sentence(describe_next_page(cli.program, page.next))


@agents_command.command("start")
@click.argument("name")
@click.argument("prompt", callback=_read_text)
@click.option("--blueprint", "-b", type=BLUEPRINT, help="The blueprint to start from; `fidelio agents blueprints` lists them.")
@click.option("--executor", help="The executor, if the blueprint names none; `fidelio doctor` lists those that work here.")
@click.option("--model", help="The model, instead of the blueprint's.")
@click.option("--worktree", is_flag=True, help="Let the agent work in its own git worktree.")
@click.option("--detach", is_flag=True, help="Return immediately; the agent works in the background.")
@click.option(
    "--project", metavar="DIR", shell_complete=complete_path, help="Where the agent works (default: the working directory)."
)
@json_option
@with_cli_context
async def start(
    cli: CliContext, /, name: str, prompt: str, detach: bool, project: str | None, as_json: bool, **more: Any
) -> int:
    """Start an agent session NAME with PROMPT (- reads it from standard input)."""
    more["worktree"] = more["worktree"] or None
    parameters = StartAgent(name=name, prompt=prompt, project=_resolve_project(project), **more)

    async with cli.open(create=True) as application:
        service = await application.agents(host=not detach, attended=can_prompt() and not as_json)
        session = await service.start(replace(parameters, parent=await calling_session(service)))
        return await _follow_or_detach(cli, application, service, session, detach=detach, as_json=as_json)


@agents_command.command("resume")
@click.argument("name", type=AGENT)
@click.argument("prompt", callback=_read_text)
@click.option("--detach", is_flag=True, help="Return immediately; the agent works in the background.")
@project_option
@json_option
@with_cli_context
async def resume(cli: CliContext, name: str, prompt: str, detach: bool, project: str | None, as_json: bool) -> int:
    """Continue the session NAME with a new PROMPT. The agent keeps its conversation."""
    async with cli.open(create=True) as application:
        service = await application.agents(host=not detach, attended=can_prompt() and not as_json)
        found = await find_agent(service, name, _resolve_project(project))
        session = await service.resume(found.id, prompt, by=await calling_actor(service))
        return await _follow_or_detach(cli, application, service, session, detach=detach, as_json=as_json)


@agents_command.command("send")
@click.argument("name", type=AGENT)
@click.argument("message", callback=_read_text)
@project_option
@json_option
@with_cli_context
async def send(cli: CliContext, name: str, message: str, project: str | None, as_json: bool) -> int:
    """Send MESSAGE to the session NAME. A busy agent gets it with its next turn."""
    async with cli.agents(host=False) as service:
        found = await find_agent(service, name, _resolve_project(project))
        session = await service.send(found.id, message, by=await calling_actor(service))
        print_detached(cli, session, as_json=as_json)
        return 0


@agents_command.command("status")
@click.argument("name", type=AGENT)
@project_option
@json_option
@with_cli_context
async def status(cli: CliContext, name: str, project: str | None, as_json: bool) -> None:
    """Show the state of the session NAME, and the questions that wait for you."""
    async with cli.agents() as service:
        session = await find_agent(service, name, _resolve_project(project))
        why = (await service.explain_waiting([session])).get(session.id, "")
        print_session(cli, session, as_json=as_json, requests=await service.questions(session), why=why)


@agents_command.command("result")
@click.argument("name", type=AGENT)
@click.option("--run", type=click.IntRange(1), help="The result of this earlier run; 1 is the first.")
@project_option
@json_option
@with_cli_context
async def result(cli: CliContext, name: str, run: int | None, project: str | None, as_json: bool) -> None:
    """Print the result of the session NAME."""
    async with cli.agents() as service:
        found = await find_agent(service, name, _resolve_project(project))
        await print_result(service, found.id, run, as_json=as_json)


@agents_command.command("wait")
@click.argument("names", nargs=-1, type=AGENT, required=True)
@click.option("--any", "any_", is_flag=True, help="Return when any of them has finished.")
@click.option("--timeout", type=click.FloatRange(0), default=None, help="Wait at most this many seconds.")
@project_option
@json_option
@with_cli_context
async def wait(
    cli: CliContext, names: tuple[str, ...], any_: bool, timeout: float | None, project: str | None, as_json: bool
) -> int:
    """Wait until the sessions NAMES have finished.

    Exit code 5: the timeout has passed first. Exit code 4: a session was deleted.
    """

    try:
        async with cli.agents() as service:
            sessions = [await find_agent(service, name, _resolve_project(project)) for name in names]
            async with asyncio.timeout(timeout):
                found = await _wait_finished(service, sessions, any_=any_)
            for session in found:
                print_session(cli, session, as_json=as_json, requests=await service.questions(session))
    except TimeoutError:
        click.echo("fidelio: The sessions are still running.", err=True)
        return 5
    existing = {session.id for session in found}
    deleted = [session for session in sessions if session.id not in existing]
    for session in deleted:
        click.echo(f"fidelio: {session.name} was deleted.", err=True)
    return 4 if deleted and not (any_ and found) else 0


@agents_command.command("stop")
@click.argument("name", type=AGENT)
@project_option
@json_option
@with_cli_context
async def stop(cli: CliContext, name: str, project: str | None, as_json: bool) -> None:
    """Stop the agent of the session NAME and all processes that it has started."""
    async with cli.agents() as service:
        found = await find_agent(service, name, _resolve_project(project))
        stopped = await service.stop(found.id, by=await calling_actor(service))
        print_session(cli, stopped, as_json=as_json)


@agents_command.command("delete")
@click.argument("names", nargs=-1, type=AGENT)
@click.option("--all", "everything", is_flag=True, help="Delete all sessions, or with --project all of that project.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@project_option
@json_option
@with_cli_context
def delete(cli: CliContext, names: tuple[str, ...], everything: bool, yes: bool, project: str | None, as_json: bool) -> None:
    """Stop the sessions NAMES and delete them for good, after a question. Their names can be used again."""
    if bool(names) == everything:
        raise UsageProblem("delete needs session names or --all, and not both.", remedy="Name sessions, or pass --all.")
    directory = _resolve_project(project)
    # Before the question: a name that does not exist is an error, and a beginning stands for the whole name.
    found = run_async(_find_all(cli, names, directory))
    if not yes:
        names_found = ", ".join(quote_name(session.name) for session in found)
        everywhere = f"all agent sessions{' of ' + project if project else ''}"
        confirm_deletion(f"Delete {everywhere if everything else names_found} for good?")
    run_async(_delete(cli, found, directory, as_json=as_json))


async def _find_all(cli: CliContext, names: Sequence[str], project: str | None) -> list[AgentSession]:
    async with cli.agents() as service:
        return [await find_agent(service, name, project) for name in names]


async def _delete(cli: CliContext, found: Sequence[AgentSession], project: str | None, *, as_json: bool) -> None:
    """Delete these sessions, or all if there are none."""
    results: list[DeletionResult] = []
    async with cli.agents() as service:
        by = await calling_actor(service)
        if not found:
            results.append(await service.delete_all(project, by=by))
            sentences = ["All sessions removed" if results[0] else "No sessions to remove"]
        else:
            results += [await service.delete(session.id, by=by) for session in found]
            sentences = [f"{quote_name(session.name)} is deleted." for session in found]
    if as_json:
        retained = [worktree for result in results for worktree in result.retained_worktrees]
        skipped = [name for result in results for name in result.skipped]
        print_json({"deleted": sum(result.count for result in results), "retained_worktrees": retained, "skipped": skipped})
        return
    for sentence, result in zip(sentences, results, strict=True):
        print_line(sentence)
        print_remains(result)


@agents_command.command("events")
@click.argument("name", type=AGENT)
@click.option("--after", type=click.IntRange(0), default=0, help="Only events after this number.")
@click.option("--follow", is_flag=True, help="Keep printing events as they happen, until the run has ended.")
@project_option
@json_option
@with_cli_context
async def events(cli: CliContext, name: str, after: int, follow: bool, project: str | None, as_json: bool) -> None:
    """Show the events of the session NAME: what the agent said and did."""
    async with cli.agents() as service:
        session, last_seq = await find_agent(service, name, _resolve_project(project)), after
        while True:
            page = await service.events(session.id, after=last_seq, limit=200)
            for event in page:
                print_event(event, as_json=as_json)
                last_seq = event.seq
            if len(page) == 200:
                continue
            if not follow or not (await service.find(session.id)).run.is_active:
                return
            await service.wait([session.id], mode="all", seconds=POLL_SECONDS)


async def _follow_or_detach(
    cli: CliContext, application: Application, service: AgentService, session: AgentSession, *, detach: bool, as_json: bool
) -> int:
    if not detach:
        return await follow_start(cli, application, service, session, as_json=as_json)
    print_detached(cli, session, as_json=as_json)
    return 0


async def _wait_finished(service: AgentService, sessions: list[AgentSession], *, any_: bool) -> list[AgentSession]:
    """Wait until any or all sessions have finished, or all are deleted. Returns those that still exist."""
    mode: WaitMode = "any" if any_ else "all"
    while True:
        found = await _find_existing(service, sessions)
        finished = [not session.run.is_active for session in found]
        if not found or (any(finished) if any_ else all(finished)):
            return found
        with suppress(AgentSessionNotFound):
            # A session may be deleted before the wait begins; the next iteration no longer finds it.
            await service.wait([session.id for session in found], mode=mode, seconds=30.0)


async def _find_existing(service: AgentService, sessions: list[AgentSession]) -> list[AgentSession]:
    found = []
    for session in sessions:
        with suppress(AgentSessionNotFound):
            found.append(await service.find(session.id))
    return found
