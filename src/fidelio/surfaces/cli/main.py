"""The command `fidelio`: global options, lazy loading of commands, and mapping of errors to messages and exit codes."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import click

from fidelio import __version__
from fidelio.errors import FidelioError
from fidelio.surfaces.cli.context import CliContext, printable
from fidelio.surfaces.commands import COMMANDS, PROGRAM, as_typed, own_program, typed
from fidelio.surfaces.mcp.stdio.descriptors import occupy_standard_descriptors

# Beyond the codes of the errors themselves (docs/reference/cli.md lists them all).
INTERRUPTED, UNEXPECTED, CLOSED_PIPE = 130, 70, 141
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class OutputClosed(Exception):
    """The reader of our output has closed it. Click would end the process itself, with a code that means something else."""


@contextmanager
def _detect_closed_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise OutputClosed from error


class LazyGroup(click.Group):
    """Knows its commands by name and imports one only when it is used."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _detect_closed_output():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _detect_closed_output():
                return super().invoke(ctx)
        except (FidelioError, BaseExceptionGroup) as error:
            cause, context = _cause(error), ctx.find_object(CliContext)
            if isinstance(cause, FidelioError) and context is not None:
                cause.sentence, cause.remedy = (as_typed(words, context.program) for words in (cause.sentence, cause.remedy))
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # the signature is click's
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click calls it so
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"fidelio.surfaces.cli.{COMMANDS[cmd_name]}")
        command = getattr(module, f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--home",
    metavar="DIR",
    help="Where Fidelio keeps its things (default: FIDELIO_HOME, the nearest .fidelio, the user's data directory).",
)
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
@click.version_option(__version__, prog_name="fidelio")
@click.pass_context
def cli(ctx: click.Context, home: str | None, debug: bool) -> None:
    """Makes AI agents follow a workflow, and proves that they did.

    Workflows that agents are led through over MCP, questions that wait for a person, and a record that can be proven.
    """
    ctx.obj = CliContext(home=home, debug=debug)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(arguments: list[str]) -> int:
    """Runs one command and gives its exit code. Errors become one sentence and the way out."""
    prepare_streams()
    try:
        result: Any = cli.main(args=arguments, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # the outermost boundary of a command
        cause = _cause(error)
        if isinstance(cause, OutputClosed | BrokenPipeError):
            discard_output()
            return CLOSED_PIPE
        if "--debug" in arguments:
            traceback.print_exc()
        return _explain(cause)
    return result if isinstance(result, int) else 0


def _cause(error: BaseException) -> BaseException:
    """What went wrong first, out of the groups that tasks wrap it in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _explain(error: BaseException) -> int:
    match error:
        case FidelioError():
            sentence, exit_code = str(error), error.exit_code
        case click.ClickException():
            sentence, exit_code = _with_help(error), error.exit_code
        case KeyboardInterrupt() | click.Abort():
            sentence, exit_code = "Stopped.", INTERRUPTED
        case OSError() if error.errno in _NO_ROOM:
            discard_output()
            sentence, exit_code = f"The output cannot be written: {error.strerror}. Make room, or write it elsewhere.", 1
        case _:
            sentence = f"Unexpected {type(error).__name__}: {error}. Run it again with --debug for details."
            exit_code = UNEXPECTED
    with suppress(OSError):
        # Nobody may be there to read it; the exit code still tells.
        click.echo(f"fidelio: {printable(sentence)}", err=True)
    return exit_code


def _with_help(error: click.ClickException) -> str:
    """Click's sentence, and where to read what would have been right."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return error.format_message()
    # What goes wrong before a command begins has no `CliContext` yet.
    program = typed(own_program(), context.find_root().params.get("home"))
    command = program + context.command_path.removeprefix(PROGRAM)
    return f"{error.format_message()} `{command} --help` shows what it takes."


def prepare_streams() -> None:
    occupy_standard_descriptors()
    # Python has no object for a stream that was closed from the start; its descriptor leads to nothing by now.
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """What is still in the buffer can reach nobody; without this the interpreter would complain about it at its end."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
