"""What commands share: where things are, how they are opened, and how answers are printed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import unicodedata
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fidelio.errors import UsageProblem
from fidelio.settings import Settings, load_settings
from fidelio.surfaces.commands import own_program, typed

if TYPE_CHECKING:
    from fidelio.definitions.library import Library
    from fidelio.ledger import Ledger
    from fidelio.orchestrator.service.service import AgentService

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
# Control characters, invisible ones that turn the direction of text around, halves of characters, and line separators.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Invisible, but scripts and emoji need them inside of words, and they move nothing.
_JOINERS = frozenset("\u200c\u200d")


@dataclass(frozen=True)
class App:
    """One run of the command line."""

    home: str | None
    debug: bool

    @cached_property
    def settings(self) -> Settings:
        return load_settings(self.home)

    @property
    def program(self) -> str:
        """How the commands begin that we tell people to type."""
        return typed(own_program(), self.home)

    @asynccontextmanager
    async def ledger(self) -> AsyncIterator[Ledger]:
        from fidelio.ledger import open_ledger

        home = self.settings.home
        # A ledger that is kept elsewhere is found without the home.
        home.require_existing() if self.settings.ledger == str(home.ledger) else home.ensure()
        async with await open_ledger(self.settings.ledger) as ledger:
            yield ledger

    @asynccontextmanager
    async def agents(self, *, carry_out: bool = False) -> AsyncIterator[AgentService]:
        """The orchestrator. With `carry_out`, agents work in this process while the block lasts.

        What is at work when it ends goes on in a process of its own.
        """
        from fidelio.orchestrator.opening import open_agents
        from fidelio.orchestrator.runs.host_process import hosting, see_to_the_rest

        self.settings.home.ensure()
        async with self.ledger() as ledger:
            service = open_agents(self.settings, ledger)
            if carry_out:
                async with hosting(service, self.settings):
                    yield service
            else:
                try:
                    yield service
                finally:
                    await see_to_the_rest(service, self.settings)

    def library(self, directories: Sequence[str] = (), *, with_bundled: bool = False) -> Library:
        from fidelio.definitions.library.search_path import open_library

        return open_library(self.settings.home, directories, with_bundled=with_bundled)

    def bundled_library(self) -> Library:
        """Only what comes with Fidelio, so that what it shows of itself does not depend on anybody's files."""
        from fidelio.definitions.library import Library
        from fidelio.definitions.library.search_path import bundled_root

        return Library([bundled_root()])


pass_app = click.make_pass_decorator(App)


def calling_session() -> str | None:
    """The session of the agent that runs this command, where one does."""
    from fidelio.inbox import AGENT_MARKER
    from fidelio.orchestrator.record.rules import session_of

    return session_of(os.environ.get(AGENT_MARKER, "")) or None


def acting() -> str:
    """Who the record says has asked for something."""
    caller = calling_session()
    return f"agent:{caller}" if caller else "cli"


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(command)


def workflows_option(command: F) -> F:
    """The search path of workflows, the same for every command that reads definitions."""
    command = click.option("--with-bundled", is_flag=True, help="With --workflows: also the bundled workflows.")(command)
    return click.option(
        "--workflows", "directories", metavar="DIR", multiple=True, help="Read workflows from here instead (repeatable)."
    )(command)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Runs the work of a command. Being told to end is like Ctrl-C: what has to be tidied up is tidied up."""
    with _like_interrupts(signal.SIGTERM, signal.SIGHUP):
        return asyncio.run(work)


@contextmanager
def _like_interrupts(*numbers: signal.Signals) -> Iterator[None]:
    # Whoever started us may have asked that a closed terminal be ignored.
    taken = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def print_json(data: object) -> None:
    click.echo(json_text(data, indent=2))


def json_text(data: object, *, indent: int | None = None) -> str:
    # Only UTF-8 may carry other characters: JSON in any other encoding is not JSON.
    return json.dumps(data, indent=indent, ensure_ascii=not speaks_unicode())


def printable(text: str) -> str:
    """Text that an agent or a file brought, on one line and without power over the terminal.

    Whoever reads a report must be able to tell what Fidelio says from what it quotes.
    """
    return visible(" ".join(text.split()))


def visible(text: str) -> str:
    """What a terminal would obey or hide instead of showing, as an escape that can be read."""
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if unicodedata.category(character) not in _UNSEEN or character in _JOINERS:
        return character
    return character.encode("unicode_escape").decode("ascii")


def print_table(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> None:
    """Columns as wide as their content; the last one takes what is left of the line."""
    cells = [{name: printable(row[name]) for name in columns} for row in rows]
    widths = {name: max([len(name), *(len(row[name]) for row in cells)]) for name in columns}
    room = max(20, terminal_width() - sum(widths[name] + 2 for name in columns[:-1]))
    for row in [{name: name.upper() for name in columns}, *cells]:
        start = "".join(row[name].ljust(widths[name] + 2) for name in columns[:-1])
        click.echo(start + shorten(row[columns[-1]], room))


def shorten(text: str, room: int) -> str:
    line = printable(text)
    return line if len(line) <= room else line[: room - 1].rstrip() + "…"


def terminal_width() -> int:
    return shutil.get_terminal_size((100, 24)).columns


def wants_color() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def speaks_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def here() -> str:
    """The working directory; empty when somebody has deleted it."""
    try:
        return os.getcwd()  # noqa: PTH109  # compared and joined as text
    except OSError:
        return ""


def working_place(project: str | None) -> str:
    """The project that a command is about, as an absolute path."""
    if project is None and not here():
        raise UsageProblem(
            "The working directory is gone.", remedy="Change to one that exists, or name the project with --project DIR."
        )
    return os.path.abspath(project or here())  # noqa: PTH100  # Path.absolute leaves the dots in


def relative(path: Path) -> str:
    """A path as a person at this prompt would write it."""
    place = here()
    return str(path.relative_to(place)) if place and path.is_relative_to(place) else str(path)
