"""`fidelio up` and `fidelio demo`: the server over HTTP, and a scripted agent that shows it at work."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from fidelio.surfaces.cli.context import App, pass_app, run_async, workflows_option

if TYPE_CHECKING:
    from fidelio.engine.state import Fidelity
    from fidelio.surfaces.mcp.house import House

    Beside = Callable[[House, str], Awaitable[None]]

DEMO_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to listen, and what clients have to show."""

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None


@click.command("up")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; anything but loopback needs --token.")
@click.option("--port", type=click.IntRange(0, 65535), default=7333, show_default=True, help="Which port; 0 takes a free one.")
@click.option("--token", help="The bearer token that clients have to show (default: FIDELIO_TOKEN).")
@click.option("--enforce", is_flag=True, help="Refuse wrong moves, missing manifests and false claims instead of warning.")
@click.option("--person", is_flag=True, help="Take answers to checkpoints only from people, not passed on by a model.")
@click.option("--demo", is_flag=True, help="Let a scripted agent carry out `hello`, so that there is something to see.")
@workflows_option
@pass_app
def up_command(  # noqa: PLR0913, PLR0917  # one parameter for each option
    app: App,
    /,
    host: str,
    port: int,
    token: str | None,
    enforce: bool,
    person: bool,
    demo: bool,
    directories: tuple[str, ...],
    with_bundled: bool,
) -> None:
    """Serve workflows over HTTP, for agents that connect by address. Runs until Ctrl-C."""
    from fidelio.surfaces.mcp.house import House

    async def beside(house: House, address: str) -> None:
        _say_hello(address, app.program)
        if demo:
            from fidelio.surfaces.cli.demo import show_demo

            await show_demo(house, f"{address}/mcp", person=None, program=app.program)

    async def work() -> None:
        fidelity: Fidelity = "enforce" if enforce else "advise"
        bearer = token or os.environ.get("FIDELIO_TOKEN")
        async with House(
            app.settings,
            directories,
            with_bundled=with_bundled,
            fidelity=fidelity,
            person=person,
            # Without a bearer token nobody knows who calls, so the name of a session is not enough to open it.
            handles=bool(bearer),
        ) as house:
            await _serve(house, Listening(host, port, bearer), beside)

    run_async(work())


@click.command("demo")
@click.option("--headless", is_flag=True, help="Let a scripted person answer, and end when the workflow has ended.")
@pass_app
def demo_command(app: App, headless: bool) -> None:
    """Show Fidelio at work: a scripted agent is led through `hello` and stops at a question for you."""
    from fidelio.surfaces.cli.demo import show_demo
    from fidelio.surfaces.mcp.house import House
    from fidelio.workflows.search_path import bundled_root

    async def beside(house: House, address: str) -> None:
        async with asyncio.timeout(DEMO_SECONDS if headless else None):
            answer = "warm" if headless else None
            await show_demo(house, f"{address}/mcp", person=answer, program=app.program)

    async def work() -> None:
        # A `hello` of the user's own may be broken, or ask for what the script does not know.
        async with House(app.settings, [str(bundled_root().path)]) as house:
            await _serve(house, Listening(), beside, ends=True)

    run_async(work())


async def _serve(house: House, listening: Listening, beside: Beside, *, ends: bool = False) -> None:
    """Serves, with `beside` running next to it once the address is known. `ends`: the server ends with it."""
    from fidelio.surfaces.http.app import create_app
    from fidelio.surfaces.http.serving import serve_http
    from fidelio.surfaces.mcp.dialects import DIALECTS, path_of, tools_of
    from fidelio.surfaces.mcp.entry import identity_of, states_of

    tables = {path_of(dialect): tools_of(dialect, house) for dialect in (*DIALECTS, "orchestrator")}
    web = create_app(tables, identity_of(house.settings), states_of(house.settings), bearer_token=listening.token)
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_http(web, listening.host, listening.port, ready=address.set_result))
    companion = asyncio.create_task(_accompany(house, address, beside))
    await asyncio.wait([serving, companion], return_when=asyncio.FIRST_COMPLETED)
    if companion.done() and companion.exception() is None and not ends:
        await serving
    await _finish(companion, serving)


async def _accompany(house: House, address: asyncio.Future[str], beside: Beside) -> None:
    await beside(house, await address)


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


def _say_hello(address: str, program: str) -> None:
    click.echo(f"Fidelio leads agents through workflows at {address}/mcp")
    click.echo(f"  Claude Code:  claude mcp add --transport http fidelio {address}/mcp")
    click.echo(f"  agents:       {address}/mcp/orchestrator starts and watches other agents")
    click.echo(f"  any agent:    {program} init (writes the configuration of this project)")
    click.echo(f"  your inbox:   {program} inbox --watch")
    click.echo("Ctrl-C ends it; nothing is lost.")
