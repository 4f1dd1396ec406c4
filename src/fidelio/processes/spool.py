"""Spool files between an agent process and its watcher, and the shell scripts that write them.

The shell stays as the parent of the agent, in a process session of its own. It ends with the exit status of the agent, which
the watcher that started it reads from the system. It also outlives the watcher, so the status is recorded even when no watcher
runs. The agent can write into that file, so a status of 0 counts only together with a secret: the shell reads it from its
input, holds it in a variable that no child inherits, and writes it only after the agent has ended with 0. The ledger has its
digest.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from fidelio.errors import ExecutorFailure

# `read` fails when the parent ends before it has recorded the identity of this process: then the agent does not start. `read`
# consumes only its line, so what follows in a pipe is left for the agent. `unset` first: a variable of that name in the
# environment would be exported to the agent with its new value.
_HELD = "unset proof\nread -r proof || exit 0\n"
_SPOOL = "spool=$1\nshift\n"
# A signal that ends the agent must not end the shell, which still has to record the exit status. A trap with a command is not
# inherited by the agent; an ignored signal would be.
_TRAP = "trap : HUP INT QUIT TERM\n"
_RECORD = (
    'code=$?\n[ "$code" -eq 0 ] || proof=\necho "$code $proof" >"$spool.status.new" && mv "$spool.status.new" "$spool.status"\n'
)
_EXIT = 'exit "$code"\n'
# Both ends of the FIFO are open before they are used, and each process has only its own end: otherwise the agent would see end
# of file too early or never. The keeper holds the write end, so that the input does not end with the watcher; a line in `hold`
# ends the keeper. It also writes the first input, because a watcher that ended before writing it would leave an agent without a
# task. It starts before the trap is set, or it would inherit the trap for a moment.
_ENDS = 'exec 5<>"$spool.stdin" 4<"$spool.stdin" 6>"$spool.stdin" 5>&-\n'
_KEEPER = '(cat "$spool.first" && rm "$spool.first" && read -r done <"$spool.hold") >&6 6>&- 4<&- & keeper=$!\nexec 6>&-\n'
FROM_FILE = f'{_HELD}{_SPOOL}{_TRAP}"$@" <"$spool.stdin"\n{_RECORD}{_EXIT}'
FROM_QUEUE = f'{_HELD}{_SPOOL}{_ENDS}{_KEEPER}{_TRAP}"$@" <&4 4<&-\n{_RECORD}kill "$keeper" 2>/dev/null\n{_EXIT}'
FROM_PIPE = f'{_HELD}{_SPOOL}{_TRAP}"$@"\n{_RECORD}{_EXIT}'

TAIL_BYTES = 2_000


class ProcessExit(msgspec.Struct, frozen=True):
    """How a process ended. `code` is None when no genuine status is known: the shell around it was killed."""

    code: int | None

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def reason(self) -> str:
        """A stable reason code: `exit.1`, `signal.SIGKILL`, or `vanished`."""
        if self.code is None:
            return "vanished"
        name = _signal_name(self.code)
        return f"signal.{name}" if name else f"exit.{self.code}"


class Spool(msgspec.Struct, frozen=True):
    """The spool files of a process. `prefix` is the path that they have in common."""

    prefix: Path

    @property
    def stdin(self) -> Path:
        return self._file("stdin")

    @property
    def first(self) -> Path:
        """The first input of the FIFO; removed once it is in the FIFO."""
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
        """Create the input: a file with all of it, or a FIFO that accepts more."""
        if queue:
            os.mkfifo(self.stdin, 0o600)
            os.mkfifo(self.hold, 0o600)
            self.first.write_bytes(stdin)
        else:
            self.stdin.write_bytes(stdin)

    def create(self, file: Path) -> BinaryIO:
        """Create a file that must not exist yet: a process of a run is never started twice.

        A prompt is private, so only the user can read the directory.
        """
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600), "wb")
        except FileExistsError as error:
            raise ExecutorFailure(f"{file.name} was started before in this run.", reason="already-started") from error

    def exit(self, digest: str) -> ProcessExit:
        """The recorded status. `digest` is that of the secret; empty for a run that an earlier version began."""
        try:
            code, _, proof = self._file("status").read_text("ascii").strip().partition(" ")
            is_genuine = int(code) != 0 or not digest or digest_proof(proof) == digest
            return ProcessExit(int(code) if is_genuine else None)
        except (OSError, ValueError):
            return ProcessExit(None)

    def stderr_tail(self) -> str:
        """The last lines of stderr, for an error message."""
        try:
            with self.stderr.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                return file.read(TAIL_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def _file(self, name: str) -> Path:
        return self.prefix.with_name(f"{self.prefix.name}.{name}")


def make_proof() -> str:
    """A secret with which the shell proves that a status comes from it."""
    return secrets.token_hex(16)


def digest_proof(proof: str) -> str:
    return hashlib.sha256(proof.encode("ascii")).hexdigest()


def exit_from_code(code: int) -> ProcessExit:
    """The exit of a shell that this process has waited for; a negative code is the signal that has killed the shell."""
    return ProcessExit(code if code >= 0 else None)


def _signal_name(code: int) -> str:
    """The name of the signal: a shell reports death by a signal as 128 plus its number."""
    try:
        return signal.Signals(code - 128).name if code > 128 else ""
    except ValueError:
        return ""


_CHUNK = 1 << 18
_MIN_PAUSE, _MAX_PAUSE = 0.005, 0.1


async def read_chunks(file: BinaryIO, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield chunks of a growing file until it is complete; an empty chunk where nothing was added for a while."""
    pause = _MIN_PAUSE
    while True:
        # Checked before reading: everything that was written before the end is then read.
        over = is_over()
        chunk = file.read(_CHUNK)
        yield chunk
        if chunk:
            pause = _MIN_PAUSE
            await asyncio.sleep(0)
        elif over:
            return
        else:
            # Another process appends to the file and cannot notify us.
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _MAX_PAUSE)


class OutputLineSplitter:
    """Splits chunks into lines. It does not limit their length: the caller counts the bytes that it feeds."""

    def __init__(self) -> None:
        self._line = bytearray()

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that the chunk completes."""
        first, *others = chunk.split(b"\n")
        self._line += first
        finished = []
        for part in others:
            finished.append(self._flush_line())
            self._line += part
        return finished

    def flush(self) -> list[str]:
        """The last line, when it does not end in a newline."""
        return [self._flush_line()] if self._line else []

    def _flush_line(self) -> str:
        line = self._line.decode("utf-8", "replace").removesuffix("\r")
        self._line.clear()
        return line
