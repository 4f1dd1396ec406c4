"""A pool of warm child processes for checks that have to be interruptible.

A thread that matches a regular expression cannot be interrupted and holds up all others. A process can be killed, and starting
one costs a sixth of a second, so each child answers many questions. The parent kills a child whose check has used up its time;
the next question starts another one.
"""

from __future__ import annotations

import atexit
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import BinaryIO, TypeVar

from fidelio.processes.table import AGENT_MARKER, remove_mark
from fidelio.validation import child
from fidelio.validation.child import SECONDS

# Only for a machine that is overloaded: a check is given up when it has computed for much less.
WAIT_SECONDS = 20.0
# How often a child is looked at that computes more slowly than the clock runs.
_POLL_SECONDS = 0.05
_CHUNK = 1 << 16
_PROGRAM = (sys.executable, "-P", child.__file__)

Ask = Callable[[bytes], bytes]
T = TypeVar("T")


class CheckUndecided(Exception):
    """There is no answer. It is a sentence that says why."""


class LimitExceeded(CheckUndecided):
    """There never will be one: the check takes too long or too much, or cannot even be asked for."""


class ChildPool:
    """At most `size` children. Each belongs to a thread, and questions are answered in the order in which they come."""

    def __init__(self, size: int) -> None:
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="validation")
        self._own = threading.local()
        self._children: set[_Child] = set()
        atexit.register(self.close)

    def submit(self, use: Callable[[Ask], T]) -> Future[T]:
        """Call `use` in a thread that has a child, with a function that asks the child one question."""
        return self._threads.submit(use, self._ask)

    def pids(self) -> set[int]:
        """The children that are alive."""
        return {one.pid for one in self._children if one.is_running()}

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        for one in self._children:
            one.end()
        self._children.clear()
        atexit.unregister(self.close)

    def _ask(self, question: bytes) -> bytes:
        one = self._child()
        was_used = one.was_used
        try:
            return one.ask(question)
        except _ChildEnded:
            # What it had kept of earlier questions may have been too much, or it had been idle for long.
            if not was_used:
                raise
            return self._child().ask(question)

    def _child(self) -> _Child:
        """The child of this thread; a new one where there is none, or none any more."""
        one: _Child | None = getattr(self._own, "child", None)
        if one is None or not one.is_running():
            if one is not None:
                self._children.discard(one)
                one.end()
            self._own.child = one = _Child()
            self._children.add(one)
        return one


class _ChildEnded(LimitExceeded):
    """The child has ended by itself in the middle of a question."""


class _Child:
    """One process that answers one question after the other."""

    def __init__(self) -> None:
        self._stderr: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the process
        self._answer = bytearray()
        self.was_used = False
        try:
            self._process = subprocess.Popen(  # noqa: S603  # a program of our own
                _PROGRAM,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                # Below an agent we carry its marks. The child is none of the agent's processes.
                env={name: value for name, value in os.environ.items() if name != AGENT_MARKER},
                # Ctrl-C is meant for us, and we end our children.
                start_new_session=True,
            )
        except OSError as problem:
            self._stderr.close()
            raise CheckUndecided(f"It could not be checked: {problem!s:.200}.") from problem
        remove_mark(self.pid)
        self._cpu = _CpuClock(self.pid)
        self._poll = select.poll()
        self._poll.register(self._stdout, select.POLLIN)
        try:
            # What it imports counts against no question; only an overloaded machine takes too long for that.
            self._read(seconds=math.inf)
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def _stdout(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def is_running(self) -> bool:
        return self._process.poll() is None

    def ask(self, question: bytes) -> bytes:
        """The answer. Raises `LimitExceeded` when the check has used up its time, `CheckUndecided` when the machine is too
        slow.
        """
        assert self._process.stdin is not None
        self.was_used = True
        try:
            self._process.stdin.write(question + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        return self._read(seconds=SECONDS)

    def end(self) -> None:
        if self._stderr.closed:
            return
        self._process.kill()
        # A question that nobody reads any more may still be in the buffer.
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._stderr.close()

    def _read(self, *, seconds: float) -> bytes:
        """One line, before the child has computed for `seconds` more."""
        began, deadline = self._cpu.seconds(), time.monotonic() + WAIT_SECONDS
        while b"\n" not in self._answer:
            left, patience = seconds - (self._cpu.seconds() - began), deadline - time.monotonic()
            if left <= 0:
                self.end()
                raise LimitExceeded(f"It takes more than {SECONDS} seconds to check.")
            if patience <= 0:
                self.end()
                raise CheckUndecided(f"It could not be checked: no answer after {WAIT_SECONDS:g} seconds.")
            if self._poll.poll(max(_POLL_SECONDS, min(left, patience)) * 1000):
                self._receive()
        answer, _, _ = self._answer.partition(b"\n")
        self._answer.clear()
        return bytes(answer)

    def _receive(self) -> None:
        chunk = os.read(self._stdout, _CHUNK)
        if not chunk:
            raise self._ended()
        self._answer += chunk

    def _ended(self) -> CheckUndecided:
        code = self._process.wait()
        self._stderr.seek(0)
        last = self._stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
        if code == -signal.SIGXCPU:
            return LimitExceeded(f"It takes more than {SECONDS} seconds to check.")
        return _ChildEnded(f"It could not be checked: {last or f'its process ended with {code}'!s:.200}.")


class _CpuClock:
    """How long a process has computed; where the system does not tell, how long it has existed."""

    def __init__(self, pid: int) -> None:
        # What clock_getcpuclockid(3) returns on Linux.
        self._clock = (~pid << 3) | 2 if sys.platform == "linux" else time.CLOCK_MONOTONIC

    def seconds(self) -> float:
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            # It has ended, which whoever reads its answer will find out.
            return 0.0
