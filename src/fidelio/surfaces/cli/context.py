"""Shared helpers of all commands: context with home and settings, common options, async execution, output helpers."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from fidelio.app.application import Application
from fidelio.app.records import Records
from fidelio.errors import Command, Text, UsageProblem, render
from fidelio.processes.caller import identify_process
from fidelio.settings import Settings, load_settings
from fidelio.surfaces.cli.signals import Terminated as Terminated  # noqa: PLC0414  # commands import it from here
from fidelio.surfaces.cli.signals import run_async as run_async  # noqa: PLC0414  # commands import it from here
from fidelio.surfaces.commands import add_home_option, find_program
from fidelio.surfaces.text import MAX_LINES, Layout, escape_json, is_utf8, measure, pad
from fidelio.surfaces.text import escape_line as escape_line  # noqa: PLC0414  # commands import it from here
from fidelio.surfaces.text import escape_text as escape_text  # noqa: PLC0414  # commands import it from here
from fidelio.surfaces.text import quote_name as quote_name  # noqa: PLC0414  # commands import it from here

if TYPE_CHECKING:
    from fidelio.orchestrator.service.service import AgentService

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_DURATION = re.compile(r"(\d{1,9})([smhd]?)")
_NUMBER = "NUMBER"
_STATE_COLORS = {
    **dict.fromkeys(("waiting", "blocked", "rescheduling"), "yellow"),
    **dict.fromkeys(("failed", "lost"), "red"),
    **dict.fromkeys(("queued", "starting", "running", "active"), "cyan"),
    **dict.fromkeys(("succeeded", "completed"), "green"),
}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


class CliContext(msgspec.Struct, frozen=True, dict=True):
    """The global options: the home as named on the command line, and whether errors print a traceback."""

    home: str | None
    debug: bool

    @cached_property
    def settings(self) -> Settings:
        """The settings of this home. Loading them warns of directories that are not used."""
        settings = load_settings(self.home)
        for warning in settings.warnings():
            click.echo(f"fidelio: {escape_line(self.render(warning))}", err=True)
        return settings

    @property
    def program(self) -> str:
        """How a command for this home begins in messages."""
        return add_home_option(find_program(), self.home)

    def render(self, text: Text | Command) -> str:
        """The text with its commands as a person types them for this home."""
        return render(text, self.program, tools=False)

    def open(self, directories: Sequence[str] = (), *, with_bundled: bool = False, create: bool = False) -> Application:
        """The application of this home. `create`: make a missing home; commands that only read report it as an error."""
        application = Application(self.settings, directories, with_bundled=with_bundled, program=self.program)
        application.creates_missing_home = create
        return application

    @asynccontextmanager
    async def records(self) -> AsyncIterator[Records]:
        """Sessions and events of this home."""
        async with self.open() as application:
            yield await application.records()

    @asynccontextmanager
    async def agents(self, *, host: bool = False) -> AsyncIterator[AgentService]:
        """The agent service. With `host`, agents run in this process during the block.

        A background process takes over the runs that are still active at its end.
        """
        async with self.open(create=True) as application:
            yield await application.agents(host=host)


def with_cli_context(command: Callable[..., Any]) -> Callable[..., Any]:
    """Call a command with the `CliContext`, in an event loop if it is a coroutine function.

    A command that reads from the terminal is no coroutine function: in an event loop Ctrl-C would not interrupt it.
    """

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        result = command(*arguments, **options)
        return run_async(result) if isinstance(result, Coroutine) else result

    return click.make_pass_decorator(CliContext)(run)


async def calling_session(service: AgentService) -> str | None:
    """The session of the agent that runs this command; None if a person does. Raises if its session is not known."""
    return await service.identify_session(identify_process())


async def calling_actor(service: AgentService) -> str:
    """The actor of events that this command causes: the calling agent, or `cli`."""
    caller = await calling_session(service)
    return f"agent:{caller}" if caller else "cli"


def name_argument(name: str, session: str) -> str:
    """The argument that names a session in a printed command: its name, or its id if the name looks like an option."""
    return session if name.startswith("-") else name


def parse_duration(text: str, option: str) -> int:
    """The seconds of a duration such as 30m or 2h."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UsageProblem(f"{option} has the invalid value {text!r:.80}.", remedy="Write a number and s, m, h or d: 30m, 2h.")
    return int(match[1]) * _SECONDS[match[2]]


class HelpFormatter(click.HelpFormatter):
    """Formats help pages: breaks no word at its hyphen, such as `read-only`, and calls a number NUMBER."""

    # A hyphen at which no line is broken takes the place of each hyphen until the page is complete.
    _WHOLE = "\N{NON-BREAKING HYPHEN}"

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", self._WHOLE))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        whole = [
            (first.replace("INTEGER RANGE", _NUMBER).replace("FLOAT RANGE", _NUMBER), second.replace("-", self._WHOLE))
            for first, second in rows
        ]
        super().write_dl(whole, col_max, col_spacing)

    def getvalue(self) -> str:
        return super().getvalue().replace(self._WHOLE, "-")


# Every context makes its pages with this class.
click.Context.formatter_class = HelpFormatter


class CommandGroup(click.Group):
    """A group of commands whose list shows the whole first sentence of each; click cuts it at 45 characters."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [
            (name, command.get_short_help_str(400)) for name, command in found if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


_JSON_REPLY = "fidelio.json"


def _note_json(ctx: click.Context, _: click.Parameter, as_json: bool) -> bool:
    ctx.meta[_JSON_REPLY] = as_json
    return as_json


json_option = click.option("--json", "as_json", is_flag=True, callback=_note_json, help="Print JSON instead of text.")
# For commands that do something and reply with a sentence: `print_reply` prints it, or its facts.
json_reply_option = click.option(
    "--json", is_flag=True, expose_value=False, callback=_note_json, help="Print JSON instead of text."
)


def wants_json_reply() -> bool:
    """Whether the command that runs has the option --json, and it was passed."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_JSON_REPLY))


def print_reply(sentence: str, **facts: object) -> None:
    """Print what a command has done: a sentence, or with --json its facts."""
    if wants_json_reply():
        print_json(facts)
    else:
        print_line(sentence)


def complete_path(_: click.Context, parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Let the shell complete a path: a directory, or a file where the metavar says so."""
    return [CompletionItem(start, type="dir" if (parameter.metavar or "").startswith("DIR") else "file")]


def workflows_option(command: F) -> F:
    """Add `--workflows` and `--with-bundled`, the same for every command that reads definitions."""
    command = click.option("--with-bundled", is_flag=True, help="With --workflows: also use the bundled workflows.")(command)
    return click.option(
        "--workflows",
        "directories",
        metavar="DIR",
        shell_complete=complete_path,
        multiple=True,
        help="Read workflows from DIR instead of the search path (repeatable).",
    )(command)


def print_json(data: object) -> None:
    """Print a value as indented JSON."""
    click.echo(json_text(data, indent=2))


def print_items(items: Sequence[object], cursor: str | None = None, /, **more: object) -> None:
    """Print a list as JSON. All lists have this form; `next` is the value of --after for the rest, null at the end."""
    print_json({"items": items, "next": cursor, **more})


def json_text(data: object, *, indent: int | None = None) -> str:
    """Encode a value as JSON. What does not show is escaped, because people read it in a terminal too."""
    # JSON is UTF-8 by definition, so other encodings get ASCII.
    return escape_json(json.dumps(data, indent=indent, ensure_ascii=not supports_unicode(), default=msgspec.to_builtins))


def output_layout() -> Layout:
    """The width and encoding of standard output."""
    return Layout(terminal_width(), sys.stdout.encoding or "ascii")


def print_line(line: str, indent: str = "", *, err: bool = False) -> None:
    """Print a line of Fidelio's own, which begins with a word of ours and in which foreign text is escaped."""
    for part in output_layout().wrap_line(line, indent):
        click.echo(part, err=err)


def print_commands(purposes: Mapping[str, str]) -> None:
    """Print commands to try, each with its purpose on its line, or below it on a terminal that is too narrow for that.

    A command is never broken into lines, so that it can be copied.
    """
    width = max(measure(escape_line(command)) for command in purposes)
    is_wide = not sys.stdout.isatty() or width + 4 + max(map(measure, purposes.values())) <= terminal_width()
    for command, purpose in purposes.items():
        line = escape_line(command)
        click.echo(f"  {pad(line, width)}  {purpose}" if is_wide else f"  {line}\n      {purpose}")


def print_sentence(line: str, *, err: bool = False) -> None:
    """Print a line of Fidelio's own: wrapped on a terminal, else unbroken, because programs read it."""
    if (sys.stderr if err else sys.stdout).isatty():
        print_line(line, err=err)
    else:
        click.echo(line, err=err)


def print_message(text: str) -> None:
    """Print an error or a finding on standard error."""
    print_sentence(escape_line(text), err=True)


def print_block(text: str) -> None:
    """Print lines that are laid out already. A line that is too wide, as in a wide script, continues below."""
    layout = output_layout()
    for line in text.split("\n"):
        plain = click.unstyle(line)
        if measure(plain) <= layout.width:
            click.echo(line)
        else:
            print_line(plain.lstrip(" "), " " * (len(plain) - len(plain.lstrip(" "))))


def print_quote(text: str, indent: str = "", *, max_lines: int | None = MAX_LINES) -> None:
    """Print a text of an agent, a client or a definition, every line behind the gutter."""
    for line in output_layout().quote_text(text, indent, max_lines=max_lines):
        click.echo(line)


def describe_channel(channel: str, assurance: str) -> str:
    """How an answer came, for the front of a line: a client or an agent has chosen the name behind it."""
    known = quote_name(assurance) if assurance == channel else f"{quote_name(assurance)} over {quote_name(channel)}"
    return f"{known}, " if channel and assurance else f"over {quote_name(channel)}, " if channel else ""


def print_table(rows: Sequence[Mapping[str, str]], columns: Sequence[str], *, cut: Sequence[str] = ()) -> None:
    """Print rows in columns as wide as their content. Where that is too wide, the columns `cut`, else the last, are wrapped."""
    first = columns[0]
    cells = [{**{name: escape_line(row[name]) for name in columns}, first: quote_name(row[first])} for row in rows]
    for line in output_layout().format_table(cells, columns, cut or columns[-1:], _paint_cell if uses_color() else _plain_cell):
        click.echo(line)


def _paint_cell(column: str, text: str) -> str:
    """Make the header bold, and color a state by whether somebody has to look at it."""
    if text == column.upper():
        return click.style(text, bold=True)
    return click.style(text, fg=_STATE_COLORS[text]) if column in ("state", "status") and text in _STATE_COLORS else text


def _plain_cell(_: str, text: str) -> str:
    return text


def shorten(text: str, width: int) -> str:
    """Escape text and cut it to `width` columns."""
    return output_layout().shorten(text, width)


def terminal_width() -> int:
    """The number of columns of the terminal of standard output, or else of standard error; 80 if unknown."""
    columns = shutil.get_terminal_size((0, 0)).columns
    if columns == 0:
        with suppress(OSError, ValueError):
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
    return columns or 80


def uses_color() -> bool:
    """Whether standard output is a terminal that shows colors. An empty NO_COLOR disables nothing."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def supports_unicode() -> bool:
    """Whether standard output is UTF-8."""
    return is_utf8(sys.stdout.encoding or "")


def current_directory() -> str:
    """The working directory; empty if it was deleted."""
    try:
        return os.getcwd()  # noqa: PTH109  # compared and joined as text
    except OSError:
        return ""


def resolve_project(project: str | None) -> str:
    """The absolute path of `project`, or of the working directory."""
    if project is None and not current_directory():
        raise UsageProblem(
            "The working directory was deleted.", remedy="Change to an existing directory, or pass --project DIR."
        )
    return os.path.abspath(project or current_directory())  # noqa: PTH100  # Path.absolute leaves the dots in


def relative_path(path: Path) -> str:
    """A path relative to the working directory if it is below it, else as it is."""
    base = current_directory()
    return str(path.relative_to(base)) if base and path.is_relative_to(base) else str(path)
