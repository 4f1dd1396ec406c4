"""The command `fidelio`: global options, lazy loading of commands, completion, and mapping of errors to exit codes."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
import msgspec
from click.shell_completion import CompletionItem, get_completion_class

from fidelio import __version__
from fidelio.app.records import find_damage
from fidelio.errors import PROGRAM, FidelioError, Hint, UsageProblem
from fidelio.surfaces.cli.context import (
    CliContext,
    Terminated,
    complete_path,
    json_reply_option,
    json_text,
    print_json,
    print_message,
    run_async,
    wants_json_reply,
)
from fidelio.surfaces.commands import COMMANDS, SECTIONS, add_home_option, find_program
from fidelio.surfaces.mcp.stdio.descriptors import reserve_standard_descriptors

# Exit codes in addition to those of the error classes; docs/reference/cli.md lists them all.
INTERRUPTED, UNEXPECTED, CLOSED_PIPE, HUNG_UP, TERMINATED = 130, 70, 141, 129, 143
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class OutputClosed(Exception):
    """Standard output was closed by its reader. A `BrokenPipeError` would make click exit with a code of another meaning."""


@contextmanager
def _detect_closed_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise OutputClosed from error


# Words of other programs, or of our own texts, that are no commands and resemble others.
_SYNONYMS = {"requests": "inbox", "questions": "inbox", "workflows": "list", "runs": "sessions"}
# Less similar commands are not suggested: `requests` resembles `trust`.
_SIMILAR = 0.7


class LazyGroup(click.Group):
    """A click group that imports the module of a command only when the command is used, not to list it."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _detect_closed_output():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _detect_closed_output():
                return super().invoke(ctx)
        except click.exceptions.NoArgsIsHelpError as usage:
            with _detect_closed_output():
                return click.echo(usage.format_message())
        except (FidelioError, BaseExceptionGroup) as error:
            cause, context = _unwrap_error(error), ctx.find_object(CliContext)
            if isinstance(cause, FidelioError) and context is not None:
                cause.text = Hint(context.render(cause.text))
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # the signature is click's
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # the signature is click's
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"fidelio.surfaces.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        # click suggests only commands that were imported.
        if not (ctx.resilient_parsing or args[0].startswith("-") or args[0] in COMMANDS):
            known = [name for name, _ in _list_summaries()]
            near = [_SYNONYMS[args[0]]] if args[0] in _SYNONYMS else get_close_matches(args[0], known, cutoff=_SIMILAR)
            if near:
                raise click.UsageError(f"No such command {args[0]!r:.80}. Did you mean {' or '.join(near)}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # the signature is click's
        # Names are padded, so that the columns of all sections begin at the same place.
        width = max(len(name) for name, _ in _list_summaries())
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", COMMANDS[name][1]) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name, help=text) for name, text in _list_summaries() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


def _list_summaries() -> Iterator[tuple[str, str]]:
    return ((name, summary) for name, (_, summary) in sorted(COMMANDS.items()) if summary)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--home",
    metavar="DIR",
    shell_complete=complete_path,
    help="Directory with ledger, keys and workflows (default: FIDELIO_HOME, the nearest .fidelio, the user's data directory).",
)
@click.option("--debug", is_flag=True, help="Print a traceback when a command fails.")
@click.version_option(__version__, prog_name="fidelio")
@click.pass_context
def cli(ctx: click.Context, home: str | None, debug: bool) -> None:
    """Make AI agents follow a workflow, and prove that they did.

    Fidelio leads agents through workflows over MCP, keeps their questions for a person in an inbox, and records every step
    in a ledger that can be verified.
    """
    ctx.obj = CliContext(home=home, debug=debug)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), required=False)
@json_reply_option
def completion_command(shell: str | None) -> None:
    """Print the completion script for SHELL (default: your shell).

    \b
    bash: eval "$(fidelio completion bash)"     in ~/.bashrc
    zsh:  eval "$(fidelio completion zsh)"      in ~/.zshrc
    fish: fidelio completion fish > ~/.config/fish/completions/fidelio.fish
    """
    name = shell or os.path.basename(os.environ.get("SHELL", ""))  # noqa: PTH119  # a value of the environment, not a path we open
    completion = get_completion_class(name)
    if completion is None:
        raise UsageProblem(f"There is no completion for the shell {name!r}.", remedy="Use one of: bash, zsh, fish.")
    # The script of click cuts a description at its first comma.
    split = ('string split ","', 'string split -m 1 ","')
    script = completion(cli, {}, "fidelio", "_FIDELIO_COMPLETE").source().replace(*split)
    print_json({"shell": name, "script": script}) if wants_json_reply() else click.echo(script)


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code. An error is printed as a sentence and its remedy."""
    prepare_streams()
    try:
        result: Any = cli.main(args=arguments, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # the outermost boundary of a command
        cause = _unwrap_error(error)
        if isinstance(cause, OutputClosed | BrokenPipeError):
            discard_output()
            return CLOSED_PIPE
        if "--debug" in arguments:
            traceback.print_exc()
        return _report_error(_find_damage(arguments, cause), as_json=wants_json(arguments))
    return result if isinstance(result, int) else 0


def _find_damage(arguments: list[str], error: BaseException) -> BaseException:
    """The damage of the ledger if it explains an unexpected error: any value in a damaged file can be the reason."""
    if not isinstance(error, Exception) or isinstance(error, FidelioError | click.ClickException | click.Abort | OSError):
        return error
    at = next((at for at, word in enumerate(arguments) if word.split("=")[0] == "--home"), None)
    home = None if at is None else [*arguments[at].split("=", 1)[1:], *arguments[at + 1 :], None][0]
    with suppress(FidelioError):
        return run_async(find_damage(CliContext(home=home, debug=False).settings)) or error
    return error


def _unwrap_error(error: BaseException) -> BaseException:
    """The first error inside the exception groups that task groups create."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the command line has the option --json. What follows `--` is no option."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:end]


class _Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error of a command, with the keys that `--json` prints."""

    code: str
    message: str
    exit_code: int
    remedy: str = ""
    reason: str = ""


def _report_error(error: BaseException, *, as_json: bool) -> int:
    failure = _describe_error(error)
    if failure.code == "output":
        discard_output()
    with suppress(OSError):
        # Standard error may be closed too; the exit code still reports the failure.
        if as_json:
            click.echo(json_text({"error": msgspec.to_builtins(failure)}), err=True)
        else:
            print_message(f"fidelio: {' '.join(filter(None, (failure.message, failure.remedy)))}")
    return failure.exit_code


def _describe_error(error: BaseException) -> _Failure:
    match error:
        case FidelioError():
            remedy = str(error).removeprefix(error.sentence).strip()
            return _Failure(error.code, error.sentence, error.exit_code, remedy, error.reason)
        case click.ClickException():
            # click ends some sentences, and others not.
            sentence = f"{error.format_message().removesuffix('.')}."
            return _Failure("usage", sentence.replace("?.", "?"), error.exit_code, _describe_usage(error))
        case OSError(__context__=KeyboardInterrupt() as interrupt):
            # click prints an empty line for it, and the terminal was closed.
            return _describe_interrupt(interrupt)
        case KeyboardInterrupt() | click.Abort():
            # click raises its `Abort` from the interrupt.
            return _describe_interrupt(error.__cause__)
        case OSError() if error.errno in _DISK_FULL:
            sentence = f"The output cannot be written: {error.strerror}."
            return _Failure("output", sentence, 1, "Free some space, or write it elsewhere.")
        case _:
            sentence = f"Unexpected {type(error).__name__}: {error}."
            return _Failure("unexpected", sentence, UNEXPECTED, "Run it again with --debug for details.")


def _describe_interrupt(cause: BaseException | None) -> _Failure:
    return _Failure("interrupted", "Stopped.", cause.exit_code if isinstance(cause, Terminated) else INTERRUPTED)


def _describe_usage(error: click.ClickException) -> str:
    """The `--help` command that explains the right usage."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return ""
    # An error in the global options happens before there is a `CliContext`.
    program = add_home_option(find_program(), context.find_root().params.get("home"))
    command = program + context.command_path.removeprefix(PROGRAM)
    takes_names = any(isinstance(parameter, click.Argument) for parameter in context.command.params)
    is_unknown = isinstance(error, click.NoSuchOption) and takes_names
    remark = "Put -- before a name that begins with a hyphen. " if is_unknown else ""
    return f"{remark}`{command} --help` shows its usage."


def prepare_streams() -> None:
    """Make standard output and error usable: open if they were closed, and able to print any character."""
    reserve_standard_descriptors()
    # Python sets a stream to None if its descriptor was closed at start. The descriptor points to /dev/null by now.
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Redirect standard output to /dev/null, else the interpreter prints an error when it flushes the buffer at exit."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, sys.stdout.fileno())
    os.close(null_device)
