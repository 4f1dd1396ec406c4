"""Entry point of `fidelio mcp`: the MCP server on standard input and output, with few imports before the first reply."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial

from fidelio.app.application import Application
from fidelio.definitions.library.search_path import open_library
from fidelio.errors import PROGRAM, Command, FidelioError, Hint, Text, render
from fidelio.settings import Settings, load_settings
from fidelio.surfaces.commands import add_home_option, find_program
from fidelio.surfaces.mcp.dialects import load_tools
from fidelio.surfaces.mcp.endpoint import Identity, RequestStates
from fidelio.surfaces.mcp.options import McpOptions, parse_options
from fidelio.surfaces.mcp.protocol import Protocol
from fidelio.surfaces.mcp.stdio.descriptors import reserve_standard_descriptors
from fidelio.surfaces.mcp.stdio.loop import serve_stdio
from fidelio.tokens.keyring import open_keys


def run(arguments: Sequence[str]) -> int:
    options = McpOptions()
    try:
        options = parse_options(arguments)
        return serve(options)
    except FidelioError as error:
        _print_error(error.text, options)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001  # outermost boundary: agents show their users the last line
        unexpected = f"Unexpected {type(error).__name__}: {error}. "
        _print_error(Hint(unexpected, Command("doctor"), " looks for the cause."), options)
        return 70


def _print_error(message: Text, options: McpOptions) -> None:
    print(f"fidelio: {render(message, add_home_option(find_program(), options.home))}", file=sys.stderr)


def serve(options: McpOptions) -> int:
    reserve_standard_descriptors()
    return asyncio.run(_serve(options))


async def _serve(options: McpOptions) -> int:
    settings = load_server_settings(options)
    _check_directories(options.workflows, settings)
    async with make_application(options, settings) as app:
        app.on_failure = partial(_print_error, options=options)
        tools = load_tools(options.tools, app, options.sandbox)
        return await serve_stdio(Protocol(make_identity(settings), tools, make_request_states(settings)))


def _check_directories(directories: Sequence[str], settings: Settings) -> None:
    """Fail at start if a workflow directory is missing. Reading them waits for the first call."""
    if not all(os.path.isdir(os.path.expanduser(directory)) for directory in directories):  # noqa: PTH111, PTH112  # the functions of os.path return False where Path would raise
        open_library(settings.home, directories)


def load_server_settings(options: McpOptions) -> Settings:
    """Load the settings of a server. Options override the environment, and both are validated by `load_settings`."""
    options_environ = {
        "FIDELIO_SERVER_NAME": options.server_name,
        "FIDELIO_SERVER_VERSION": options.server_version,
        "FIDELIO_MIN_RESPONSE_SECONDS": options.min_response_seconds,
        "FIDELIO_ADOPTION": "off" if options.no_adoption else None,
    }
    overrides = {name: value for name, value in options_environ.items() if value is not None}
    settings = load_settings(options.home, environ={**os.environ, **overrides})
    for warning in settings.warnings():
        _print_error(warning, options)
    return settings


def make_application(options: McpOptions, settings: Settings, *, handles: bool = True) -> Application:
    return Application(
        settings,
        options.workflows,
        with_bundled=options.with_bundled,
        fidelity="enforce" if options.enforce else "advise",
        person=options.person,
        worker=options.worker,
        handles=handles,
        # The reader may be in another directory, so the path is absolute.
        program=add_home_option(PROGRAM, str(settings.home.path) if options.home else None),
    )


def make_identity(settings: Settings) -> Identity:
    return Identity(settings.server_name, settings.server_version)


def make_request_states(settings: Settings) -> RequestStates:
    return RequestStates(lambda: open_keys(settings.home.ensure().keys))
