"""Records of commands: their output, how they ended, and who waits for them.

The records of the last commands stay, so that a caller which was cut off finds what its command did; a command with the same
id is never run again. Nothing here starts or ends a process.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from fidelio.sandbox.inside.failures import Failure, failure_of, number_argument, text_argument
from fidelio.sandbox.inside.loop import EventLoop, Timer
from fidelio.sandbox.inside.ring import RING_BYTES, Ring, Text
from fidelio.sandbox.inside.supervisor import Ending

Output = dict[str, Any]
# `json.dumps` with options makes a new encoder for each call. No output contains itself, so nothing looks for that.
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
MAX_RECORDS = 32
# Only the latest commands keep all of their output: 32 commands of 2 MiB would be a large part of the memory.
_WHOLE_RECORDS = 4
_OLD_RING_BYTES = 64 << 10
_MAX_COMMAND = 1 << 20
_PREVIEW_CHARS = 400
MAX_WAIT_MS = 45_000


class ActionRequest:
    """A request of the host. It is answered once; a second answer does nothing."""

    def __init__(self, arguments: Output, send: Callable[[bytes], None]) -> None:
        self.arguments = arguments
        self._send: Callable[[bytes], None] | None = send

    def reply(self, output: Output) -> None:
        self.answer(encode_reply(output))

    def fail(self, failure: Failure) -> None:
        self.answer(encode_failure(failure))

    def fail_with(self, error: Failure | OSError) -> None:
        self.fail(error if isinstance(error, Failure) else failure_of(error, "The sandbox"))

    def answer(self, message: bytes) -> None:
        send, self._send = self._send, None
        if send is not None:
            send(message)

    def attempt(self, action: Callable[[], None]) -> None:
        """Carry out a part of the action. What goes wrong is the answer."""
        try:
            action()
        except (Failure, OSError) as error:
            self.fail_with(error)


class CommandState:
    """A command that runs or has run. `result` and what `details` returns are added to its output."""

    def __init__(self, command_id: str, command: str, details: Callable[[], Output] = dict) -> None:
        self.command_id, self.command, self.details = command_id, command, details
        self.stdout, self.stderr = Ring(), Ring()
        self.started_at = timestamp()
        self.ending: Ending | None = None
        self.result: Output = {}
        self._started = time.monotonic()
        self._duration_ms = 0
        self._on_end: list[Callable[[], None]] = []

    def finish(self, ending: Ending) -> None:
        """Record the end. Everybody who waits is answered."""
        if self.ending is not None:
            return
        self.ending = ending
        self._duration_ms = elapsed_ms(self._started)
        waiting, self._on_end = self._on_end, []
        for callback in waiting:
            callback()

    def wait(self, loop: EventLoop, milliseconds: int, callback: Callable[[], None]) -> None:
        """Call back when the command has ended, or after a time."""
        if self.ending is not None or milliseconds == 0:
            callback()
            return
        timer: list[Timer] = []

        def end() -> None:
            timer[0].cancel()
            if end in self._on_end:
                self._on_end.remove(end)
            callback()

        timer.append(loop.call_later(milliseconds / 1000, end))
        self._on_end.append(end)

    def describe(self, max_chars: int) -> Output:
        """The result, or what is known of it while the command runs."""
        stdout, stderr = self.stdout.view(max_chars), self.stderr.view(max_chars)
        return {
            "commandId": self.command_id,
            "status": "running" if self.ending is None else "completed",
            **({} if self.ending is None else describe_ending(self.ending)),
            **describe_streams(stdout, stderr),
            "stdoutOffset": stdout.offset,
            "stderrOffset": stderr.offset,
            "durationMs": elapsed_ms(self._started) if self.ending is None else self._duration_ms,
            **self.result,
            **self.details(),
        }

    def preview(self) -> Output:
        return {
            "commandId": self.command_id,
            "command": self.command,
            "startedAt": self.started_at,
            "stdoutPreview": self.stdout.view(_PREVIEW_CHARS).text,
            "stderrPreview": self.stderr.view(_PREVIEW_CHARS).text,
        }


class CommandLog:
    """The records of the last commands, by id."""

    def __init__(self) -> None:
        self._records: dict[str, CommandState] = {}

    def find(self, command_id: str) -> CommandState | None:
        return self._records.get(command_id)

    def require(self, arguments: Mapping[str, Any]) -> CommandState:
        command_id = text_argument(arguments, "commandId")
        record = self._records.get(command_id)
        if record is None:
            sentence = f"No command {command_id[:80]!r} is known. The results of the last {MAX_RECORDS} commands are kept."
            raise Failure("unknown_command", sentence)
        return record

    def add(self, record: CommandState) -> None:
        """Keep a record. The oldest ones that have ended make room."""
        self._records[record.command_id] = record
        ended = [each for each in self._records.values() if each.ending is not None]
        for old in ended[: max(0, len(self._records) - MAX_RECORDS)]:
            del self._records[old.command_id]
        for old in ended[:-_WHOLE_RECORDS]:
            for ring in (old.stdout, old.stderr):
                ring.shrink(_OLD_RING_BYTES)

    def read_output(self, arguments: Output) -> Output:
        record = self.require(arguments)
        stream = text_argument(arguments, "stream", "stdout")
        if stream not in ("stdout", "stderr"):
            raise Failure("invalid_arguments", f"stream is {stream[:60]!r}. Pass stdout or stderr.")
        ring = record.stdout if stream == "stdout" else record.stderr
        offset = number_argument(arguments, "offset", 0, low=0, high=1 << 62)
        max_bytes = number_argument(arguments, "maxBytes", 64 << 10, high=RING_BYTES)
        has_ended = record.ending is not None
        found = ring.read(offset, max_bytes, is_complete=has_ended)
        return {
            "text": found.text,
            "offset": found.offset,
            "nextOffset": found.end,
            "oldestOffset": ring.oldest,
            "endOffset": ring.end,
            "eof": has_ended and not found.truncated,
        }


def encode_reply(output: Output) -> bytes:
    return _encode({"ok": True, "output": output}).encode("ascii")


def encode_failure(failure: Failure) -> bytes:
    return _encode({"ok": False, "error": failure.as_error()}).encode("ascii")


def describe_ending(ending: Ending) -> Output:
    """Exit code as a shell gives it, and the name of the signal. `lost` says that nobody saw the end."""
    code = ending.exit_code if ending.signal is None else 128 + ending.signal
    if ending.error:
        code = 127 if ending.error == errno.ENOENT else 126
    name = None if ending.signal is None else _signal_name(ending.signal)
    described: Output = {"exitCode": code, "signal": name, "timedOut": ending.timed_out}
    return described if code is not None else {**described, "lost": True}


def describe_streams(stdout: Text, stderr: Text) -> Output:
    truncated = {"stdout": stdout.truncated, "stderr": stderr.truncated}
    return {"stdout": stdout.text, "stderr": stderr.text, "truncated": truncated}


def command_argument(arguments: Mapping[str, Any]) -> str:
    command = text_argument(arguments, "command")
    check_text("command", command)
    if len(command) > _MAX_COMMAND:
        raise Failure("invalid_arguments", f"command has {len(command)} characters; {_MAX_COMMAND} are allowed. Use a file.")
    return command


def command_id_argument(arguments: Mapping[str, Any]) -> str:
    command_id = text_argument(arguments, "commandId", "") or f"cmd_{random_hex(8)}"
    if len(command_id) > 200:
        raise Failure("invalid_arguments", f"commandId has {len(command_id)} characters; 200 are allowed.")
    return command_id


def environment_argument(arguments: Mapping[str, Any], name: str) -> dict[str, str]:
    value = arguments.get(name) or {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise Failure("invalid_arguments", f"{name} is not a map of texts. Pass names and their values.")
    for variable, text in value.items():
        check_variable(variable)
        check_text(f"{name}.{variable}", text)
    return value


def check_variable(name: object) -> str:
    """A name that a shell accepts; no other can be exported."""
    if not isinstance(name, str) or not name.isascii() or not name.replace("_", "a").isalnum() or name[0].isdigit():
        raise Failure("invalid_arguments", f"{str(name)[:60]!r} is not the name of a variable. Use letters, digits and '_'.")
    return name


def check_text(name: str, text: str) -> str:
    """Refuse what no program can get as an argument."""
    try:
        has_zero = b"\0" in text.encode()
    except UnicodeEncodeError:
        raise Failure("invalid_arguments", f"{name} contains half of a character (a lone surrogate). Remove it.") from None
    if has_zero:
        raise Failure("invalid_arguments", f"{name} contains a zero byte. Remove it.")
    return text


def random_hex(count: int) -> str:
    """Random bytes as text. The module `secrets` would make every fork of this process slower."""
    return os.urandom(count).hex()


def elapsed_ms(started: float) -> int:
    return round((time.monotonic() - started) * 1000)


def timestamp() -> str:
    """Now, as UTC in the form of RFC 3339."""
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
