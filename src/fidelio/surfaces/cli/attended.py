"""The terminal of a long command: shows the requests that come up, reads their answers, and detaches with a key.

Where nobody sits at a terminal, it only prints: the requests wait in the inbox, as they do for every other process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from fidelio.app.application import Application
from fidelio.errors import RequestNotFound, SessionNotFound
from fidelio.inbox import require_person
from fidelio.surfaces.cli.context import CliContext, print_line, wants_json_reply
from fidelio.surfaces.cli.inbox import load_item, print_item
from fidelio.surfaces.cli.keyboard import Keyboard
from fidelio.surfaces.cli.prompting import Prompter, can_prompt

DETACH_KEY = "d"


def print_last_words(line: str) -> None:
    """Print a line on standard error if it is not closed: closing the terminal must not keep agents alive.

    Nothing with --json: a program reads the error there.
    """
    if wants_json_reply():
        return
    with suppress(OSError):
        print_line(line, err=True)


def _ignore() -> None:
    """Nothing is drawn that would have to make room."""


class AttendedTerminal:
    """`async with`: shows the requests that are passed to `ask` during the block. `detached` is set by the key `d`.

    `pause` and `resume` are called around a question, for a command that draws on the screen meanwhile. `can_detach`: whether
    the command looks at `detached`.
    """

    def __init__(
        self,
        cli: CliContext,
        application: Application,
        *,
        attended: bool = True,
        can_detach: bool = True,
        pause: Callable[[], None] = _ignore,
        resume: Callable[[], None] = _ignore,
    ) -> None:
        self._cli, self._application, self._pause, self._resume = cli, application, pause, resume
        self.is_attended, self._can_detach = attended and can_prompt(), can_detach
        self.detached = asyncio.Event()
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._known: set[str] = set()
        self._resources = ExitStack()
        self._task: asyncio.Task[None] | None = None
        self._is_asking = self._is_background = False
        self._prompter: Prompter | None = None

    async def __aenter__(self) -> Self:
        if self.is_attended:
            keyboard = self._resources.enter_context(Keyboard(self._change_ground))
            self._prompter = Prompter(self._cli, self._application, keyboard, require_person(), detach=self._detach)
            self._task = asyncio.create_task(self._serve(keyboard, self._prompter))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop_asking()
        finally:
            self._resources.close()

    async def stop_asking(self) -> None:
        """Close an open menu. Before this, what the command says at its end would be erased together with the menu."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def _detach(self, key: str) -> bool:
        """Whether this key detaches, and with it leaves a question that is open."""
        if self._can_detach and key == DETACH_KEY:
            self.detached.set()
        return self.detached.is_set()

    def ask(self, request: str) -> None:
        """Show this request as soon as no other is shown; each is shown once."""
        if self.is_attended and request not in self._known:
            self._known.add(request)
            self._waiting.put_nowait(request)

    def print(self, line: str, indent: str = "", *, err: bool = False) -> None:
        """Print a line, above a menu that is open."""
        if self._prompter is not None:
            self._prompter.print(line, indent)
        elif not wants_json_reply():
            print_line(line, indent, err=err)

    async def _serve(self, keyboard: Keyboard, prompter: Prompter) -> None:
        while True:
            pressing, waiting = asyncio.create_task(keyboard.read()), asyncio.create_task(self._waiting.get())
            try:
                await asyncio.wait({pressing, waiting}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (pressing, waiting):
                    task.cancel()
            if pressing.done() and not pressing.cancelled():
                self._detach(pressing.result())
            if waiting.done() and not waiting.cancelled():
                await self._ask(prompter, waiting.result())

    def _change_ground(self, is_background: bool) -> None:
        """Draw nothing while this command is in the background."""
        self._is_background = is_background
        if not self._is_asking:
            (self._pause if is_background else self._resume)()

    async def _ask(self, prompter: Prompter, request: str) -> None:
        try:
            item = await load_item(self._application, request)
        except (RequestNotFound, SessionNotFound):
            return
        if item.request.state != "open" or item.mismatch:
            return
        self._pause()
        self._is_asking = True
        try:
            await prompter.ask(item.request, lambda: print_item(item, self._cli.program, with_menu=True))
        finally:
            self._is_asking = False
            # Not where the command ends: a drawing that begins again would go over its last words.
            if self._task is not None and not self.detached.is_set() and not self._is_background:
                self._resume()
