"""`fidelio agents`: agent sessions from the command line, with the verbs of the tools."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from fidelio.errors import AgentSessionNotFound, ExecutorFailure, UsageProblem
from fidelio.surfaces.cli.agent_words import InCommands, print_event, row, show
from fidelio.surfaces.cli.context import (
    CliContext,
    F,
    calling_actor,
    calling_session,
    json_option,
    pass_cli,
    print_json,
    print_table,
    printable,
    run_async,
    visible,
    working_place,
)

if TYPE_CHECKING:
    from fidelio.orchestrator.record.model import AgentSession, RunResult
    from fidelio.orchestrator.service.delete import DeletionResult
    from fidelio.orchestrator.service.service import AgentService
    from fidelio.orchestrator.service.wait import WaitMode

GLANCE_SECONDS = 1.0
STATES = ["queued", "starting", "running", "waiting", "succeeded", "failed", "stopped", "lost"]


@click.group("agents", cls=InCommands)
def agents_command() -> None:
    """Start, watch, resume and stop agents."""


def project_option(command: F) -> F:
    return click.option(
        "--project",
        metavar="DIR",
        help="The project of the session (default: the working directory, then any that has the name).",
    )(command)


def _project(project: str | None) -> str | None:
    return None if project is None else working_place(project)


@agents_command.command("blueprints")
@project_option
@json_option
@pass_cli
def blueprints(cli: CliContext, project: str | None, as_json: bool) -> None:
    """List what agents can be started from."""
    from fidelio.surfaces.views import blueprints_json

    listing = cli.open().blueprints().list(working_place(project))
    if as_json:
        print_json(blueprints_json(listing))
        return
    rows = [
        {"name": one.name, "executor": one.executor or "default", "may": one.permissions.mode, "description": one.description}
        for one in listing.agents
    ]
    print_table(rows, ["name", "executor", "may", "description"])
    for one in listing.broken:
        click.echo(f"broken: {printable(one.name)}: {printable(one.error)}", err=True)


@agents_command.command("list")
@click.option("--project", metavar="DIR", help="Only sessions of this project.")
@click.option("--state", type=click.Choice(STATES), help="Only sessions whose newest run is in this state.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="How many at most.")
@click.option("--after", metavar="CURSOR", help="Go on where an earlier answer said so.")
@json_option
@pass_cli
def list_sessions(
    cli: CliContext, project: str | None, state: str | None, limit: int, after: str | None, as_json: bool
) -> None:
    """List agent sessions, newest first."""
    from fidelio.surfaces.views import sessions_json

    async def work() -> None:
        async with cli.agents() as service:
            page = await service.list(_project(project), status=state, cursor=after, limit=limit)
            total = await service.count(_project(project), status=state)
        if as_json:
            print_json(sessions_json(page.items, page.next, total))
        elif not page.items:
            click.echo(f"No agent sessions. `{cli.program} agents start NAME PROMPT` starts one.")
        else:
            print_table([row(one) for one in page.items], ["name", "state", "blueprint", "runs", "changed", "project"])
            if page.next:
                click.echo(f"More with: {cli.program} agents list --after {page.next}")

    run_async(work())


@agents_command.command("start")
@click.argument("name")
@click.argument("prompt")
@click.option("--blueprint", "-b", help="What to start from; `fidelio agents blueprints` lists them.")
@click.option("--executor", help="The kind of agent, where the blueprint names none; `fidelio doctor` lists those that work.")
@click.option("--model", help="Another model than the blueprint's.")
@click.option("--worktree", is_flag=True, help="Let it work in a git worktree of its own.")
@click.option("--detach", is_flag=True, help="Return at once; the agent works in the background.")
@click.option("--project", metavar="DIR", help="Where the agent works (default: the working directory).")
@json_option
@pass_cli
def start(cli: CliContext, /, name: str, prompt: str, detach: bool, project: str | None, as_json: bool, **more: Any) -> int:
    """Start an agent session called NAME with PROMPT (- reads it from standard input)."""
    from fidelio.orchestrator.record.model import StartAgent

    more["worktree"] = more["worktree"] or None
    wanted = StartAgent(name=name, prompt=_text(prompt), project=_project(project), parent=calling_session(), **more)

    async def work() -> int:
        async with cli.agents(host=not detach) as service:
            return await _begun(cli, service, await service.start(wanted), detach=detach, as_json=as_json)

    return run_async(work())


@agents_command.command("resume")
@click.argument("name")
@click.argument("prompt")
@click.option("--detach", is_flag=True, help="Return at once; the agent works in the background.")
@project_option
@json_option
@pass_cli
def resume(cli: CliContext, name: str, prompt: str, detach: bool, project: str | None, as_json: bool) -> int:
    """Go on with the session NAME: the agent still knows what was said before."""

    async def work() -> int:
        async with cli.agents(host=not detach) as service:
            session = await service.resume(name, _text(prompt), _project(project), by=calling_actor())
            return await _begun(cli, service, session, detach=detach, as_json=as_json)

    return run_async(work())


@agents_command.command("send")
@click.argument("name")
@click.argument("message")
@project_option
@json_option
@pass_cli
def send(cli: CliContext, name: str, message: str, project: str | None, as_json: bool) -> int:
    """Tell the session NAME something: a busy agent gets it with its next turn."""

    async def work() -> int:
        async with cli.agents(host=False) as service:
            session = await service.send(name, _text(message), _project(project), by=calling_actor())
            return await _begun(cli, service, session, detach=True, as_json=as_json)

    return run_async(work())


@agents_command.command("status")
@click.argument("name")
@project_option
@json_option
@pass_cli
def status(cli: CliContext, name: str, project: str | None, as_json: bool) -> None:
    """Show how the session NAME stands."""

    async def work() -> None:
        async with cli.agents() as service:
            session = await service.find(name, _project(project))
            show(cli, session, as_json=as_json, questions=await service.questions(session))

    run_async(work())


@agents_command.command("result")
@click.argument("name")
@click.option("--run", type=click.IntRange(1), help="The result of this earlier run; 1 is the first.")
@project_option
@json_option
@pass_cli
def result(cli: CliContext, name: str, run: int | None, project: str | None, as_json: bool) -> None:
    """Print what the session NAME has found."""

    async def work() -> None:
        async with cli.agents() as service:
            found = await _found(service, name, _project(project), None if run is None else str(run))
        if as_json:
            print_json({"session": found.session.name, "run": found.run.number, "text": found.text, "data": found.data})
        else:
            click.echo(_lines(found.text))

    run_async(work())


@agents_command.command("wait")
@click.argument("names", nargs=-1, required=True)
@click.option("--any", "any_", is_flag=True, help="Return when the first of them has finished.")
@click.option("--timeout", type=click.FloatRange(0), default=None, help="Return after this many seconds at the latest.")
@project_option
@json_option
@pass_cli
def wait(cli: CliContext, names: tuple[str, ...], any_: bool, timeout: float | None, project: str | None, as_json: bool) -> int:
    """Wait until the sessions NAMES have finished. Ends with 5 when the time is over first, with 4 when they were deleted."""

    async def work() -> int:
        async with cli.agents() as service:
            named = [await service.find(name, _project(project)) for name in names]
            async with asyncio.timeout(timeout):
                found = await _ended(service, named, any_=any_)
            for one in found:
                show(cli, one, as_json=as_json, questions=await service.questions(one))
        there = {one.id for one in found}
        gone = [one for one in named if one.id not in there]
        for one in gone:
            click.echo(f"fidelio: {one.name} was deleted.", err=True)
        return 4 if gone and not (any_ and found) else 0

    try:
        return run_async(work())
    except TimeoutError:
        click.echo("fidelio: They are still at work.", err=True)
        return 5


@agents_command.command("stop")
@click.argument("name")
@project_option
@json_option
@pass_cli
def stop(cli: CliContext, name: str, project: str | None, as_json: bool) -> None:
    """Stop the agent of the session NAME, with everything it has started."""

    async def work() -> None:
        async with cli.agents() as service:
            show(cli, await service.stop(name, _project(project), by=calling_actor()), as_json=as_json)

    run_async(work())


@agents_command.command("delete")
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every session, or with --project every one of the project.")
@click.option("--yes", is_flag=True, help="Do not ask whether that is meant.")
@project_option
@pass_cli
def delete(cli: CliContext, names: tuple[str, ...], everything: bool, yes: bool, project: str | None) -> None:
    """Stop the sessions NAMES and delete them for good; their names are free again."""
    if bool(names) == everything:
        raise UsageProblem("Nothing to delete was named.", remedy="Name sessions, or pass --all.")
    if everything and not yes:
        click.confirm(f"Delete all agent sessions{' of ' + project if project else ''} for good?", abort=True)

    async def work() -> None:
        async with cli.agents() as service:
            if everything:
                deleted = await service.delete_all(_project(project), by=calling_actor())
                click.echo("All sessions removed" if deleted else "No sessions to remove")
                _say_kept(deleted)
            for name in names:
                deleted = await service.delete(name, _project(project), by=calling_actor())
                click.echo(f"{printable(name)} is deleted.")
                _say_kept(deleted)

    run_async(work())


@agents_command.command("events")
@click.argument("name")
@click.option("--after", type=click.IntRange(0), default=0, help="Only events after this number.")
@click.option("--follow", is_flag=True, help="Go on showing events as they happen, until the run has ended.")
@project_option
@json_option
@pass_cli
def events(cli: CliContext, name: str, after: int, follow: bool, project: str | None, as_json: bool) -> None:
    """Show what the agent of the session NAME said and did."""

    async def work() -> None:
        async with cli.agents() as service:
            session, seen = await service.find(name, _project(project)), after
            while True:
                page = await service.events(session.id, after=seen, limit=200)
                for event in page:
                    print_event(event, as_json=as_json)
                    seen = event.seq
                if len(page) == 200:
                    continue
                if not follow or not (await service.find(session.id)).run.is_active:
                    return
                await service.wait([session.id], mode="all", seconds=GLANCE_SECONDS)

    run_async(work())


def _say_kept(deleted: DeletionResult) -> None:
    for place in deleted.retained_worktrees:
        click.echo(f"The worktree {printable(place)} holds changes and was kept.")
    for name in deleted.skipped:
        click.echo(f"Session {printable(name)} was left: this command is part of its work.")


async def _begun(cli: CliContext, service: AgentService, session: AgentSession, *, detach: bool, as_json: bool) -> int:
    """Watches the run to its end and prints its result, or says how to find it again."""
    if detach:
        if as_json:
            show(cli, session, as_json=True)
        else:
            click.echo(
                f"{session.name} is {session.run.state}. Watch it with: {cli.program} agents events {session.name} --follow"
            )
        return 0
    try:
        session = await _watched(cli, service, session)
    except asyncio.CancelledError:
        status = f"{cli.program} agents status {session.name}"
        click.echo(f"\nNobody watches {session.name} any more; `{status}` says what becomes of it.", err=True)
        raise
    found = await _found(service, session.id)
    if as_json:
        print_json({"session": session.name, "run": found.run.number, "text": found.text, "data": found.data})
    else:
        click.echo(_lines(found.text))
    return 0


async def _found(service: AgentService, name: str, project: str | None = None, run: str | None = None) -> RunResult:
    """The result. Of a run that did not succeed, what the agent had said until then is shown before the reason."""
    try:
        return await service.result(name, project, run=run)
    except ExecutorFailure as failure:
        if failure.partial:
            click.echo(_lines(failure.partial))
        raise


async def _watched(cli: CliContext, service: AgentService, session: AgentSession) -> AgentSession:
    """Says on the side what the agent does, when that changes."""
    shown = ""
    while session.run.is_active:
        (session,) = await service.wait([session.id], mode="all", seconds=GLANCE_SECONDS)
        doing = _doing(cli, session)
        if doing != shown and session.run.is_active:
            click.echo(f"  {doing}", err=True)
            shown = doing
    return session


def _doing(cli: CliContext, session: AgentSession) -> str:
    if session.question:
        return f"waits for you: {cli.program} inbox, then {cli.program} answer {session.question} ..."
    return printable(session.run.last_activity or session.run.state)


async def _ended(service: AgentService, named: list[AgentSession], *, any_: bool) -> list[AgentSession]:
    """Those that are still there, once one or all of them have finished or none is left."""
    mode: WaitMode = "any" if any_ else "all"
    while True:
        found = await _still_there(service, named)
        ended = [not one.run.is_active for one in found]
        if not found or (any(ended) if any_ else all(ended)):
            return found
        with suppress(AgentSessionNotFound):
            # Deleted between the look and the wait: the next look finds one less.
            await service.wait([one.id for one in found], mode=mode, seconds=30.0)


async def _still_there(service: AgentService, sessions: list[AgentSession]) -> list[AgentSession]:
    found = []
    for one in sessions:
        with suppress(AgentSessionNotFound):
            found.append(await service.find(one.id))
    return found


def _text(text: str) -> str:
    return sys.stdin.read() if text == "-" else text


def _lines(text: str) -> str:
    return "\n".join(visible(line) for line in text.splitlines())
