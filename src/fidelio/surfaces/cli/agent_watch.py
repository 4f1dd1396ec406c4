"""Watching an agent that a command has started: its progress, its requests, Ctrl-C and the key that detaches.

Ctrl-C stops what the command has started, because a person expects that; who wants it to go on detaches.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import click

from fidelio.app.application import Application
from fidelio.errors import Command, FidelioError
from fidelio.orchestrator.record.model import AgentSession
from fidelio.orchestrator.service.service import AgentService
from fidelio.surfaces.cli.agent_output import describe_progress, print_result, print_session
from fidelio.surfaces.cli.attended import AttendedTerminal, print_last_words
from fidelio.surfaces.cli.context import CliContext, calling_actor, escape_line, name_argument, print_line, quote_name
from fidelio.surfaces.cli.signals import finish

_POLL_SECONDS = 1.0


def print_detached(cli: CliContext, session: AgentSession, *, as_json: bool) -> None:
    """Print how to come back to an agent that works in the background."""
    if as_json:
        print_session(cli, session, as_json=True)
        return
    name = name_argument(session.name, session.id)
    watch = cli.render(Command("agents", "events", name, "--follow")).strip("`")
    print_line(f"{escape_line(session.name)} is {session.run.state}. It works in the background.")
    print_line(f"{cli.render(Command('agents', 'result', name))} prints its result.", "  ")
    print_line(f"{cli.render(Command('agents', 'stop', name))} stops it.", "  ")
    click.echo(f"Watch it with: {watch}")


async def follow_start(
    cli: CliContext, application: Application, service: AgentService, session: AgentSession, *, as_json: bool
) -> int:
    """Watch a run to its end and print its result. Ctrl-C stops the agent; the key `d` leaves it working."""
    async with AttendedTerminal(cli, application, attended=not as_json) as terminal:
        if terminal.is_attended:
            terminal.print(f"{quote_name(session.name)} works. Ctrl-C stops it; d leaves it working in the background.")
        watching = asyncio.create_task(_watch_run(cli, service, session, terminal))
        detaching = asyncio.create_task(terminal.detached.wait())
        try:
            await asyncio.wait({watching, detaching}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
        # The output may be closed before the signal of a closed terminal arrives.
        except (asyncio.CancelledError, OSError):
            # First on record: from then on it is stopped, whatever becomes of this process.
            with suppress(FidelioError):
                await finish(_request_stop(service, session))
            await terminal.stop_asking()
            await _stop_agent(cli, service, session)
            raise
        finally:
            for task in (watching, detaching):
                task.cancel()
            await asyncio.wait({watching, detaching})
    if watching.cancelled():
        print_detached(cli, await service.find(session.id), as_json=as_json)
        return 0
    session = watching.result()
    await print_result(service, session.id, as_json=as_json)
    return 0


async def _request_stop(service: AgentService, session: AgentSession) -> None:
    await service.request_stop(session.id, by=await calling_actor(service))


async def _stop_agent(cli: CliContext, service: AgentService, session: AgentSession) -> None:
    """Wait until the agent has stopped, and say so, or why it cannot be stopped."""
    name = escape_line(session.name)
    try:
        print_last_words(f"Stopping {name}. Ctrl-C again does not wait for it.")
        stopped = await service.stop(session.id, by=await calling_actor(service))
    except FidelioError as error:
        print_last_words(f"{name} could not be stopped: {escape_line(cli.render(error.text))}")
        return
    again = cli.render(Command("agents", "resume", name_argument(session.name, session.id), "PROMPT"))
    print_last_words(f"{name} {describe_stop(stopped)}. {again} gives it another prompt.")


def describe_stop(session: AgentSession) -> str:
    return "is still being stopped, in the background" if session.run.is_active else f"is {session.run.state}"


async def _watch_run(cli: CliContext, service: AgentService, session: AgentSession, terminal: AttendedTerminal) -> AgentSession:
    """Print the activity of the agent to standard error whenever it changes, until the run has ended."""
    printed = ""
    while session.run.is_active:
        (session,) = await service.wait([session.id], mode="all", seconds=_POLL_SECONDS)
        progress = describe_progress(cli, session, (await service.explain_waiting([session])).get(session.id, ""))
        if progress != printed and session.run.is_active:
            printed = progress
            if session.question and terminal.is_attended:
                terminal.ask(session.question)
            else:
                terminal.print(progress, "  ", err=True)
    return session
