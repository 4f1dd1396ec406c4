"""Standard input and output of the commands of a persistent shell: pipes, or a terminal for programs that insist.

pid 1 holds the other ends. `settle` is how it learns that it has read everything that a command has written before it ended.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from fidelio.sandbox.inside.failures import Failure
from fidelio.sandbox.inside.loop import EventLoop, QueuedWriter, Reader, Timer, close_readers, read_available
from fidelio.sandbox.inside.records import random_hex
from fidelio.sandbox.inside.shell_protocol import STDERR, STDIN, STDOUT

_SETTLE_SECONDS = 2.0
_END_OF_INPUT = b"\x04"

Sink = Callable[[bytes], None]


class ShellStreams(ABC):
    """Both ends of the streams. `shell_ends` are the ends for the shell, open here too, so that they can be reset."""

    def __init__(self) -> None:
        self.shell_ends: dict[int, int] = {}
        # The path of the terminal that the shell gets, if any.
        self.terminal = ""

    @property
    @abstractmethod
    def pending(self) -> int:
        """Bytes of input that no process has taken yet and that are queued."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Queue input for the running command."""

    @abstractmethod
    def end_input(self) -> None:
        """Let the running command see the end of its input, behind what is queued."""

    @abstractmethod
    def renew_input(self) -> None:
        """Make input possible for the next command. What the last command has not read is discarded."""

    @abstractmethod
    def settle(self, callback: Callable[[], None]) -> None:
        """Call back when everything that commands have output until now has been read."""

    @abstractmethod
    def close(self) -> None:
        """Read what is left, and close."""

    def reset(self) -> None:
        """Undo what a command may have done to streams that the next shares. Some programs make them non-blocking."""
        for descriptor in self.shell_ends.values():
            os.set_blocking(descriptor, True)

    def release(self) -> None:
        for descriptor in self.shell_ends.values():
            os.close(descriptor)
        self.shell_ends.clear()

    def foreground_group(self) -> int | None:
        """The process group that a terminal would interrupt."""
        return None


class Pipes(ShellStreams):
    """Three pipes."""

    def __init__(self, loop: EventLoop, stdout: Sink, stderr: Sink) -> None:
        super().__init__()
        self._loop = loop
        pipes = [os.pipe() for _ in (stdout, stderr)]
        self._readers = [Reader(loop, pipe[0], sink, _do_nothing) for pipe, sink in zip(pipes, (stdout, stderr))]  # noqa: B905  # Python 3.9
        input_end, source = os.pipe()
        self._input = QueuedWriter(loop, source, _do_nothing)
        self.shell_ends = {STDIN: input_end, STDOUT: pipes[0][1], STDERR: pipes[1][1]}

    @property
    def pending(self) -> int:
        return self._input.pending

    def write(self, data: bytes) -> None:
        self._input.write(data)

    def end_input(self) -> None:
        self._input.close_when_empty()

    def renew_input(self) -> None:
        self._input.close()
        # Opened anew: a pipe whose writers have all closed it works again, and the flags of the shell's end stay as they are.
        path = f"/proc/self/fd/{self.shell_ends[STDIN]}"
        unread = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        while read_available(unread):
            pass
        os.close(unread)
        self._input = QueuedWriter(self._loop, os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC), _do_nothing)

    def settle(self, callback: Callable[[], None]) -> None:
        for reader in self._readers:
            reader.drain()
        callback()

    def close(self) -> None:
        self._input.close()
        close_readers(self._readers)
        self.release()


class Terminal(ShellStreams):
    """A pseudo terminal. All output is standard output."""

    def __init__(self, loop: EventLoop, stdout: Sink, size: tuple[int, int]) -> None:
        super().__init__()
        self._loop, self._sink = loop, stdout
        try:
            master, slave = os.openpty()
        except OSError as error:
            raise Failure("terminal_unavailable", f"The sandbox has no terminal: {error.strerror}. Pass pty: false.") from error
        columns, lines = size
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.terminal = os.ttyname(slave)
        self.shell_ends = {STDIN: slave, STDOUT: os.dup(slave), STDERR: os.dup(slave)}
        # Opened anew, because it must not block and those of the shell must.
        self._slave = os.open(self.terminal, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._input = QueuedWriter(loop, os.dup(master), _do_nothing)
        self._reader = Reader(loop, master, self._receive, _do_nothing)
        # While it is set, output is held back until it appears.
        self._marker = b""
        self._held = b""
        self._callback: Callable[[], None] | None = None
        self._timer: Timer | None = None

    @property
    def pending(self) -> int:
        return self._input.pending

    def write(self, data: bytes) -> None:
        self._input.write(data)

    def end_input(self) -> None:
        self._input.write(_END_OF_INPUT)

    def renew_input(self) -> None:
        self._input.discard()
        with suppress(OSError, termios.error):
            termios.tcflush(self._slave, termios.TCIFLUSH)

    def settle(self, callback: Callable[[], None]) -> None:
        """Output comes in order but late. So we write a mark behind it that nobody can know."""
        self._callback, self._marker = callback, random_hex(16).encode()
        self._timer = self._loop.call_later(_SETTLE_SECONDS, self._settled)
        try:
            count = os.write(self._slave, self._marker)
        except OSError:
            count = 0
        if count < len(self._marker):
            # The command has stopped the output of its terminal.
            self._settled()

    def close(self) -> None:
        self._input.close()
        if self._timer is not None:
            self._settled()
        close_readers([self._reader])
        os.close(self._slave)
        self.release()

    def foreground_group(self) -> int | None:
        try:
            return os.tcgetpgrp(self._slave)
        except OSError:
            return None

    def _receive(self, data: bytes) -> None:
        if not self._marker:
            self._sink(data)
            return
        self._held += data
        before, found, after = self._held.partition(self._marker)
        if found:
            self._held = before
            self._settled()
            if after:
                self._sink(after)

    def _settled(self) -> None:
        held, callback, timer = self._held, self._callback, self._timer
        self._marker, self._held, self._callback, self._timer = b"", b"", None, None
        if timer is not None:
            timer.cancel()
        if held:
            self._sink(held)
        if callback is not None:
            callback()


def _do_nothing() -> None:
    """A stream that ends says nothing about the shell; its supervisor does."""
