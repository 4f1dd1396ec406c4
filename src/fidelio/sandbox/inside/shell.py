"""The persistent shell: a bash that keeps its directory, variables and functions between commands.

It lives below a supervisor, so that closing it ends whatever it has started. Output goes into the ring of the latest command,
also what a background process writes later. The directory is read from the kernel, not from what the shell says.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from fidelio.sandbox.inside.commands import Surroundings, cannot_start
from fidelio.sandbox.inside.failures import Failure, display
from fidelio.sandbox.inside.loop import QueuedWriter, Reader
from fidelio.sandbox.inside.records import CommandState, Output, describe_ending, random_hex, timestamp
from fidelio.sandbox.inside.shell_protocol import (
    BASH_ARGV,
    PREPARE,
    REPORT,
    Begun,
    Changes,
    ReportReader,
    ShellReport,
    compare_environment,
    encode_command,
    encode_report,
    parse_declarations,
)
from fidelio.sandbox.inside.shell_streams import Pipes, ShellStreams, Terminal
from fidelio.sandbox.inside.supervisor import Ending, Start, find_descendants, read_stat

MAX_INPUT = 1 << 20
_BEGIN_SECONDS = 1.0
_DELETED = " (deleted)"
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat after the name.
_GROUP, _START_TICKS = 2, 19


class ShellOptions(NamedTuple):
    """How a shell is started. `size` is columns and lines of its terminal; without it the shell has pipes."""

    cwd: str
    environment: Mapping[str, str]
    size: tuple[int, int] | None = None


class PersistentShell:
    """A bash process and the command that it runs. `on_end` callbacks are called when nothing of it is left."""

    def __init__(self, shared: Surroundings, options: ShellOptions) -> None:
        self._shared, self._options = shared, options
        self.shell_id = f"shell_{random_hex(8)}"
        self.is_closing = False
        self.current: CommandState | None = None
        self._latest: CommandState | None = None
        self._count = 0
        # The number of the latest command, and of the ones that the shell has begun and reported.
        self._number = self._begun = self._reported = 0
        self._is_interrupt_due = False
        self._cwd = options.cwd
        self._declarations, self._exported = b"", dict(options.environment)
        self._started_at, self._last_command_at = timestamp(), ""
        self._started_ticks = 0.0
        self._ending: Ending | None = None
        self._on_end: list[Callable[[], None]] = []
        self._reports = ReportReader()
        self._streams = self._open_streams()
        self._start()

    @property
    def is_alive(self) -> bool:
        return self._ending is None and not self.is_closing

    def describe(self) -> Output:
        state: Output = {
            "shellId": self.shell_id,
            "alive": self.is_alive,
            "busy": self.current is not None,
            "pty": self._options.size is not None,
            "startedAt": self._started_at,
            "lastCommandAt": self._last_command_at or None,
            "commandCount": self._count,
            "cwd": self.read_cwd(),
            "currentCommand": None if self.current is None else self.current.preview(),
        }
        return state if self._ending is None else {**state, "exitCode": describe_ending(self._ending)["exitCode"]}

    def execute(self, record: CommandState, changes: Changes) -> None:
        """Run a command. The shell must be alive and idle."""
        self._streams.reset()
        self._streams.renew_input()
        self.current = self._latest = record
        self._count += 1
        self._number += 1
        self._is_interrupt_due = False
        self._last_command_at = record.started_at
        self._started_ticks = time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_PER_SECOND
        self._control.write(encode_command(self._number, record.command, changes))

    def interrupt(self) -> None:
        """Send SIGINT to the running command. The shell gives up the command and stays.

        While the shell still reads the command, the signal would tear it apart; so it waits for the shell.
        """
        if self._begun != self._number and not self._is_interrupt_due:
            self._is_interrupt_due = True
            self._shared.loop.call_later(_BEGIN_SECONDS, partial(self._interrupt_late, self._number))
            return
        for group in self._find_groups():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGINT)
        # The signal may hit the shell while it reports.
        self._control.write(encode_report(self._number))

    def send_input(self, data: bytes, *, is_last: bool) -> None:
        if len(data) + self._streams.pending > MAX_INPUT:
            sentence = f"More than {MAX_INPUT} bytes of input wait for the command, which does not read them. Try later."
            raise Failure("input_full", sentence, retryable=True)
        self._streams.write(data)
        if is_last:
            self._streams.end_input()

    def close(self, then: Callable[[], None]) -> None:
        """End the shell and everything that it has started; then call back."""
        self._on_end.append(then)
        if not self.is_closing:
            self.is_closing = True
            self._process.end()

    def after_end(self, then: Callable[[], None]) -> None:
        if self._ending is None:
            self._on_end.append(then)
        else:
            then()

    def read_cwd(self) -> str:
        """The current directory, as the kernel knows it. After the end: the last."""
        pid = self._process.pid if self._ending is None else None
        if pid is None:
            return self._cwd
        with suppress(OSError):
            path = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115  # `Path` costs 10 us for each command
            if path.endswith(_DELETED) and not os.path.isdir(path):  # noqa: PTH112  # as above
                path = path[: -len(_DELETED)]
            self._cwd = display(path)
        return self._cwd

    def describe_surroundings(self) -> Output:
        """Directory and variables, for the result of a command."""
        changed, unset = compare_environment(self._options.environment, self._exported)
        return {"cwd": self.read_cwd(), "environment": changed, "unset": unset}

    def _open_streams(self) -> ShellStreams:
        if self._options.size is None:
            return Pipes(self._shared.loop, self._receive_stdout, self._receive_stderr)
        return Terminal(self._shared.loop, self._receive_stdout, self._options.size)

    def _start(self) -> None:
        control, control_end = os.pipe()
        report_end, report = os.pipe()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        descriptors = {0: control, 1: null, 2: null, REPORT: report, **self._streams.shell_ends}
        options = self._options
        start = Start(BASH_ARGV, options.cwd, options.environment, descriptors, terminal=self._streams.terminal)
        self._control = QueuedWriter(self._shared.loop, control_end, _do_nothing)
        self._report = Reader(self._shared.loop, report_end, self._receive_report, self._lose_report)
        try:
            self._process = self._shared.supervisors.start(start, self._finish)
        except OSError as error:
            self._release()
            raise cannot_start(BASH_ARGV[0], error.errno or 0) from error
        finally:
            for descriptor in (control, report, null):
                os.close(descriptor)
        self._control.write(PREPARE)

    def _receive_stdout(self, data: bytes) -> None:
        if self._latest is not None:
            self._latest.stdout.append(data)

    def _receive_stderr(self, data: bytes) -> None:
        if self._latest is not None:
            self._latest.stderr.append(data)

    def _receive_report(self, data: bytes) -> None:
        for message in self._reports.feed(data):
            if self.current is None or message.number != self._number:
                continue
            if isinstance(message, Begun):
                self._begin()
            elif self._reported != self._number:
                # The same command may be reported several times; the first report counts.
                self._reported = self._number
                complete = self._make_completion(self.current, message)
                self._streams.settle(partial(self._process.when_started, complete))

    def _begin(self) -> None:
        self._begun = self._number
        if self._is_interrupt_due:
            self.interrupt()

    def _interrupt_late(self, number: int) -> None:
        """Something that the shell does before each command may hang, such as a PROMPT_COMMAND of the user."""
        if self.current is not None and self._number == number != self._begun:
            self.interrupt()

    def _lose_report(self) -> None:
        """No process can report any more, so nobody would learn how a command ends."""
        if self._ending is None:
            self.close(_do_nothing)

    def _make_completion(self, record: CommandState, report: ShellReport) -> Callable[[], None]:
        def complete() -> None:
            if record is not self.current:
                return
            if report.declarations != self._declarations:
                self._declarations, self._exported = report.declarations, parse_declarations(report.declarations)
            self._complete(record, Ending(exit_code=report.status & 0xFF))

        return complete

    def _complete(self, record: CommandState, ending: Ending) -> None:
        record.result = self.describe_surroundings()
        self.current = None
        record.finish(ending)

    def _finish(self, ending: Ending) -> None:
        self._ending = ending
        self._release()
        if self.current is not None:
            self._complete(self.current, ending)
        waiting, self._on_end = self._on_end, []
        for callback in waiting:
            callback()

    def _release(self) -> None:
        self._streams.close()
        self._control.close()
        self._report.close()

    def _find_groups(self) -> list[int]:
        """The group of the shell, and those that the running command has made. Other groups belong to background processes.

        The shell comes first: it must know of the interrupt when its child ends, or it goes on with the next command.
        """
        shell = self._process.pid
        if shell is None:
            return []
        groups = {self._streams.foreground_group() or shell}
        for pid in find_descendants((shell,)):
            fields = read_stat(pid)
            if fields and int(fields[_START_TICKS]) >= self._started_ticks - 1:
                groups.add(int(fields[_GROUP]))
        return [shell, *(groups - {shell, os.getpgrp(), 0})]


def _do_nothing() -> None:
    """The supervisor tells when the shell has ended."""
