"""The durable shell of a runtime session: directory, variables, history; a part of its record. Pure: no clock, no I/O.

It says where the next command runs and which commands have not ended on record. Whether a shell really lives is known only to
the sandbox; `fidelio.runtime.shell` compares the two. Values of variables are not in it, only keyed digests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from fidelio.ledger.unit_of_work import RecordEvent
from fidelio.runtime import events as e
from fidelio.sandbox.model import WORKSPACE

RECENT_COMMANDS = 20
PREVIEW = 400
# Variables that a live shell must forget before its next command; more than a session may have.
MAX_REMOVED = 200

# `lost`: its end is unknown, because the shell or the sandbox ended. `refused`: it never ran.
CommandState = Literal["running", "completed", "lost", "refused"]


class CommandRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command of the shell. `seq` is the event with its whole output, 0 while it runs; `incarnation` that of its sandbox."""

    id: str
    tool: str
    command: str
    cwd: str
    started_at: int
    start_seq: int = 0
    state: CommandState = "running"
    args: tuple[str, ...] = ()
    incarnation: str = ""
    # Digests of the variables that it got, until it has ended.
    variables: dict[str, str] = {}
    exit_code: int | None = None
    signal: str | None = None
    timed_out: bool = False
    duration_ms: int = 0
    ended_at: int = 0
    stdout: str = ""
    stderr: str = ""
    seq: int = 0


class ShellRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The durable shell: where its next command runs, and with which variables. `variables` are names with keyed digests.

    `removed` are variables that the live shell may still have. A running command stays in `commands` however many follow it.
    """

    cwd: str = WORKSPACE
    # The event of the last change that was not made by a command.
    cwd_seq: int = 0
    variables: dict[str, str] = {}
    shell_id: str = ""
    incarnation: str = ""
    is_open: bool = False
    is_pty: bool = False
    opened_at: int = 0
    closed_because: str = ""
    last_command_at: int = 0
    command_count: int = 0
    updated_at: int = 0
    removed: tuple[str, ...] = ()
    commands: tuple[CommandRecord, ...] = ()

    def find(self, command_id: str) -> CommandRecord | None:
        return next((command for command in self.commands if command.id == command_id), None)

    @property
    def unsettled(self) -> tuple[CommandRecord, ...]:
        """The commands that have not ended on record, newest first."""
        return tuple(command for command in self.commands if command.state == "running")

    @property
    def running(self) -> CommandRecord | None:
        """The command of the persistent shell that has not ended on record."""
        return next((command for command in self.unsettled if command.tool == "shell_exec"), None)

    @property
    def last(self) -> CommandRecord | None:
        """The newest command that has ended."""
        return next((command for command in self.commands if command.state in ("completed", "lost")), None)


def _open_shell(shell: ShellRecord, event: RecordEvent) -> ShellRecord:
    body = event.body
    if shell.is_open and shell.shell_id == body["shell_id"]:
        return shell
    return replace(
        shell,
        shell_id=body["shell_id"],
        incarnation=body.get("incarnation", ""),
        is_open=True,
        is_pty=body.get("pty", False),
        opened_at=event.time,
        closed_because="",
        # The command that opened it, if it was not opened for itself.
        command_count=int(shell.running is not None),
        removed=(),
    )


def _close_shell(shell: ShellRecord, event: RecordEvent) -> ShellRecord:
    # Another call may have opened a new shell before this one noticed that the old one had ended.
    if event.body.get("shell_id", shell.shell_id) != shell.shell_id:
        return shell
    return replace(shell, is_open=False, removed=(), closed_because=event.body.get("reason", "closed"))


def _change_cwd(shell: ShellRecord, event: RecordEvent) -> ShellRecord:
    body = event.body
    cwd = body.get("cwd") or shell.cwd
    if not body.get("by_command", False):
        return replace(shell, cwd=cwd, cwd_seq=event.seq)
    command = shell.find(body.get("command_id", ""))
    # What a call has set since the command began applies before the next command.
    is_older = command is not None and command.start_seq < shell.cwd_seq
    return shell if is_older else replace(shell, cwd=cwd)


def _change_variables(shell: ShellRecord, event: RecordEvent) -> ShellRecord:
    added, unset = event.body.get("set", {}), tuple(event.body.get("unset", ()))
    variables = {name: digest for name, digest in shell.variables.items() if name not in unset} | added
    # A new shell never had them, and what a command unset is not in the live shell either.
    is_applied = not shell.is_open or event.body.get("by_command", False)
    removed = dict.fromkeys(shell.removed if is_applied else (*shell.removed, *unset))
    return replace(shell, variables=variables, removed=tuple(name for name in removed if name not in added)[-MAX_REMOVED:])


def read_started(event: RecordEvent) -> CommandRecord:
    """The command of an event COMMAND_STARTED."""
    body = event.body
    return CommandRecord(
        id=body["command_id"],
        tool=body["tool"],
        command=str(body.get("command", ""))[:PREVIEW],
        cwd=body.get("cwd", ""),
        args=tuple(str(word)[:PREVIEW] for word in body.get("args", ())[:RECENT_COMMANDS]),
        incarnation=body.get("incarnation", ""),
        variables=dict(body.get("variables", {})),
        started_at=event.time,
        start_seq=event.seq,
    )


def read_ended(command: CommandRecord, event: RecordEvent) -> CommandRecord:
    """The command after an event COMMAND_ENDED. The first end counts; only a lost command can turn out to have ended."""
    body = event.body
    if command.state not in ("running", "lost") or (command.state == body["state"] == "lost"):
        return command
    return replace(
        command,
        state=body["state"],
        variables={},
        exit_code=body.get("exit_code"),
        signal=body.get("signal") or None,
        timed_out=body.get("timed_out", False),
        duration_ms=body.get("duration_ms", 0),
        ended_at=event.time,
        stdout=_preview(body.get("stdout")),
        stderr=_preview(body.get("stderr")),
        seq=event.seq,
    )


def _start_command(shell: ShellRecord, event: RecordEvent) -> ShellRecord:
    command = read_started(event)
    if shell.find(command.id) is not None:
        return shell
    count = shell.command_count + (command.tool == "shell_exec")
    return replace(shell, last_command_at=event.time, command_count=count, commands=_trim((command, *shell.commands)))


def _end_command(shell: ShellRecord, event: RecordEvent) -> ShellRecord:
    ended = event.body["command_id"]
    commands = tuple(read_ended(command, event) if command.id == ended else command for command in shell.commands)
    return replace(shell, commands=commands)


def _trim(commands: tuple[CommandRecord, ...]) -> tuple[CommandRecord, ...]:
    """Drop the oldest command that has ended, if there are too many."""
    if len(commands) <= RECENT_COMMANDS:
        return commands
    oldest = next((command for command in reversed(commands) if command.state != "running"), commands[-1])
    return tuple(command for command in commands if command is not oldest)


def _preview(stored: Mapping[str, Any] | None) -> str:
    return str((stored or {}).get("text", ""))[:PREVIEW]


ShellFold: TypeAlias = Callable[[ShellRecord, RecordEvent], ShellRecord]

SHELL_FOLDS: dict[str, ShellFold] = {
    e.SHELL_OPEN: _open_shell,
    e.SHELL_CLOSED: _close_shell,
    e.SHELL_CWD: _change_cwd,
    e.SHELL_ENV: _change_variables,
    e.COMMAND_STARTED: _start_command,
    e.COMMAND_ENDED: _end_command,
}
