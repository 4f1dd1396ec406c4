"""`fidelio mcp` as the command line documents it. `surfaces.mcp.entry` does the work, and starts faster without click."""

from __future__ import annotations

import click

from fidelio.surfaces.mcp.options import OPTIONS


@click.pass_context
def _serve(ctx: click.Context, /, **chosen: object) -> int:
    from fidelio.surfaces.mcp.entry import serve
    from fidelio.surfaces.mcp.options import McpOptions

    if chosen["home"] is None:
        chosen["home"] = ctx.obj.home
    return serve(McpOptions(**chosen))  # type: ignore[arg-type]  # built from the same table as the fields


mcp_command = click.Command(
    "mcp",
    callback=_serve,
    params=[
        click.Option(
            [f"--{option.flag}", option.name],
            metavar=option.metavar or None,
            multiple=option.many,
            is_flag=option.is_flag,
            help=option.help,
        )
        for option in OPTIONS
    ],
    help="Serve workflows to an agent over standard input and output (MCP).\n\n"
    "Agents start this themselves; it ends when they close the connection.",
)
