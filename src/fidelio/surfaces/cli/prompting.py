"""Prompt for a request at the terminal: shows it and reads the answer by keys, while others may answer it elsewhere.

Only a person at a terminal is asked: both streams are a terminal, this process is in its foreground, and it does not run below
an agent. What was typed before a question appeared does not answer it. An answer that comes too late is refused by the inbox,
and the person is told whose answer counts.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from math import ceil
from typing import Any

import click
import msgspec

from fidelio.app.application import Application
from fidelio.errors import FidelioError, RequestClosed
from fidelio.inbox import APPROVAL, AnsweredRequest, Inbox
from fidelio.ledger.model import Request
from fidelio.processes.caller import identify_process
from fidelio.surfaces.cli.context import (
    CliContext,
    describe_channel,
    output_layout,
    quote_name,
    supports_unicode,
    terminal_width,
    uses_color,
)
from fidelio.surfaces.cli.keyboard import BACKSPACE, CONTINUED, DOWN, ENTER, ESCAPE, UP, Keyboard, is_foreground
from fidelio.surfaces.text import Layout, escape_line, measure, pad

_LONGEST_COMMENT = 2_000
# Lines of explanations that a menu may have, and lines beside options and explanations. The menu has to stay smaller than the
# screen: it is erased and drawn again and again, and what has scrolled away cannot be erased.
_MENU_LINES, _OTHER_LINES, _MARGIN = 12, 6, " " * 7
# Requests that allow something: a yes must be chosen, not only confirmed.
_PERMISSIONS = (APPROVAL, "permission")
# Letters for the options of an approval, as in a chat without a menu.
_LETTERS = {"y": "allow", "n": "deny"}


class Answer(msgspec.Struct, frozen=True):
    """What the person has chosen. `option` and `text` are empty if the request stays open."""

    option: str = ""
    text: str = ""

    @property
    def has_answer(self) -> bool:
        return bool(self.option or self.text)


class Menu(msgspec.Struct, frozen=True):
    """The state of a question: the line that is marked, and the text that is typed. `press` is a pure function of the key."""

    options: tuple[str, ...]
    at: int = 0
    text: str = ""
    is_typing: bool = False

    def press(self, key: str) -> Menu | Answer:
        """The state after a key, or the answer. Escape leaves the question open."""
        return self._type(key) if self.is_typing else self._choose(key)

    def _choose(self, key: str) -> Menu | Answer:
        count = len(self.options) + 1
        if key in (UP, DOWN):
            return msgspec.structs.replace(self, at=(self.at + (1 if key == DOWN else -1)) % count)
        if key == "t":
            return msgspec.structs.replace(self, is_typing=True)
        if key.isascii() and key.isdigit() and 1 <= int(key) <= len(self.options):
            return Answer(self.options[int(key) - 1], self.text.strip())
        if (option := _LETTERS.get(key)) in self.options:
            return Answer(option, self.text.strip())
        if key == ENTER and self.at < len(self.options):
            return Answer(self.options[self.at], self.text.strip())
        return Answer() if key in (ENTER, ESCAPE, "s") else self

    def _type(self, key: str) -> Menu | Answer:
        if key == ESCAPE:
            return msgspec.structs.replace(self, text="", is_typing=False) if self.options else Answer()
        if key == ENTER:
            return msgspec.structs.replace(self, is_typing=False) if self.options else Answer(text=self.text.strip())
        if key == BACKSPACE:
            return msgspec.structs.replace(self, text=self.text[:-1])
        is_sign = len(key) == 1 and key.isprintable() and len(self.text) < _LONGEST_COMMENT
        return msgspec.structs.replace(self, text=self.text + key) if is_sign else self


def open_menu(request: Request) -> Menu:
    """The menu of a request. Enter alone never allows a tool: there the mark begins at the line that leaves it open."""
    options = tuple(str(option["id"]) for option in request.options)
    return Menu(options, at=len(options) if request.kind in _PERMISSIONS else 0, is_typing=not options)


def explain_options(request: Request, layout: Layout) -> list[list[str]] | None:
    """The lines below each option of the menu: what does not fit on its own line. None if they would fill the screen."""
    room = layout.width - _id_width(request) - 9
    found = [list(layout.quote_text(_explain(option, room), _MARGIN)) for option in request.options]
    return found if sum(map(len, found)) <= min(_MENU_LINES, _count_rows() - len(found)) else None


def _count_rows() -> int:
    """The lines of the screen for options and their explanations."""
    return max(3, shutil.get_terminal_size().lines - _OTHER_LINES)


def _explain(option: Mapping[str, Any], room: int) -> str:
    label, description = str(option.get("label") or ""), str(option.get("description") or "")
    return "\n".join(filter(None, (label if measure(escape_line(label)) > room else "", description)))


def _id_width(request: Request) -> int:
    return max((measure(quote_name(option["id"])) for option in request.options), default=0)


def format_menu(menu: Menu, request: Request, layout: Layout, *, unicode: bool) -> Iterator[str]:
    """The lines of a menu, none wider than the terminal, so that they can be erased and drawn again."""
    if menu.is_typing:
        shown, room = escape_line(menu.text), max(1, layout.width - 16)
        while measure(shown) > room:
            shown = shown[1:]
        yield f"  {'Comment' if menu.options else 'Answer'}: {shown}_"
        keys = "Enter takes it, Esc goes back." if menu.options else "Enter sends it. Empty, or Esc: later."
        yield "  " + layout.shorten(keys, layout.width - 2)
        return
    mark, width = ("▸" if unicode else ">"), _id_width(request)
    explained, rows = explain_options(request, layout) or [[]] * len(request.options), _count_rows()
    count = len(request.options)
    first = max(0, min(menu.at - rows // 2, count - rows))
    if first:
        yield f"    ({first} above)"
    for at, (option, lines) in list(enumerate(zip(request.options, explained, strict=True)))[first : first + rows]:
        line = f"  {mark if at == menu.at else ' '} {at + 1 if at < 9 else ' '}  {pad(quote_name(option['id']), width)}  "
        yield line + layout.shorten(option.get("label", ""), max(1, layout.width - measure(line)))
        yield from lines
    if count > first + rows:
        yield f"    ({count - first - rows} below)"
    yield f"  {mark if menu.at == len(menu.options) else ' '} s  answer later"
    if menu.text:
        yield "  " + layout.shorten(f"Comment: {menu.text}", layout.width - 2)
    letters = " y allows, n denies." if {*_LETTERS.values()} <= {*menu.options} else ""
    yield "  " + layout.shorten(f"Arrow keys and Enter, or a number.{letters} t adds a comment.", layout.width - 2)


def can_prompt() -> bool:
    """Whether a person sits at this terminal. An agent never answers for a person, not even through a terminal of its own."""
    return sys.stdin.isatty() and can_draw() and not identify_process().is_agent


def can_draw() -> bool:
    """Whether the terminal belongs to this command: a job in the background must not draw over what a person types."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and is_foreground(sys.stdout.fileno())


async def submit_answer(application: Application, request: str, answer: Answer, *, by: str) -> AnsweredRequest:
    """Answer a request from this terminal, and wake a session that sleeps until then."""
    inbox = await application.inbox()
    answered = await inbox.answer(request, answer.option, text=answer.text, by=by, channel="cli")
    if answered.request.detail.get("job"):
        # The session sleeps; without a worker it would go on with the next one that somebody starts.
        await application.start_runtime_worker()
    return answered


# Submits the answer to a request; raises `RequestClosed` if somebody was faster.
Submit = Callable[[Request, Answer], Awaitable[None]]


class Prompter:
    """Asks requests at the terminal, in order. Lines of the command are printed above the open menu.

    `submit` is for commands whose requests are answered in another way than by the inbox. `detach` says of a key whether it
    ends the command, and leaves the question open.
    """

    def __init__(
        self,
        cli: CliContext,
        application: Application,
        keyboard: Keyboard,
        person: str,
        *,
        submit: Submit | None = None,
        detach: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._cli, self._application, self._keyboard, self._person = cli, application, keyboard, person
        self._submit_answer, self._detach = submit or self._answer_in_inbox, detach
        self._unicode, self._colored = supports_unicode(), uses_color()
        self._shown: tuple[Menu, Request] | None = None
        self._drawn: list[str] = []

    def print(self, line: str = "", indent: str = "") -> None:
        """Print a line above the menu."""
        shown = self._shown
        self._erase()
        for part in output_layout().wrap_line(line, indent):
            click.echo(part)
        if shown:
            self._draw(*shown)

    async def ask(self, request: Request, show: Callable[[], None]) -> bool:
        """Ask a request; `show` prints it. Returns whether it was answered, here or elsewhere."""
        inbox = await self._application.inbox()
        show()
        self._keyboard.discard()
        closed = asyncio.create_task(inbox.wait_until_closed(request.id))
        try:
            return await self._ask(inbox, request, closed)
        finally:
            self._erase()
            closed.cancel()
            await asyncio.wait({closed})

    async def _ask(self, inbox: Inbox, request: Request, closed: asyncio.Task[Request]) -> bool:
        menu: Menu | Answer = open_menu(request)
        while isinstance(menu, Menu):
            self._erase()
            self._draw(menu, request)
            key = await self._wait_for_key(closed)
            if key is None:
                self.print(describe_closed(closed.result()))
                return True
            if not menu.is_typing and self._detach(key):
                return False
            if key == CONTINUED:
                self._shown, self._drawn = None, []
            menu = menu.press(key)
        self._erase()
        if not menu.has_answer:
            self.print(f"It stays open: {self._cli.program} answer {request.id}")
            return False
        return await self._submit(inbox, request, menu)

    async def _wait_for_key(self, closed: asyncio.Task[Request]) -> str | None:
        """The next key; None once the request was closed elsewhere."""
        reading = asyncio.create_task(self._keyboard.read())
        try:
            await asyncio.wait({reading, closed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not reading.done():
                reading.cancel()
        return None if closed.done() else reading.result()

    async def _submit(self, inbox: Inbox, request: Request, answer: Answer) -> bool:
        try:
            await self._submit_answer(request, answer)
        except RequestClosed:
            self.print(describe_closed(await inbox.find(request.id)))
        except FidelioError as error:
            # What the inbox refuses must not end the work that waits for it.
            self.print(f"! {escape_line(self._cli.render(error.text))}")
            return False
        else:
            self.print(f"Answered: {quote_name(answer.option) if answer.option else 'with your text'}.")
        return True

    async def _answer_in_inbox(self, request: Request, answer: Answer) -> None:
        await submit_answer(self._application, request.id, answer, by=self._person)

    def _erase(self) -> None:
        if self._drawn:
            # A terminal that was made narrower since has broken long lines, so that they take more rows.
            width = terminal_width()
            rows = sum(max(1, ceil(measure(line) / width)) for line in self._drawn)
            click.echo(f"\r\x1b[{rows}A\x1b[J", nl=False, color=True)
        self._shown, self._drawn = None, []

    def _draw(self, menu: Menu, request: Request) -> None:
        # The size of a terminal can change while a question is open.
        self._shown, self._drawn = (menu, request), list(format_menu(menu, request, output_layout(), unicode=self._unicode))
        for line in self._drawn:
            is_marked = line.lstrip().startswith(("▸", ">"))
            click.echo(click.style(line, bold=True) if is_marked and self._colored else line)


def describe_closed(request: Request) -> str:
    """Whose answer counts, for the person who was slower."""
    if request.state != "answered":
        return f"It is no longer open: {request.state}."
    option = request.answer.get("option", "")
    how = describe_channel(request.channel or "", request.assurance or "")
    chosen = quote_name(option) if option else "a text"
    return f"Answered elsewhere: {chosen}, {how}by {quote_name(request.answered_by or '')}. That answer counts."
