"""A terminal for tests: a command runs in a pseudo-terminal, and what it prints is drawn as a picture with pyte."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pyte

SECONDS = 50.0
UP, DOWN, ENTER, ESCAPE, BACKSPACE = "\x1b[A", "\x1b[B", "\r", "\x1b", "\x7f"
# Makes the pseudo-terminal the controlling terminal of the command, as a shell does.
_START = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


class DrawnTerminal:
    """The screen of a command, and its keyboard."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.screen = pyte.HistoryScreen(columns, rows, history=5_000, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        self._changed = asyncio.Event()
        self.is_closed = False
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process: subprocess.Popen[bytes] | None = None
        self.raw = b""

    @property
    def lines(self) -> list[str]:
        """The lines of the screen, as a person sees them."""
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()

    @property
    def history(self) -> list[str]:
        """All lines, with those that have scrolled away."""
        above = ["".join(row[at].data for at in range(self.columns)).rstrip() for row in self.screen.history.top]
        return [*above, *self.lines]

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    async def until(self, condition: str | Callable[[], bool]) -> None:
        """Wait until the screen shows a text, or until a condition is true."""
        test = condition if callable(condition) else lambda: condition in self.text
        try:
            async with asyncio.timeout(SECONDS):
                while not test():
                    assert not self.is_closed, self.text
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{condition!r} was not seen:\n{self.text}") from None

    async def wait(self) -> int:
        """Wait for the end of the command, and return its exit code."""
        async with asyncio.timeout(SECONDS):
            while not self.is_closed:
                self._changed.clear()
                await self._changed.wait()
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, SECONDS)

    def resize(self, columns: int) -> None:
        """Change the width as a window does: lines that no longer fit are broken, and the command gets a signal."""
        drawn = self.history[: len(self.screen.history.top) + self.screen.cursor.y]
        self.columns, rows = columns, self.screen.lines
        self.screen = pyte.HistoryScreen(columns, rows, history=5_000, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        self._stream.feed("".join(f"{line}\r\n" for line in drawn).encode())
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.press("\x03")

    async def hang_up(self) -> int:
        """Close the terminal, as its window does, and return the exit code of the command."""
        asyncio.get_running_loop().remove_reader(self.master)
        os.close(self.master)
        self.is_closed, self.master = True, -1
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, SECONDS)

    def feed(self) -> None:
        try:
            chunk = os.read(self.master, 65_536)
        except OSError:
            # Linux reports the end of the last process at a pseudo-terminal as an error.
            chunk = b""
        if not chunk:
            self.is_closed = True
            asyncio.get_running_loop().remove_reader(self.master)
        self.raw += chunk
        self._stream.feed(chunk)
        self._changed.set()


@asynccontextmanager
async def run_in_terminal(
    *arguments: str,
    environ: Mapping[str, str],
    directory: Path,
    columns: int = 80,
    rows: int = 40,
    variables: Mapping[str, str] | None = None,
    program: Sequence[str] = ("-m", "fidelio"),
) -> AsyncIterator[DrawnTerminal]:
    """Run `fidelio` with these arguments at a terminal of this size. `variables` go over those of the terminal.

    `program`: what the interpreter runs instead.
    """
    terminal = DrawnTerminal(columns, rows)
    env = {name: value for name, value in environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    command = [sys.executable, "-c", _START, *program, *arguments]
    terminal.process = subprocess.Popen(  # noqa: ASYNC220  # starting a process takes no time worth a thread
        command,
        stdin=terminal.slave,
        stdout=terminal.slave,
        stderr=terminal.slave,
        cwd=directory,
        env={**env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "TZ": "Europe/Paris", **(variables or {})},
    )
    os.close(terminal.slave)
    asyncio.get_running_loop().add_reader(terminal.master, terminal.feed)
    try:
        yield terminal
    finally:
        if terminal.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(terminal.process.pid, signal.SIGKILL)
            terminal.process.kill()
        terminal.process.wait(SECONDS)
        if terminal.master >= 0:
            asyncio.get_running_loop().remove_reader(terminal.master)
            os.close(terminal.master)
