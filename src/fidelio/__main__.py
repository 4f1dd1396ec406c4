"""Entry point. `fidelio mcp` bypasses the command line: an agent waits for it, so it must not pay for those imports."""

from __future__ import annotations

import sys


def main() -> int:
    if sys.argv[1:2] == ["mcp"] and not {"-h", "--help"} & set(sys.argv):
        from fidelio.surfaces.mcp.stdio.descriptors import set_gc_threshold  # noqa: PLC0415  # the short cut is the point

        set_gc_threshold()
        from fidelio.surfaces.mcp.server import run  # noqa: PLC0415  # the same

        return run(sys.argv[2:])
    from fidelio.surfaces.cli.main import run as run_cli  # noqa: PLC0415  # only who uses it pays for it

    return run_cli(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
