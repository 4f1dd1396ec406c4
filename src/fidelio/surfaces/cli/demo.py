"""The demo: a scripted agent runs `hello` over real MCP calls, while its events are displayed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fidelio.clock import format_iso
from fidelio.engine.record import CALLED, COMPLETED
from fidelio.surfaces.cli.context import here, printable
from fidelio.surfaces.http.demo_agent import AGENT, connect_demo_agent

if TYPE_CHECKING:
    from fidelio.app.application import Application
    from fidelio.app.records import Records
    from fidelio.ledger.model import Event

LAST_EVENT_SECONDS = 5.0


async def show_demo(application: Application, address: str, *, token: str | None, person: str | None, program: str) -> None:
    """Runs the agent to the end of `hello`. `person` is the answer of a scripted person; None waits for a real one.

    `token` is what the server wants to be shown, `program` how the commands that it suggests are started.
    """
    records, inbox = await application.records(), await application.inbox()
    click.echo()
    async with connect_demo_agent(address, token, project=printable(Path(here()).name)) as agent:
        session = await agent.start_session()
        display = asyncio.create_task(_show_events(records, session))
        try:
            request = await agent.advance_to_question()
            _announce(request, program)
            if person is not None:
                await inbox.answer(request, person, by="person:scripted", channel="cli")
            await inbox.closed(request)
            await agent.finish()
            await asyncio.wait_for(display, LAST_EVENT_SECONDS)
        finally:
            display.cancel()
            # Whatever ended it has been told by whoever is ending us.
            await asyncio.gather(display, return_exceptions=True)
            await _withdraw_unless_ended(records, session)
    click.echo(f"\nThe workflow has ended. See for yourself:\n  {program} report {session}\n  {program} verify {session}")


async def _withdraw_unless_ended(records: Records, session: str) -> None:
    """Nobody goes on with a demo that was stopped, so what it asked is not to wait in the inbox for ever."""
    if (await records.find(session)).status == "completed":
        return
    await records.erase([session], actor=f"agent:{AGENT}", reason="The demo was stopped before its end.")
    with suppress(OSError):
        # Whoever read our output may be what has gone.
        click.echo("\nThe demo was stopped before its end, so its session is deleted and its question withdrawn.")


def _announce(request: str, program: str) -> None:
    click.echo("\nThe agent has stopped: a question waits for a person. In another terminal:")
    click.echo(f"  {program} inbox")
    click.echo(f"  {program} answer {request} warm      (or brief, or none)\n")


async def _show_events(records: Records, session: str) -> None:
    """Everything that is recorded, as it is recorded, up to the call that completes the session."""
    ended = False
    async for event in records.follow(session):
        click.echo(f"  {format_iso(event.time)[11:19]}  {printable(event.actor):<18} {printable(_in_words(event))}")
        if ended and event.type == CALLED:
            return
        ended = ended or event.type == COMPLETED


def _in_words(event: Event) -> str:
    body = event.body
    match event.type:
        case _ if event.type == CALLED:
            return f"called {body['name']}{' (refused)' if body['s'] == 'error' else ''}"
        case "activity.entered":
            return f"entered {body['activity']}"
        case "checkpoint.yielded":
            return f"stopped at {body['checkpoint']}"
        case "request.answered":
            return f"answered {body['option']} over {body['channel']}"
        case _:
            return event.type
