"""Spool files between an agent process and its watcher, and the shell lines that fill them.

The shell stays as the parent of the agent, in a session of its own. It outlives us, so the way the agent ended is known even
when nobody was there to see it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from fidelio.errors import ExecutorFailure

# `read` fails when whoever started us is gone before it has written down who we are: then nothing is done at all. It takes no
# more than its line, so what comes after that in a pipe is for the agent.
_HELD = "read -r go || exit 0\n"
GO = b"go\n"
_SPOOL = "spool=$1\nshift\n"
# A signal that asks the agent to end must not end the shell, which has yet to say how the agent ended. A trap that does
# something is not passed on to the agent; an ignored signal would be.
_TRAP = "trap : HUP INT QUIT TERM\n"
_RECORD = 'code=$?\necho "$code" >"$spool.status.new" && mv "$spool.status.new" "$spool.status"\n'
# Both ends of the queue are open before anybody uses them, and nobody has an end that is not theirs: otherwise the agent would
# see the end of its input too early or never. The keeper has the one for writing, so that the end is not reached when the
# watcher goes; a line in `hold` ends it. It also writes what comes first, because a watcher that went before it had would leave
# an agent without a task. It starts before the trap is set, which it would have for a moment too.
_ENDS = 'exec 5<>"$spool.stdin" 4<"$spool.stdin" 6>"$spool.stdin" 5>&-\n'
_KEEPER = '(cat "$spool.first" && rm "$spool.first" && read -r done <"$spool.hold") >&6 6>&- 4<&- & keeper=$!\nexec 6>&-\n'
FROM_FILE = f'{_HELD}{_SPOOL}{_TRAP}"$@" <"$spool.stdin"\n{_RECORD}'
FROM_QUEUE = f'{_HELD}{_SPOOL}{_ENDS}{_KEEPER}{_TRAP}"$@" <&4 4<&-\n{_RECORD}kill "$keeper" 2>/dev/null\n'
FROM_PIPE = f'{_HELD}{_SPOOL}{_TRAP}"$@"\n{_RECORD}'

TAIL_BYTES = 2_000


class ProcessExit(msgspec.Struct, frozen=True):
    """How a process ended. `code` is None when nothing was recorded: it was killed together with the shell around it."""

    code: int | None

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def reason(self) -> str:
        """A stable word: `exit.1`, `signal.SIGKILL`, or `vanished`."""
        if self.code is None:
            return "vanished"
        name = _signal_name(self.code)
        return f"signal.{name}" if name else f"exit.{self.code}"


@dataclass(frozen=True, slots=True)
class Spool:
    """The files of one process. `prefix` is the path that they have in common."""

    prefix: Path

    @property
    def stdin(self) -> Path:
        return self._file("stdin")

    @property
    def first(self) -> Path:
        """What comes first in the queue; gone when it is there."""
        return self._file("first")

    @property
    def hold(self) -> Path:
        return self._file("hold")

    @property
    def stdout(self) -> Path:
        return self._file("stdout")

    @property
    def stderr(self) -> Path:
        return self._file("stderr")

    def prepare(self, stdin: bytes, *, queue: bool) -> None:
        """Makes the input: a file with all of it, or a queue that takes more."""
        if queue:
            os.mkfifo(self.stdin, 0o600)
            os.mkfifo(self.hold, 0o600)
            self.first.write_bytes(stdin)
        else:
            self.stdin.write_bytes(stdin)

    def create(self, file: Path) -> BinaryIO:
        """A file that is not there yet: what a run has started once is never started again.

        A prompt is nobody else's business, so the directory is closed to others.
        """
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600), "wb")
        except FileExistsError as error:
            raise ExecutorFailure(f"{file.name} was started before in this run.", reason="already-started") from error

    def exit(self) -> ProcessExit:
        try:
            return ProcessExit(int(self._file("status").read_text("ascii")))
        except (OSError, ValueError):
            return ProcessExit(None)

    def is_recorded(self) -> bool:
        return self._file("status").exists()

    def stderr_tail(self) -> str:
        """The end of what the agent complained about, for a sentence that says why it failed."""
        try:
            with self.stderr.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                return file.read(TAIL_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def _file(self, name: str) -> Path:
        return self.prefix.with_name(f"{self.prefix.name}.{name}")


def build_failure(spool: Spool, exit_: ProcessExit, partial: str) -> ExecutorFailure:
    """The error for an agent that ended without its result."""
    how = "was killed" if exit_.code is None else f"ended with {exit_.reason.replace('.', ' ')}"
    said = spool.stderr_tail()
    complaint = f" It said: {said}" if said else " It said nothing about why."
    return ExecutorFailure(f"The agent {how}.{complaint}", reason=exit_.reason, partial=partial)


def _signal_name(code: int) -> str:
    """A shell reports the death by a signal as 128 and its number."""
    try:
        return signal.Signals(code - 128).name if code > 128 else ""
    except ValueError:
        return ""


_CHUNK = 1 << 18
_MIN_PAUSE, _MAX_PAUSE = 0.005, 0.1


async def read_chunks(file: BinaryIO, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    """What is in the file and what comes after, until nothing more can come. Empty where there was nothing for a while."""
    pause = _MIN_PAUSE
    while True:
        # Asked before reading: what was written before the end is then read after it.
        over = is_over()
        chunk = file.read(_CHUNK)
        yield chunk
        if chunk:
            pause = _MIN_PAUSE
            await asyncio.sleep(0)
        elif over:
            return
        else:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _MAX_PAUSE)


class LineSplitter:
    """Cuts chunks into lines. How long one may be is not decided here: whoever feeds counts what it feeds."""

    def __init__(self) -> None:
        self._line = bytearray()

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that the chunk completes."""
        first, *others = chunk.split(b"\n")
        self._line += first
        finished = []
        for part in others:
            finished.append(self._take())
            self._line += part
        return finished

    def flush(self) -> list[str]:
        """The last line, when it does not end in a newline."""
        return [self._take()] if self._line else []

    def _take(self) -> str:
        line = self._line.decode("utf-8", "replace").removesuffix("\r")
        self._line.clear()
        return line
