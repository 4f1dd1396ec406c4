"""Commands that serve until they are stopped: `fidelio mcp`, `fidelio up`, `fidelio demo` and the agent host `fidelio work`."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import click

from fidelio.app.asking import read_address
from fidelio.errors import Command, Hint, UsageProblem
from fidelio.inbox import require_person
from fidelio.surfaces.cli.anchor_options import schedule_options
from fidelio.surfaces.cli.context import CliContext, json_option, json_reply_option, print_json, with_cli_context
from fidelio.surfaces.mcp.options import MCP_OPTIONS, SERVER_OPTIONS, CommandOption, McpOptions
from fidelio.surfaces.mcp.server import serve
from fidelio.surfaces.web.access import choose_target, make_link
from fidelio.tokens.keyring import open_keys

PORT = 7333


def click_option(flag: CommandOption) -> click.Option:
    """Build a click option from an entry of the option table that `fidelio mcp` shares."""
    return click.Option(
        [f"--{flag.flag}", flag.name],
        metavar=flag.metavar or None,
        multiple=flag.is_repeatable,
        is_flag=flag.is_flag,
        help=flag.help,
    )


def serving_options(command: click.Command) -> click.Command:
    """Add the options that every server has to a command."""
    command.params += [click_option(flag) for flag in SERVER_OPTIONS]
    return command


@click.pass_context
def _serve_mcp(ctx: click.Context, /, **options: object) -> int:
    if options["home"] is None:
        options["home"] = ctx.obj.home
    return serve(McpOptions(**options))  # type: ignore[arg-type]  # built from the same table as the fields


mcp_command = click.Command(
    "mcp",
    callback=_serve_mcp,
    params=[click_option(flag) for flag in MCP_OPTIONS],
    help="Serve workflows to an agent over standard input and output (MCP).\n\n"
    "Agents start this command by themselves. It ends when they close the connection.",
)


@serving_options
@click.command("up")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on. Other machines reach any but loopback."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"Port to listen on; 0 takes a free one. Default: {PORT}; with --demo a free one if {PORT} is in use.",
)
@click.option(
    "--token",
    help="Token that clients must send (default: FIDELIO_TOKEN, else that of the file http-token in the home, which is made).",
)
@click.option("--no-token", is_flag=True, help="Serve every user of this machine, for tests. Only on loopback.")
@click.option(
    "--allowed-host",
    "names",
    metavar="NAME",
    multiple=True,
    help="Accept this host name too, for example that of a proxy (repeatable; default: FIDELIO_ALLOWED_HOSTS).",
)
@click.option(
    "--demo", is_flag=True, help="Also run a scripted agent through the workflow `hello`, so that there is something to see."
)
@json_reply_option
@with_cli_context
@schedule_options
def up_command(
    cli: CliContext,
    /,
    host: str,
    port: int | None,
    token: str | None,
    no_token: bool,
    names: tuple[str, ...],
    demo: bool,
    **serving: Any,
) -> None:
    """Serve the web page, and workflows over HTTP. Runs until Ctrl-C.

    It prints a link that signs your browser in, and the command that connects an agent. Agents send a token, because every user
    of this machine can connect.
    """
    if token and no_token:
        raise UsageProblem("--token and --no-token contradict each other.", remedy="Pass one of them.")
    names = names or _allowed_hosts_from_environment()
    server = _load_server()
    address = server.ListenAddress(host, PORT if port is None else port, token, names, needs_token=not no_token)
    schedule = serving.pop("schedule")
    options = McpOptions(home=cli.home, **serving)
    server.run_server(cli, options, address, demo=demo, any_port=demo and port is None, schedule=schedule)


@click.command("open")
@click.argument("path", default="/")
@click.option(
    "--url", metavar="URL", help="Where the page is served (default: FIDELIO_PUBLIC_URL, else by the last `fidelio up`)."
)
@json_option
@with_cli_context
def open_command(cli: CliContext, path: str, url: str | None, as_json: bool) -> None:
    """Print a link to the page that signs a browser in. It works once, for ten minutes.

    PATH is where it leads, such as /inbox/REQUEST. Only a person may use the page, so an agent cannot print one.
    """
    require_person()
    if choose_target(path) != path:
        raise UsageProblem(f"{path!r:.200} is no path of the page.", remedy="Write a path such as /inbox, or leave it out.")
    address = (url or cli.settings.public_url or read_address(cli.settings.home)).rstrip("/")
    if not address:
        raise UsageProblem("No page was served for this home yet.", remedy=Hint("Start the server with ", Command("up"), "."))
    link = make_link(open_keys(cli.settings.home.keys), address, path)
    if as_json:
        print_json({"url": link})
    else:
        click.echo(link)


@click.command("demo")
@click.option(
    "--headless", is_flag=True, help="Answer with a script instead of waiting for a person, and end with the workflow."
)
@json_reply_option
@with_cli_context
def demo_command(cli: CliContext, headless: bool) -> None:
    """Watch a scripted agent run the workflow `hello` and stop at a question for you."""
    _load_server().run_demo_server(cli, headless=headless)


def _load_server() -> ModuleType:
    from fidelio.surfaces.cli import http_server  # noqa: PLC0415  # brings the MCP SDK, 1 s

    return http_server


@click.command("work", hidden=True)
@click.option(
    "--idle-seconds", type=click.FloatRange(0), default=10.0, show_default=True, help="End after this long without work."
)
@json_reply_option
@with_cli_context
async def work_command(cli: CliContext, idle_seconds: float) -> None:
    """Run the agents of this home until none has work left (the agent host)."""
    async with cli.open() as application:
        await application.work_until_idle(idle_seconds)


def _allowed_hosts_from_environment() -> tuple[str, ...]:
    names = os.environ.get("FIDELIO_ALLOWED_HOSTS", "").split(",")
    return tuple(name.strip() for name in names if name.strip())
