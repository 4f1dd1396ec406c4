"""Entry point. `fidelio mcp` bypasses the command line: agents wait for its first reply, so it must not import click."""

from __future__ import annotations

import gc
import os
import sys


def main() -> int:
    """Run the command line or the MCP server, and return the exit code."""
    if os.environ.get("FIDELIO_TRUST"):
        from fidelio.surfaces.commands import drop_trust_of_agents  # noqa: PLC0415  # only where the variable is set

        drop_trust_of_agents()
    if sys.argv[1:2] == ["mcp"] and not {"-h", "--help", "--json"} & set(sys.argv):
        # Modules and definitions stay in memory. Not traversing them again and again takes a tenth off the first session.
        gc.set_threshold(100_000, 20, 50)
        from fidelio.surfaces.mcp.server import run  # noqa: PLC0415  # this branch avoids the imports of the other

        return run(sys.argv[2:])
    from fidelio.surfaces.cli.main import run as run_cli  # noqa: PLC0415  # only the command line needs it

    return run_cli(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
