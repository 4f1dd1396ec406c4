"""A pool of warm child processes for checks that must be interruptible.

A thread that matches a regular expression cannot be interrupted and blocks all other threads. A process can be killed, and
starting a process takes a sixth of a second, so each child answers many questions. The parent kills a child whose check has
used up its time; the next question starts another child.
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

from fidelio.processes.table import AGENT_MARKER, neutralize_mark
from fidelio.validation import child
from fidelio.validation.child import SECONDS

# Reached only on an overloaded machine: the limit on CPU time is much lower.
WAIT_SECONDS = 20.0
# How often the CPU time of a child is read that gets less than a whole core.
_POLL_SECONDS = 0.05
_CHUNK = 1 << 16
_PROGRAM = (sys.executable, "-P", child.__file__)

Ask = Callable[[bytes], bytes]
T = TypeVar("T")


class CheckUndecided(Exception):
    """The check has no result; the message says why."""


class LimitExceeded(CheckUndecided):
    """The check can never have a result: it takes too much time or memory, or its input cannot be encoded."""


class ChildPool:
    """At most `size` children, each owned by a thread. Questions are answered in the order in which they come."""

    def __init__(self, size: int) -> None:
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="validation")
        self._own = threading.local()
        self._children: set[_Child] = set()
        atexit.register(self.close)

    def submit(self, use: Callable[[Ask], T]) -> Future[T]:
        """Call `use` in a thread that has a child, with a function that asks the child a question."""
        return self._threads.submit(use, self._ask)

    def pids(self) -> set[int]:
        """The process ids of the children that are alive."""
        return {worker.pid for worker in self._children if worker.is_running()}

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        for worker in self._children:
            worker.end()
        self._children.clear()
        atexit.unregister(self.close)

    def _ask(self, question: bytes) -> bytes:
        worker = self._child()
        was_used = worker.was_used
        try:
            return worker.ask(question)
        except _ChildEnded:
            # It may have run out of memory because of earlier questions, or have ended because it was idle.
            if not was_used:
                raise
            return self._child().ask(question)

    def _child(self) -> _Child:
        """The child of this thread, started anew where there is none or it has ended."""
        worker: _Child | None = getattr(self._own, "child", None)
        if worker is None or not worker.is_running():
            if worker is not None:
                self._children.discard(worker)
                worker.end()
            self._own.child = worker = _Child()
            self._children.add(worker)
        return worker


class _ChildEnded(LimitExceeded):
    """The child ended by itself during a question."""


class _Child:
    """A child process that answers questions in sequence."""

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
                # Below an agent this process carries the agent's mark. The child must not be taken for a process of the agent.
                env={name: value for name, value in os.environ.items() if name != AGENT_MARKER},
                # Ctrl-C must reach only the parent, which ends its children.
                start_new_session=True,
            )
        except OSError as problem:
            self._stderr.close()
            raise CheckUndecided(f"It could not be checked: {problem!s:.200}.") from problem
        neutralize_mark(self.pid)
        self._cpu = _CpuClock(self.pid)
        self._poll = select.poll()
        self._poll.register(self._stdout, select.POLLIN)
        try:
            # Its imports count against no question; only an overloaded machine takes too long for them.
            self._read(seconds=math.inf)
        except BaseException:
            # Also on an interrupt: no other code knows the child process yet.
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
        """Ask a question. Raises `LimitExceeded` when the check has used up its time, `CheckUndecided` on a slow machine."""
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
        # A question may still be in the buffer of the pipe, which has no reader any more.
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._stderr.close()

    def _read(self, *, seconds: float) -> bytes:
        """Read a line, before the child has used `seconds` more of CPU time."""
        began, deadline = self._cpu.seconds(), time.monotonic() + WAIT_SECONDS
        while b"\n" not in self._answer:
            left, wait = seconds - (self._cpu.seconds() - began), deadline - time.monotonic()
            if left <= 0:
                self.end()
                raise LimitExceeded(f"It takes more than {SECONDS} seconds to check.")
            if wait <= 0:
                self.end()
                raise CheckUndecided(f"It could not be checked: no answer after {WAIT_SECONDS:g} seconds.")
            if self._poll.poll(max(_POLL_SECONDS, min(left, wait)) * 1000):
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
    """The CPU time of a process; the wall time where the system does not provide it."""

    def __init__(self, pid: int) -> None:
        # What clock_getcpuclockid(3) returns on Linux.
        self._clock = (~pid << 3) | 2 if sys.platform == "linux" else time.CLOCK_MONOTONIC

    def seconds(self) -> float:
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            # The process has ended; reading its answer will report that.
            return 0.0
