"""`fidelio mcp` as the command line documents it. `surfaces.mcp.entry` does the work, and starts faster without click."""

from __future__ import annotations

import click

from fidelio.surfaces.mcp.options import OPTIONS, SERVING, Flag


def click_option(flag: Flag) -> click.Option:
    return click.Option(
        [f"--{flag.flag}", flag.name],
        metavar=flag.metavar or None,
        multiple=flag.many,
        is_flag=flag.is_flag,
        help=flag.help,
    )


def serving_options(command: click.Command) -> click.Command:
    """Gives a command what every server can be told."""
    command.params += [click_option(flag) for flag in SERVING]
    return command


@click.pass_context
def _serve(ctx: click.Context, /, **chosen: object) -> int:
    from fidelio.surfaces.mcp.options import McpOptions
    from fidelio.surfaces.mcp.server import serve

    if chosen["home"] is None:
        chosen["home"] = ctx.obj.home
    return serve(McpOptions(**chosen))  # type: ignore[arg-type]  # built from the same table as the fields


mcp_command = click.Command(
    "mcp",
    callback=_serve,
    params=[click_option(flag) for flag in OPTIONS],
    help="Serve workflows to an agent over standard input and output (MCP).\n\n"
    "Agents start this themselves; it ends when they close the connection.",
)
