"""Single commands: each runs below a supervisor of its own, which ends all that it has started.

`run_command` gets an argument vector and no shell; `run_shell` gets a text for a new shell. Standard input is empty. Which
commands are allowed is decided by the caller.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fidelio.sandbox.inside.failures import Failure, display, number_argument, text_argument
from fidelio.sandbox.inside.loop import EventLoop, Reader, close_readers
from fidelio.sandbox.inside.records import (
    ActionRequest,
    CommandLog,
    CommandState,
    Output,
    check_text,
    command_argument,
    command_id_argument,
    describe_ending,
    describe_streams,
    elapsed_ms,
    environment_argument,
)
from fidelio.sandbox.inside.ring import Head
from fidelio.sandbox.inside.supervision import Supervisors
from fidelio.sandbox.inside.supervisor import Ending, Start

BASH = "/bin/bash"
MAX_TIMEOUT_MS = 60_000
MAX_OUTPUT_CHARS = 40_000
# Longer than any command, so that its end is what is waited for.
_MAX_WAIT_MS = 2 * MAX_TIMEOUT_MS
_MAX_ARGUMENTS = 1000

Sink = Callable[[bytes], None]


class Surroundings(NamedTuple):
    """What all commands of a sandbox share."""

    loop: EventLoop
    supervisors: Supervisors
    environment: dict[str, str]
    directory: str


class SingleCommands:
    """Runs commands that stand for themselves."""

    def __init__(self, shared: Surroundings, log: CommandLog) -> None:
        self._shared, self._log = shared, log

    def run_command(self, request: ActionRequest) -> None:
        max_chars = number_argument(request.arguments, "maxOutputChars", 12_000, high=MAX_OUTPUT_CHARS)
        argv = _argv_argument(request.arguments)
        stdout, stderr, started = Head(max_chars), Head(max_chars), time.monotonic()

        def end(ending: Ending) -> None:
            if ending.error:
                request.fail(cannot_start(argv[0], ending.error))
                return
            streams = describe_streams(stdout.view(max_chars), stderr.view(max_chars))
            request.reply({**describe_ending(ending), **streams, "durationMs": elapsed_ms(started)})

        self._start(argv, request.arguments, (stdout.append, stderr.append), end)

    def run_shell(self, request: ActionRequest) -> None:
        arguments = request.arguments
        max_chars = number_argument(arguments, "maxOutputChars", 12_000, high=MAX_OUTPUT_CHARS)
        wait_ms = number_argument(arguments, "waitMs", _MAX_WAIT_MS, low=0, high=_MAX_WAIT_MS)
        record = self._log.find(text_argument(arguments, "commandId", "")) or self._start_shell(arguments)
        record.wait(self._shared.loop, wait_ms, lambda: request.reply(record.describe(max_chars)))

    def _start_shell(self, arguments: Output) -> CommandState:
        command = command_argument(arguments)
        record = CommandState(command_id_argument(arguments), command)
        argv = (BASH, "--norc", "--noprofile", "-c", command)
        self._start(argv, arguments, (record.stdout.append, record.stderr.append), record.finish)
        self._log.add(record)
        return record

    def _start(
        self, argv: tuple[str, ...], arguments: Output, sinks: tuple[Sink, Sink], on_end: Callable[[Ending], None]
    ) -> None:
        timeout = number_argument(arguments, "timeoutMs", 15_000, high=MAX_TIMEOUT_MS)
        cwd = directory_argument(self._shared, arguments)
        environment = {**self._shared.environment, **environment_argument(arguments, "environment")}
        descriptors, readers = open_streams(self._shared.loop, sinks)
        start = Start(argv, cwd, environment, descriptors, timeout=timeout / 1000)

        def end(ending: Ending) -> None:
            close_readers(readers)
            on_end(ending)

        try:
            self._shared.supervisors.start(start, end)
        except OSError as error:
            close_readers(readers)
            raise cannot_start(argv[0], error.errno or 0) from error
        finally:
            for descriptor in descriptors.values():
                os.close(descriptor)


def open_streams(loop: EventLoop, sinks: tuple[Sink, Sink]) -> tuple[dict[int, int], list[Reader]]:
    """Empty input and two pipes for a command, and the readers of the pipes."""
    pipes = [os.pipe() for _ in sinks]
    readers = [Reader(loop, pipe[0], sink, _do_nothing) for pipe, sink in zip(pipes, sinks)]  # noqa: B905  # Python 3.9
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return {0: null, 1: pipes[0][1], 2: pipes[1][1]}, readers


def directory_argument(shared: Surroundings, arguments: Mapping[str, Any]) -> str:
    """The directory in which a command starts. It must exist: a command must not run anywhere else."""
    cwd = check_text("cwd", text_argument(arguments, "cwd", shared.directory))
    path = os.path.join(shared.directory, cwd)  # noqa: PTH118  # text in, text out
    if not os.path.isdir(path):  # noqa: PTH112  # as above
        raise Failure("cwd_unavailable", f"The directory {display(path)} does not exist. Pass an existing one as cwd.")
    return path


def _argv_argument(arguments: Output) -> tuple[str, ...]:
    argv = arguments.get("argv")
    if not isinstance(argv, list) or not argv or len(argv) > _MAX_ARGUMENTS or not all(isinstance(word, str) for word in argv):
        raise Failure("invalid_arguments", f"argv is not a list of 1 to {_MAX_ARGUMENTS} texts. Pass program and arguments.")
    if not argv[0].startswith("/"):
        raise Failure("invalid_arguments", f"The program {argv[0][:80]!r} is not an absolute path. Pass one.")
    return tuple(check_text("argv", word) for word in argv)


def cannot_start(program: str, number: int) -> Failure:
    if number in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE):
        sentence = "As many processes run in the sandbox as are allowed. End some of them and try again."
        return Failure("busy", sentence, retryable=True)
    if number == errno.E2BIG:
        return Failure("invalid_arguments", f"The arguments and variables of {display(program)} are too long. Use a file.")
    return Failure("command_unavailable", f"{display(program)} cannot be executed in the sandbox: {os.strerror(number)}.")


def _do_nothing() -> None:
    """The end of a stream says nothing about the end of its command."""
