"""The HTTP server of `fidelio up` and `fidelio demo`.

The demo is a scripted agent that runs the workflow `hello` through MCP calls over HTTP, while its events are printed.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import click
import msgspec
from starlette.routing import Route
from starlette.types import ASGIApp

from fidelio.anchors.schedule import AnchorSchedule
from fidelio.app.application import Application, open_bundled
from fidelio.app.asking import note_address
from fidelio.app.records import Records
from fidelio.app.webhooks.sending import send_webhooks
from fidelio.clock import format_local
from fidelio.engine.record import CALLED, COMPLETED
from fidelio.errors import FidelioError, SessionNotFound, UsageProblem
from fidelio.home import Home
from fidelio.inbox import Inbox
from fidelio.ledger.model import Event
from fidelio.settings import Settings
from fidelio.surfaces.cli.attended import AttendedTerminal
from fidelio.surfaces.cli.context import (
    CliContext,
    current_directory,
    escape_line,
    json_text,
    print_commands,
    print_sentence,
    quote_name,
    run_async,
    uses_color,
    wants_json_reply,
)
from fidelio.surfaces.http.api.application import create_json_routes
from fidelio.surfaces.http.api.operations import JsonServices
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.demo_agent import AGENT, DemoAgent, connect_demo_agent
from fidelio.surfaces.http.guard import validate_host_name
from fidelio.surfaces.http.limits import ProgramLimits
from fidelio.surfaces.http.serving import open_listeners, serve_http
from fidelio.surfaces.http.token_file import ServerToken, load_token
from fidelio.surfaces.http.v1.application import create_routes
from fidelio.surfaces.http.v1.endpoint import ApiServices
from fidelio.surfaces.mcp.dialects import DEFAULT, DIALECTS, TOOLSETS, endpoint_path, load_tools
from fidelio.surfaces.mcp.endpoint import ServedTools
from fidelio.surfaces.mcp.options import McpOptions
from fidelio.surfaces.mcp.protocol import Protocol
from fidelio.surfaces.mcp.server import load_server_settings, make_application, make_identity, make_request_states
from fidelio.surfaces.text import pad
from fidelio.surfaces.timeline import describe_event
from fidelio.surfaces.views.requests import notification_json
from fidelio.surfaces.web.access import make_link
from fidelio.surfaces.web.application import create_pages
from fidelio.surfaces.web.pages import PageServices

ServerTask = Callable[[str], Awaitable[None]]

DEMO_SECONDS = 60.0
LAST_EVENT_SECONDS = 5.0
# An endpoint of its own, because the demo uses the bundled workflows and the server possibly others.
DEMO_PATH = "/mcp/demo"


class ListenAddress(msgspec.Struct, frozen=True):
    """Address to listen on, the token of the command line, whether clients need a token, and further host names to accept."""

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    names: tuple[str, ...] = ()
    needs_token: bool = True

    def load_token(self, home: Home) -> ServerToken:
        return load_token(home, self.token) if self.needs_token else ServerToken()


def run_server(
    cli: CliContext,
    options: McpOptions,
    address: ListenAddress,
    *,
    demo: bool,
    any_port: bool,
    schedule: AnchorSchedule | None = None,
) -> None:
    """Serve until Ctrl-C. `demo`: with the scripted agent. `any_port`: a free port will do if this is in use.

    `schedule`: write anchors meanwhile.
    """
    settings = load_server_settings(options)
    if any_port and _is_in_use(address):
        print_sentence(f"Port {address.port} is in use, so the demo takes a free one.")
        address = msgspec.structs.replace(address, port=0)
    token = address.load_token(settings.home)
    # Without a token callers are unknown, so the name of a session must not be enough to open it.
    handles = address.needs_token

    async def work() -> None:
        async with (
            make_application(options, settings, handles=handles) as application,
            open_bundled(settings, handles=handles) as bundled,
        ):
            # Fail before the welcome is printed if the ledger, the keys or the workflows cannot be opened.
            await application.workflows()
            await application.keep_anchoring(schedule)
            await application.host_sandboxes()
            await application.host_runtime()

            async def welcome(url: str) -> None:
                note_address(settings.home, url)
                _print_welcome(url, cli.program, token, make_link(application.keys(), url))
                if demo:
                    endpoint, program = f"{url}{DEMO_PATH}", cli.program
                    await run_demo(bundled, endpoint, token=token.value, person=None, program=program, cli=cli, has_page=True)

            tools = _all_tools(application) | (_demo_tools(bundled) if demo else {})
            project, limits = str(current_directory()), ProgramLimits.from_settings(settings.http)
            services = PageServices(application, project, [validate_host_name(name) for name in address.names])
            shared = JsonServices(application, project, actions=services.actions, watcher=services.watcher, limits=limits)
            routes = [*create_routes(ApiServices(application, project, limits)), *create_json_routes(shared)]
            try:
                async with send_webhooks(application, partial(notification_json, settings)):
                    await _serve(settings, tools, address, token, welcome, routes=routes, pages=create_pages(services))
            finally:
                await services.actions.close()

    run_async(work())


def run_demo_server(cli: CliContext, *, headless: bool) -> None:
    """Serve only the demo, and end with it. `headless`: a script answers, not a person."""
    token = load_token(cli.settings.home)

    async def work() -> None:
        async with open_bundled(cli.settings) as bundled:

            async def demo(url: str) -> None:
                person = "warm" if headless else None
                async with asyncio.timeout(DEMO_SECONDS if headless else None):
                    await run_demo(bundled, f"{url}{DEMO_PATH}", token=token.value, person=person, program=cli.program, cli=cli)

            await _serve(cli.settings, _demo_tools(bundled), ListenAddress(), token, demo, ends=True)

    run_async(work())


def _is_in_use(address: ListenAddress) -> bool:
    try:
        with open_listeners(address.host, address.port):
            return False
    except UsageProblem as problem:
        if getattr(problem.__cause__, "errno", None) != errno.EADDRINUSE:
            raise
    return True


def _all_tools(application: Application) -> dict[str, ServedTools]:
    return {endpoint_path(dialect): load_tools(dialect, application) for dialect in (*DIALECTS, *TOOLSETS[1:])}


def _demo_tools(bundled: Application) -> dict[str, ServedTools]:
    return {DEMO_PATH: load_tools(DEFAULT, bundled)}


async def _serve(
    settings: Settings,
    tools: Mapping[str, ServedTools],
    address: ListenAddress,
    token: ServerToken,
    companion: ServerTask,
    *,
    ends: bool = False,
    routes: Sequence[Route] = (),
    pages: ASGIApp | None = None,
) -> None:
    """Serve, and call `companion` with the URL once the server listens. `ends`: the server ends when it returns."""
    identity, states = make_identity(settings), make_request_states(settings)
    web = create_app(
        {path: Protocol(identity, served, states) for path, served in tools.items()},
        bearer_token=token.value,
        allowed_hosts=[validate_host_name(name) for name in address.names],
        limits=settings.http,
        routes=routes,
        pages=pages,
    )
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    server_task = asyncio.create_task(serve_http(web, address.host, address.port, ready=url.set_result, limits=settings.http))
    companion_task = asyncio.create_task(_run_with_url(url, companion))
    try:
        await asyncio.wait([server_task, companion_task], return_when=asyncio.FIRST_COMPLETED)
        if companion_task.done() and companion_task.exception() is None and not ends:
            await asyncio.wait([server_task])
    finally:
        await _stop_tasks(companion_task, server_task)


async def _run_with_url(url: asyncio.Future[str], companion: ServerTask) -> None:
    await companion(await url)


async def _stop_tasks(*tasks: asyncio.Task[None]) -> None:
    """Cancel the tasks that still run, and raise the error of the first that failed."""
    for task in tasks:
        if not task.done():
            task.cancel()
    # Wait for all before any may raise: a server task that outlives the event loop would print errors.
    await asyncio.wait(tasks)
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task


def _print_welcome(url: str, program: str, token: ServerToken, link: str) -> None:
    if wants_json_reply():
        click.echo(
            json_text({"kind": "serving", "url": f"{url}/mcp", "header": token.header if token.value else None, "link": link})
        )
        return
    header = f' --header "{token.header}"' if token.value else ""
    print_sentence(f"Fidelio leads agents through workflows at {url}/mcp")
    # What is to be copied is not broken into lines.
    click.echo(f"  your browser: {click.style(link, bold=True) if uses_color() else link}")
    print_sentence(f"  (works once, for ten minutes; `{program} open` prints another)")
    print_sentence(f"  your agents:  `{program} init` connects them, in a project")
    click.echo(f"  Claude Code:  claude mcp add --transport http fidelio {url}/mcp{header}")
    if token.value:
        print_sentence("  any client:   sends that header, or x-api-key with the same token")
    else:
        print_sentence("  no token:     every user of this machine can use this server. --no-token is for tests.", err=True)
    print_sentence("Ctrl-C stops the server. Sessions stay, and go on with its next start.")


async def run_demo(
    application: Application,
    address: str,
    *,
    token: str,
    person: str | None,
    program: str,
    cli: CliContext | None = None,
    has_page: bool = False,
) -> None:
    """Run the scripted agent to the end of `hello`, at the MCP endpoint `address`.

    `token`: the token of the server. `person`: the option that a scripted person chooses; None waits for a real person.
    `program`: how the commands begin that the output suggests. `cli`: ask at the terminal of this command, if it has one.
    `has_page`: the question can be answered on the web page.
    """
    records, inbox = await application.records(), await application.inbox()
    if not wants_json_reply():
        click.echo()
    async with (
        application.ending_sessions(AGENT, "hello", reason="The demo was stopped before its end."),
        connect_demo_agent(address, token, project=escape_line(Path(current_directory()).name)) as agent,
    ):
        session = await agent.start_session()
        async with _attend(cli, application, attended=person is None) as terminal:
            display = asyncio.create_task(_print_events(records, session, terminal))
            try:
                request = await agent.advance_to_question()
                if terminal.is_attended:
                    terminal.ask(request)
                else:
                    _print_request_hint(request, program, has_page=has_page)
                if person is not None:
                    await inbox.answer(request, person, by="person:scripted", channel="cli")
                is_finished = await _finish_unless_ended(records, inbox, agent, session, request)
                if is_finished:
                    await asyncio.wait_for(display, LAST_EVENT_SECONDS)
            finally:
                display.cancel()
                # Its errors are not raised: the exception that ended this block is reported already.
                await asyncio.gather(display, return_exceptions=True)
                await terminal.stop_asking()
                await _delete_unfinished(records, session, f"agent:{AGENT}")
    if not is_finished and wants_json_reply():
        click.echo(json_text({"kind": "ended", "session": session}))
        return
    if not is_finished:
        print_sentence("Somebody has ended the session of the demo, so its agent has stopped.")
        return
    if wants_json_reply():
        click.echo(json_text({"kind": "completed", "session": session}))
        return
    click.echo("\nThe workflow has ended. Look at the record:")
    purposes = {"report": "what was required and what happened", "trace": "every call", "verify": "the proof"}
    print_commands({f"{program} {command} {session}": purpose for command, purpose in purposes.items()})


def _attend(cli: CliContext | None, application: Application, *, attended: bool) -> AttendedTerminal:
    return AttendedTerminal(
        cli or CliContext(home=None, debug=False),
        application,
        attended=attended and cli is not None and not wants_json_reply(),
        can_detach=False,
    )


async def _finish_unless_ended(records: Records, inbox: Inbox, agent: DemoAgent, session: str, request: str) -> bool:
    """Work from the answer to the end. False if somebody has ended or deleted the session meanwhile."""
    try:
        await inbox.wait_until_closed(request)
        await agent.finish()
    except FidelioError:
        if await _is_unfinished(records, session):
            raise
        return False
    return True


async def _is_unfinished(records: Records, session: str) -> bool:
    try:
        return (await records.find(session)).status in ("active", "blocked")
    except SessionNotFound:
        return False


async def _delete_unfinished(records: Records, session: str, actor: str) -> None:
    """Delete the session of a demo that was stopped, because nothing continues it and its request would stay in the inbox."""
    if not await _is_unfinished(records, session):
        return
    await records.erase([session], actor=actor, reason="The demo was stopped before its end.")
    with suppress(OSError):
        # Standard output may be closed; a closed pipe may be the reason why the demo stops.
        if wants_json_reply():
            click.echo(json_text({"kind": "stopped", "session": session}))
            return
        click.echo()
        print_sentence("The demo was stopped before its end, so its session is deleted and its question withdrawn.")


def _print_request_hint(request: str, program: str, *, has_page: bool) -> None:
    if wants_json_reply():
        click.echo(json_text({"kind": "waiting", "request": request}))
        return
    where = "on the web page, or in another terminal" if has_page else "in another terminal"
    click.echo(f"\nThe agent has stopped at a question for you. Answer it {where}:")
    click.echo(f"  {program} inbox\n  {program} answer {request} warm      (or brief, or none)\n")


async def _print_events(records: Records, session: str, terminal: AttendedTerminal) -> None:
    """Print events as they are recorded, up to the call that completes the session."""
    is_completed = False
    async for event in records.follow(session):
        if wants_json_reply():
            click.echo(json_text({"kind": "event", "type": event.type, "actor": event.actor, "body": event.body}))
        else:
            _print_event_line(event, terminal)
        if is_completed and event.type == CALLED:
            return
        is_completed = is_completed or event.type == COMPLETED


def _print_event_line(event: Event, terminal: AttendedTerminal) -> None:
    """Print what happened, without calls and texts that were loaded; `fidelio trace` shows the calls."""
    entry = describe_event(event)
    if not entry.is_minor or entry.is_error:
        what = escape_line(f"{entry.what}: {entry.detail}" if entry.detail else entry.what)
        terminal.print(f"{format_local(event.time)[11:19]}  {pad(quote_name(event.actor), 15)}  {what}", "  ")
