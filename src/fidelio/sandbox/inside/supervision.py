"""Supervision: how pid 1 uses supervisors, and what it does about orphans."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from fidelio.sandbox.inside.loop import READ, EventLoop, Timer, read_available
from fidelio.sandbox.inside.supervisor import Ending, Start, find_descendants, kill_all, read_parents, send_start, serve

_MAX_IDLE = 2
# A supervisor ends its command by itself. Only if the command has stopped it, pid 1 has to.
_GRACE_SECONDS = 4.0
_SWEEP_SECONDS = 0.02
_SWEEP_LIMIT = 3.0


class Supervisors:
    """The supervisors of a sandbox. Idle ones are used again."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop, self._sweeper = loop, Sweeper(loop)
        self._idle: list[SupervisorProcess] = []

    def start(self, start: Start, on_end: Callable[[Ending], None]) -> Supervised:
        """Start a program. `on_end` is called once, when nothing of it runs any more. Raises OSError."""
        supervised = Supervised(self._loop, on_end)
        while self._idle:
            supervisor = self._idle.pop()
            with suppress(OSError):
                supervisor.start(start, supervised)
                return supervised
            supervisor.close()
        SupervisorProcess(self._loop, self._release, self._lose).start(start, supervised)
        return supervised

    def _release(self, supervisor: SupervisorProcess) -> None:
        if len(self._idle) < _MAX_IDLE:
            self._idle.append(supervisor)
        else:
            supervisor.close()

    def _lose(self, supervisor: SupervisorProcess) -> None:
        """What a supervisor leaves behind are orphans."""
        if supervisor in self._idle:
            self._idle.remove(supervisor)
        self._sweeper.sweep()


class Supervised:
    """A program below a supervisor."""

    def __init__(self, loop: EventLoop, on_end: Callable[[Ending], None]) -> None:
        self._loop, self._on_end = loop, on_end
        # The process id of the program; None before it is known.
        self.pid: int | None = None
        self._supervisor: SupervisorProcess | None = None
        self._timer: Timer | None = None
        self._on_start: list[Callable[[], None]] = []

    def attach(self, supervisor: SupervisorProcess, timeout: float | None) -> None:
        self._supervisor = supervisor
        if timeout is not None:
            self._timer = self._loop.call_later(timeout + _GRACE_SECONDS, supervisor.kill)

    def when_started(self, callback: Callable[[], None]) -> None:
        """Call back when the process id is known. The program may be faster than its supervisor."""
        if self.pid is None:
            self._on_start.append(callback)
        else:
            callback()

    def end(self) -> None:
        """Ask the supervisor to end the program and everything that it has started."""
        if self._supervisor is not None:
            self._cancel_timer()
            self._timer = self._loop.call_later(_GRACE_SECONDS, self._supervisor.kill)
            self._supervisor.ask_to_end()

    def set_pid(self, pid: int) -> None:
        self.pid = pid
        waiting, self._on_start = self._on_start, []
        for callback in waiting:
            callback()

    def finish(self, ending: Ending) -> None:
        self._supervisor = None
        self._cancel_timer()
        self._on_end(ending)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class SupervisorProcess:
    """A supervisor process and the program that it runs, if any."""

    def __init__(
        self, loop: EventLoop, on_idle: Callable[[SupervisorProcess], None], on_lost: Callable[[SupervisorProcess], None]
    ) -> None:
        self._loop, self._on_idle, self._on_lost = loop, on_idle, on_lost
        self._current: Supervised | None = None
        self._is_closed = False
        self._connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._pid = loop.fork(lambda: serve(other), self._exit)
        except OSError:
            self._connection.close()
            raise
        finally:
            other.close()
        self._connection.setblocking(False)
        loop.watch(self._connection.fileno(), READ, self._receive)

    def start(self, start: Start, supervised: Supervised) -> None:
        # A command may have stopped it while it was idle.
        self._loop.kill(self._pid, signal.SIGCONT)
        send_start(self._connection, start)
        self._current = supervised
        supervised.attach(self, start.timeout)

    def ask_to_end(self) -> None:
        self._loop.kill(self._pid, signal.SIGTERM)

    def kill(self) -> None:
        self._loop.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Let the process end, if it is idle. It ends with its connection."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.unwatch(self._connection.fileno())
            self._connection.close()

    def _receive(self) -> None:
        while not self._is_closed:
            message = read_available(self._connection.fileno())
            if message == b"":
                # The process has ended; its parent is told how.
                self._loop.unwatch(self._connection.fileno())
            if not message:
                return
            self._handle(json.loads(message))

    def _handle(self, entry: dict[str, int]) -> None:
        supervised = self._current
        if supervised is None:
            return
        if "pid" in entry:
            supervised.set_pid(entry["pid"])
            return
        self._current = None
        # First: what is called back may start the next program.
        self._on_idle(self)
        supervised.finish(Ending(**entry))  # type: ignore[arg-type]  # `timed_out` is a bool

    def _exit(self, _status: int) -> None:
        self._receive()
        supervised, self._current = self._current, None
        self._on_lost(self)
        self.close()
        if supervised is not None:
            supervised.finish(Ending())


class Sweeper:
    """Ends processes that have become children of pid 1 because their supervisor was killed."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._since: float | None = None
        loop.on_orphan = self.sweep

    def sweep(self) -> None:
        if self._since is None:
            self._since = time.monotonic()
            self._sweep_once()

    def _sweep_once(self) -> None:
        """Sweep for a bounded time; the next round comes after other work."""
        if self._since is None or not kill_all(self._find):
            self._since = None
            return
        if os.getpid() == 1 and time.monotonic() - self._since > _SWEEP_LIMIT:
            # Nothing but pid 1 survives this, the shell included: a command that cannot be ended otherwise ends all.
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        self._loop.call_later(_SWEEP_SECONDS, self._sweep_once)

    def _find(self) -> set[int]:
        known, own = self._loop.children, os.getpid()
        strays = {pid for pid, parent in read_parents() if parent == own and pid not in known}
        return strays | find_descendants(strays) if strays else strays
