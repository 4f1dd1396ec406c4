"""Event loop of pid 1: descriptors, timers and child processes in a single thread.

pid 1 must never block: a command that floods its output, does not read its input, or is stopped, may delay nothing else. So
every descriptor is non-blocking, one turn of the loop reads at most one piece from each, and writes are queued.
"""

from __future__ import annotations

import array
import errno
import fcntl
import heapq
import itertools
import os
import select
import signal
import termios
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
# A larger buffer would be mapped and unmapped for each read.
_PIECE = 64 << 10
_MAX_EVENTS = 64


class Timer:
    """A call that is due later, unless it is cancelled."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback
        self.has_run = False

    def cancel(self) -> None:
        self._callback = None

    def run(self) -> None:
        if self._callback is not None:
            self.has_run = True
            self._callback()


class EventLoop:
    """Waits for descriptors, timers and the end of children, and calls back."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._children: dict[int, Callable[[int], None]] = {}
        # Called when a child ends that was never started here: an orphan of a command.
        self.on_orphan: Callable[[], None] = _do_nothing
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self.watch(self._wake_read, READ, self._reap)
        self._is_stopped = False

    @property
    def children(self) -> frozenset[int]:
        return frozenset(self._children)

    def watch(self, descriptor: int, events: int, callback: Callable[[], None]) -> None:
        if descriptor in self._callbacks:
            self._poll.modify(descriptor, events)
        else:
            self._poll.register(descriptor, events)
        self._callbacks[descriptor] = callback

    def unwatch(self, descriptor: int) -> None:
        if self._callbacks.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), timer))
        return timer

    def fork(self, run: Callable[[], None], on_exit: Callable[[int], None]) -> int:
        """Run a function in a child process, which ends after it. `on_exit` gets the wait status. Raises OSError."""
        # Until the child has its own, a signal must not reach the handlers of this process.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGTERM))
        try:
            pid = os.fork()
            if pid == 0:
                _run_child(run)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._children[pid] = on_exit
        return pid

    def kill(self, pid: int, number: int) -> None:
        """Signal a child. If it has ended it is not reaped yet, so no other process can have its id."""
        if pid in self._children:
            os.kill(pid, number)

    def run(self) -> None:
        """Run until `stop`."""
        signal.signal(signal.SIGCHLD, _ignore_signal)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        while not self._is_stopped:
            self._turn()

    def stop(self) -> None:
        self._is_stopped = True

    def _turn(self) -> None:
        for descriptor, _ in self._poll.poll(self._seconds_to_wait(), _MAX_EVENTS):
            callback = self._callbacks.get(descriptor)
            # An earlier callback of this turn may have closed it.
            if callback is not None:
                callback()
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2].run()

    def _seconds_to_wait(self) -> float:
        if not self._timers:
            return -1
        # epoll counts in milliseconds; a turn that comes too early would only wait again.
        return max(0.0, self._timers[0][0] - time.monotonic()) + 0.0005

    def _reap(self) -> None:
        read_available(self._wake_read)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            on_exit = self._children.pop(pid, None)
            if on_exit is None:
                self.on_orphan()
            else:
                on_exit(status)


class Reader:
    """Reads a pipe piece by piece. Closed at its end, or by `close`."""

    def __init__(self, loop: EventLoop, descriptor: int, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._loop, self._descriptor, self._on_data, self._on_end = loop, descriptor, on_data, on_end
        self.is_open = True
        os.set_blocking(descriptor, False)
        loop.watch(descriptor, READ, self.read)

    def read(self) -> None:
        """Read a piece, if there is any."""
        data = read_available(self._descriptor)
        if data:
            self._on_data(data)
        elif data is not None:
            self.close()
            self._on_end()

    def drain(self) -> None:
        """Read what is in the pipe at this moment, not what comes meanwhile."""
        if not self.is_open:
            return
        remaining = count_readable(self._descriptor)
        while remaining > 0:
            data = read_available(self._descriptor, min(remaining, _PIECE))
            if not data:
                return
            remaining -= len(data)
            self._on_data(data)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._loop.unwatch(self._descriptor)
            os.close(self._descriptor)


class QueuedWriter:
    """Writes to a pipe or a socket without ever blocking: what does not fit is queued. Owns its descriptor."""

    def __init__(
        self, loop: EventLoop, descriptor: int, on_error: Callable[[], None], on_empty: Callable[[], None] | None = None
    ) -> None:
        self._loop, self.descriptor, self._on_error, self._on_empty = loop, descriptor, on_error, on_empty
        self._queue = bytearray()
        self._is_closing = False
        self.is_open = True
        os.set_blocking(descriptor, False)

    @property
    def pending(self) -> int:
        """Bytes that are queued."""
        return len(self._queue)

    def write(self, data: bytes) -> None:
        if not self.is_open or self._is_closing:
            return
        sent = 0 if self._queue else self._try(data)
        if sent < len(data) and self.is_open:
            self._queue += data[sent:]
            self._loop.watch(self.descriptor, WRITE, self._flush)

    def close(self) -> None:
        """Close now. What is queued is lost."""
        if self.is_open:
            self.is_open = False
            self._loop.unwatch(self.descriptor)
            os.close(self.descriptor)

    def close_when_empty(self) -> None:
        self._is_closing = True
        if not self._queue:
            self.close()

    def discard(self) -> None:
        """Forget what is queued."""
        self._queue.clear()
        self._loop.unwatch(self.descriptor)

    def _flush(self) -> None:
        del self._queue[: self._try(bytes(self._queue[: 16 * _PIECE]))]
        if self._queue or not self.is_open:
            return
        self._loop.unwatch(self.descriptor)
        if self._is_closing:
            self.close()
        if self._on_empty is not None:
            self._on_empty()

    def _try(self, data: bytes) -> int:
        try:
            return os.write(self.descriptor, data)
        except BlockingIOError:
            return 0
        except OSError:
            self.close()
            self._on_error()
            return 0


def close_readers(readers: Sequence[Reader]) -> None:
    """Read what is left and close. A process elsewhere may hold the other end for ever."""
    for reader in readers:
        reader.drain()
        reader.close()


def read_available(descriptor: int, size: int = _PIECE) -> bytes | None:
    """Read a piece; None if there is nothing now, empty at the end."""
    try:
        return os.read(descriptor, size)
    except BlockingIOError:
        return None
    except OSError as error:
        # A terminal that no process has open any more.
        if error.errno == errno.EIO:
            return b""
        raise


def count_readable(descriptor: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def _run_child(run: Callable[[], None]) -> NoReturn:
    """Everything that happens in a child. Whatever goes wrong in it, it never returns into the loop of its parent."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        run()
        os._exit(0)
    finally:
        os._exit(70)


def _ignore_signal(_number: int, _frame: object) -> None:
    """Python needs a handler to write to the wake-up descriptor."""


def _do_nothing() -> None:
    """Until somebody is interested."""
