"""Shared helpers of all commands: context with home and settings, common options, async execution, output helpers."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import unicodedata
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from fidelio.app.application import Application
from fidelio.app.records import Records
from fidelio.errors import Command, Text, UsageProblem, render
from fidelio.ids import session_of_run
from fidelio.processes.table import AGENT_MARKER
from fidelio.settings import Settings, load_settings
from fidelio.surfaces.commands import add_home_option, find_program

if TYPE_CHECKING:
    from fidelio.orchestrator.service.service import AgentService

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
# Unicode categories: control characters, format characters such as direction overrides, surrogates, line separators.
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Format characters that some scripts and emoji need. They do not affect the terminal.
_JOINERS = frozenset("\u200c\u200d")


class CliContext(msgspec.Struct, frozen=True, dict=True):
    """The global options: the home as named on the command line, and whether errors print a traceback."""

    home: str | None
    debug: bool

    @cached_property
    def settings(self) -> Settings:
        """The settings of this home."""
        return load_settings(self.home)

    @property
    def program(self) -> str:
        """How a command for this home begins in messages."""
        return add_home_option(find_program(), self.home)

    def render(self, text: Text | Command) -> str:
        """The text with its commands as a person types them for this home."""
        return render(text, self.program, tools=False)

    def open(self, directories: Sequence[str] = (), *, with_bundled: bool = False, create: bool = False) -> Application:
        """The application of this home. `create`: make a missing home; commands that only read report it as an error."""
        application = Application(self.settings, directories, with_bundled=with_bundled)
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


def calling_session() -> str | None:
    """The session of the agent that runs this command; None if a person does."""
    return session_of_run(os.environ.get(AGENT_MARKER, "")) or None


def calling_actor() -> str:
    """The actor of events that this command causes: the calling agent, or `cli`."""
    caller = calling_session()
    return f"agent:{caller}" if caller else "cli"


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def workflows_option(command: F) -> F:
    """Add `--workflows` and `--with-bundled`, the same for every command that reads definitions."""
    command = click.option("--with-bundled", is_flag=True, help="With --workflows: also use the bundled workflows.")(command)
    return click.option(
        "--workflows",
        "directories",
        metavar="DIR",
        multiple=True,
        help="Read workflows from DIR instead of the search path (repeatable).",
    )(command)


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP ended the command. It is handled like Ctrl-C, except for the exit code."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine. SIGTERM and SIGHUP cancel it, as Ctrl-C does, so that cleanup code runs.

    They do not raise SIGINT for that: a process that a shell starts in the background ignores SIGINT.
    """
    received: list[int] = []
    try:
        return asyncio.run(_cancel_on_signals(work, received))
    except asyncio.CancelledError:
        if not received:
            raise
        raise Terminated(received[0]) from None


async def _cancel_on_signals(work: Coroutine[Any, Any, T], received: list[int]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def cancel(number: int, _: object) -> None:
        received.append(number)
        # A signal does not wake the loop; this call does.
        loop.call_soon_threadsafe(task.cancel)

    # Only where the default action is set: `nohup` makes a process ignore SIGHUP.
    replaced = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    for number in replaced:
        signal.signal(number, cancel)
    try:
        return await work
    finally:
        for number in replaced:
            signal.signal(number, signal.SIG_DFL)


def print_json(data: object) -> None:
    """Print a value as indented JSON."""
    click.echo(json_text(data, indent=2))


def json_text(data: object, *, indent: int | None = None) -> str:
    """Encode a value as JSON."""
    # JSON is UTF-8 by definition, so other encodings get ASCII.
    return json.dumps(data, indent=indent, ensure_ascii=not supports_unicode())


def escape_line(text: str) -> str:
    """Escape text from an agent or a file, and put it on a single line.

    Such text must neither control the terminal nor imitate a line of Fidelio's own output.
    """
    return escape_text(" ".join(text.split()))


def escape_text(text: str) -> str:
    """Replace control characters and invisible characters by readable escapes."""
    return "".join(_escape_character(character) for character in text)


def escape_lines(text: str) -> str:
    """Escape the text and keep its line breaks."""
    return "\n".join(escape_text(line) for line in text.splitlines())


def _escape_character(character: str) -> str:
    if unicodedata.category(character) not in _ESCAPED_CATEGORIES or character in _JOINERS:
        return character
    return character.encode("unicode_escape").decode("ascii")


def print_table(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> None:
    """Print rows in columns as wide as their content. The last column is cut at the end of the line."""
    cells = [{name: escape_line(row[name]) for name in columns} for row in rows]
    widths = {name: max([len(name), *(len(row[name]) for row in cells)]) for name in columns}
    rest = max(20, terminal_width() - sum(widths[name] + 2 for name in columns[:-1]))
    for row in [{name: name.upper() for name in columns}, *cells]:
        start = "".join(row[name].ljust(widths[name] + 2) for name in columns[:-1])
        click.echo(start + shorten(row[columns[-1]], rest))


def shorten(text: str, width: int) -> str:
    """Escape text and cut it to `width` characters."""
    line = escape_line(text)
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def terminal_width() -> int:
    """The number of columns of the terminal; 100 if unknown."""
    return shutil.get_terminal_size((100, 24)).columns


def uses_color() -> bool:
    """Whether standard output is a terminal and colors are not disabled."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def supports_unicode() -> bool:
    """Whether standard output is UTF-8."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


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
