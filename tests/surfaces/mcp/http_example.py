"""The example tools over HTTP in a process of their own, with something to clean up at the end."""

from __future__ import annotations

import sys

from fidelio.surfaces.cli.context import Terminated, run_async
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.serving import serve_http
from tests.surfaces.mcp.example import ExampleTools, protocol


def say(words: str) -> None:
    print(words, flush=True)  # noqa: T201  # the test reads it


async def main() -> None:
    app = create_app({"/mcp": protocol(ExampleTools())})
    try:
        await serve_http(app, port=0, ready=say)
    finally:
        say("closed cleanly")


if __name__ == "__main__":
    try:
        run_async(main())
    except Terminated as end:
        sys.exit(end.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
