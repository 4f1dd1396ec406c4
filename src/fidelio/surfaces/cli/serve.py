"""Commands that serve until they are stopped: `fidelio mcp`, `fidelio up`, `fidelio demo` and the agent host `fidelio work`."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fidelio.errors import UsageProblem
from fidelio.surfaces.cli.context import CliContext, pass_cli, run_async
from fidelio.surfaces.mcp.options import MCP_OPTIONS, SERVER_OPTIONS, CommandOption, McpOptions

if TYPE_CHECKING:
    from fidelio.app.application import Application
    from fidelio.settings import Settings
    from fidelio.surfaces.mcp.endpoint import ServedTools

    Beside = Callable[[str], Awaitable[None]]

PORT = 7333
DEMO_SECONDS = 60.0
# Beside the tables that the server offers, because the demo plays over other workflows.
DEMO_PATH = "/mcp/demo"


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to listen, under which further names, and what clients have to show."""

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    names: tuple[str, ...] = ()


def click_option(flag: CommandOption) -> click.Option:
    return click.Option(
        [f"--{flag.flag}", flag.name],
        metavar=flag.metavar or None,
        multiple=flag.is_repeatable,
        is_flag=flag.is_flag,
        help=flag.help,
    )


def serving_options(command: click.Command) -> click.Command:
    """Gives a command what every server can be told."""
    command.params += [click_option(flag) for flag in SERVER_OPTIONS]
    return command


@click.pass_context
def _serve_mcp(ctx: click.Context, /, **chosen: object) -> int:
    from fidelio.surfaces.mcp.server import serve

    if chosen["home"] is None:
        chosen["home"] = ctx.obj.home
    return serve(McpOptions(**chosen))  # type: ignore[arg-type]  # built from the same table as the fields


mcp_command = click.Command(
    "mcp",
    callback=_serve_mcp,
    params=[click_option(flag) for flag in MCP_OPTIONS],
    help="Serve workflows to an agent over standard input and output (MCP).\n\n"
    "Agents start this themselves; it ends when they close the connection.",
)


@serving_options
@click.command("up")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; anything but loopback needs --token.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"Which port; 0 takes a free one (default: {PORT}, with --demo a free one where that is in use).",
)
@click.option("--token", help="The bearer token that clients have to show (default: FIDELIO_TOKEN).")
@click.option(
    "--allowed-host",
    "names",
    metavar="NAME",
    multiple=True,
    help="Also serve under this name, as a proxy in front may have it (repeatable; default: FIDELIO_ALLOWED_HOSTS).",
)
@click.option("--demo", is_flag=True, help="Let a scripted agent carry out `hello`, so that there is something to see.")
@pass_cli
def up_command(
    cli: CliContext, /, host: str, port: int | None, token: str | None, names: tuple[str, ...], demo: bool, **chosen: Any
) -> None:
    """Serve workflows over HTTP, for agents that connect by address. Runs until Ctrl-C."""
    from fidelio.app.application import open_bundled
    from fidelio.surfaces.mcp.server import load_server_settings, make_application

    options = McpOptions(home=cli.home, **chosen)
    settings = load_server_settings(options)
    bearer = token or os.environ.get("FIDELIO_TOKEN")
    listening = Listening(host, _port(host, port, demo=demo), bearer, names or _names_outside())

    async def work() -> None:
        # Without a bearer token nobody knows who calls, so the name of a session is not enough to open it.
        async with make_application(options, settings, handles=bool(bearer)) as application, open_bundled(settings) as shown:
            # What cannot work says so before anybody is greeted.
            await application.workflows()

            async def beside(address: str) -> None:
                _say_hello(address, cli.program, has_token=bool(bearer))
                if demo:
                    await _show(shown, address, cli, token=bearer)

            tables = _every_table(application) | (_table_of_demo(shown) if demo else {})
            await _serve(settings, tables, listening, beside)

    run_async(work())


@click.command("demo")
@click.option("--headless", is_flag=True, help="Let a scripted person answer, and end when the workflow has ended.")
@pass_cli
def demo_command(cli: CliContext, headless: bool) -> None:
    """Show Fidelio at work: a scripted agent is led through `hello` and stops at a question for you."""
    from fidelio.app.application import open_bundled

    async def work() -> None:
        async with open_bundled(cli.settings) as shown:

            async def beside(address: str) -> None:
                async with asyncio.timeout(DEMO_SECONDS if headless else None):
                    await _show(shown, address, cli, person="warm" if headless else None)

            await _serve(cli.settings, _table_of_demo(shown), Listening(), beside, ends=True)

    run_async(work())


@click.command("work", hidden=True)
@click.option(
    "--idle-seconds", type=click.FloatRange(0), default=10.0, show_default=True, help="End after so long without work."
)
@pass_cli
def work_command(cli: CliContext, idle_seconds: float) -> None:
    """Carry out agents for as long as there is something to carry out."""

    async def work() -> None:
        async with cli.open() as application:
            await application.work_until_idle(idle_seconds)

    run_async(work())


def _port(host: str, asked: int | None, *, demo: bool) -> int:
    """A demo is there to be seen: it does not fail because something else has the usual port."""
    if asked is not None or not demo:
        return PORT if asked is None else asked
    from fidelio.surfaces.http.serving import open_listener

    try:
        with open_listener(host, PORT):
            return PORT
    except UsageProblem as problem:
        if getattr(problem.__cause__, "errno", None) != errno.EADDRINUSE:
            raise
    click.echo(f"Port {PORT} is in use, so the demo takes a free one.")
    return 0


async def _show(
    shown: Application, address: str, cli: CliContext, *, token: str | None = None, person: str | None = None
) -> None:
    from fidelio.surfaces.cli.demo import show_demo

    await show_demo(shown, f"{address}{DEMO_PATH}", token=token, person=person, program=cli.program)


def _names_outside() -> tuple[str, ...]:
    names = os.environ.get("FIDELIO_ALLOWED_HOSTS", "").split(",")
    return tuple(name.strip() for name in names if name.strip())


def _every_table(application: Application) -> dict[str, ServedTools]:
    from fidelio.surfaces.mcp.dialects import DIALECTS, endpoint_path, load_tools

    return {endpoint_path(dialect): load_tools(dialect, application) for dialect in (*DIALECTS, "orchestrator")}


def _table_of_demo(shown: Application) -> dict[str, ServedTools]:
    from fidelio.surfaces.mcp.dialects import DEFAULT, load_tools

    return {DEMO_PATH: load_tools(DEFAULT, shown)}


async def _serve(
    settings: Settings, tables: Mapping[str, ServedTools], listening: Listening, beside: Beside, *, ends: bool = False
) -> None:
    """Serves, with `beside` running next to it once the address is known. `ends`: the server ends with it."""
    from fidelio.surfaces.http.application import create_app
    from fidelio.surfaces.http.guard import validate_host_name
    from fidelio.surfaces.http.serving import serve_http
    from fidelio.surfaces.mcp.server import make_identity, make_request_states
    from fidelio.surfaces.mcp.stdio.descriptors import HTTP_GC_THRESHOLD, set_gc_threshold

    set_gc_threshold(HTTP_GC_THRESHOLD)
    web = create_app(
        tables,
        make_identity(settings),
        make_request_states(settings),
        bearer_token=listening.token,
        allowed_hosts=[validate_host_name(name) for name in listening.names],
    )
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_http(web, listening.host, listening.port, ready=address.set_result))
    companion = asyncio.create_task(_accompany(address, beside))
    await asyncio.wait([serving, companion], return_when=asyncio.FIRST_COMPLETED)
    if companion.done() and companion.exception() is None and not ends:
        await serving
    await _finish(companion, serving)


async def _accompany(address: asyncio.Future[str], beside: Beside) -> None:
    await beside(await address)


async def _finish(companion: asyncio.Task[None], serving: asyncio.Task[None]) -> None:
    """Stops what still runs, and lets the error of whoever failed come out."""
    for task in (companion, serving):
        if not task.done():
            task.cancel()
    # Both have to have ended before either may raise: a server that is left alone with a dying loop complains about it.
    await asyncio.wait([companion, serving])
    for task in (companion, serving):
        with suppress(asyncio.CancelledError):
            await task


def _say_hello(address: str, program: str, *, has_token: bool) -> None:
    shown = ' --header "Authorization: Bearer TOKEN"' if has_token else ""
    click.echo(f"Fidelio leads agents through workflows at {address}/mcp")
    click.echo(f"  Claude Code:  claude mcp add --transport http fidelio {address}/mcp{shown}")
    click.echo(f"  agents:       {address}/mcp/orchestrator starts and watches other agents")
    click.echo(f"  any agent:    {program} init (writes the configuration of this project)")
    click.echo(f"  your inbox:   {program} inbox --watch")
    click.echo("Ctrl-C ends it; nothing is lost.")
