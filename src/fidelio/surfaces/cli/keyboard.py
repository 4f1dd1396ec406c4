"""Keys of the terminal, without waiting for a line, also after Ctrl-Z and in the background of a shell.

The terminal is shared with the shell: what this module sets is set back whenever the shell gets the terminal.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

UP, DOWN, ENTER, ESCAPE, BACKSPACE = "up", "down", "enter", "escape", "backspace"
_KEYS = {"\r": ENTER, "\n": ENTER, "\x7f": BACKSPACE, "\b": BACKSPACE, "\x04": ESCAPE}
_ARROWS = {"A": UP, "B": DOWN}
# Not a key: the command is back in the foreground, and what it had drawn is above the lines of the shell.
CONTINUED = "continued"
_CHECK_SECONDS = 0.5


def is_foreground(descriptor: int) -> bool:
    """Whether the terminal belongs to this command, and not to the shell or to another command."""
    with suppress(OSError):
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    return False


class Keyboard:
    """Keys of the terminal, without waiting for a line. Used as a context manager; Ctrl-C stays a signal.

    Ctrl-Z gives the terminal to the shell until `fg`. A command in the background that reads or sets it would be stopped, so it
    looks now and then whether the terminal is its own again. `on_background` is told, so that nothing is drawn meanwhile.
    """

    def __init__(self, on_background: Callable[[bool], None] | None = None) -> None:
        self._keys: asyncio.Queue[str] = asyncio.Queue()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        self._descriptor = -1
        self._before: list[Any] = []
        self._on_background = on_background
        self._is_foreground = True
        self._check: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._descriptor = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._descriptor)
        self._acquire()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        loop.add_signal_handler(signal.SIGCONT, self._continue)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGTSTP)
        loop.remove_signal_handler(signal.SIGCONT)
        if self._check is not None:
            self._check.cancel()
        self._release()

    async def read(self) -> str:
        """The next key: a character, or a name as above."""
        return await self._keys.get()

    def discard(self) -> None:
        """Forget what was typed until now."""
        if is_foreground(self._descriptor):
            with suppress(termios.error):
                termios.tcflush(self._descriptor, termios.TCIFLUSH)
        while not self._keys.empty():
            self._keys.get_nowait()

    def _acquire(self) -> None:
        with suppress(termios.error):
            tty.setcbreak(self._descriptor, termios.TCSANOW)
        asyncio.get_running_loop().add_reader(self._descriptor, self._fill)

    def _release(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        if is_foreground(self._descriptor):
            with suppress(termios.error):
                termios.tcsetattr(self._descriptor, termios.TCSANOW, self._before)

    def _suspend(self) -> None:
        """Stop at Ctrl-Z. Where no shell could continue this process, the system does not stop it."""
        loop = asyncio.get_running_loop()
        self._note_foreground(is_foreground=False)
        self._release()
        loop.remove_signal_handler(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGTSTP)
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._continue()

    def _continue(self) -> None:
        """Read keys if the terminal is that of this command; else look again later."""
        loop = asyncio.get_running_loop()
        if self._check is not None:
            self._check.cancel()
        if is_foreground(self._descriptor):
            self._acquire()
            self._note_foreground(is_foreground=True)
        else:
            self._note_foreground(is_foreground=False)
            loop.remove_reader(self._descriptor)
            self._check = loop.call_later(_CHECK_SECONDS, self._continue)

    def _note_foreground(self, *, is_foreground: bool) -> None:
        if is_foreground is self._is_foreground:
            return
        self._is_foreground = is_foreground
        if is_foreground:
            self._keys.put_nowait(CONTINUED)
        if self._on_background is not None:
            self._on_background(not is_foreground)

    def _fill(self) -> None:
        if not is_foreground(self._descriptor):
            self._continue()
            return
        try:
            chunk = os.read(self._descriptor, 1_024)
        except OSError:
            chunk = b""
        if not chunk:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._keys.put_nowait(ESCAPE)
            return
        for key in split_keys(self._decode.decode(chunk)):
            self._keys.put_nowait(key)


def split_keys(text: str) -> Iterator[str]:
    """Split what the terminal sent into keys. Sequences of other keys, such as F1, are left out."""
    at = 0
    while at < len(text):
        sign = text[at]
        at += 1
        if sign != "\x1b":
            yield _KEYS.get(sign, sign)
        elif text[at : at + 1] in ("[", "O") and text[at : at + 1]:
            end = at + 1
            while end < len(text) and not text[end].isalpha() and text[end] != "~":
                end += 1
            if arrow := _ARROWS.get(text[end : end + 1]):
                yield arrow
            at = end + 1
        else:
            yield ESCAPE
