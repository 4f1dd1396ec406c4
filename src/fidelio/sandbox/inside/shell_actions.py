"""Actions on the persistent shell: open, execute, wait, interrupt, input, close. A sandbox has a single shell."""

from __future__ import annotations

from fidelio.sandbox.inside.commands import MAX_OUTPUT_CHARS, Surroundings, directory_argument
from fidelio.sandbox.inside.failures import Failure, flag_argument, number_argument, text_argument
from fidelio.sandbox.inside.records import (
    MAX_WAIT_MS,
    ActionRequest,
    CommandLog,
    CommandState,
    Output,
    check_text,
    check_variable,
    command_argument,
    command_id_argument,
    environment_argument,
)
from fidelio.sandbox.inside.shell import PersistentShell, ShellOptions
from fidelio.sandbox.inside.shell_protocol import Changes

_TERMINAL = "xterm-256color"
_MAX_SIDE = 1000
NO_SHELL: Output = {
    "shellId": None,
    "alive": False,
    "busy": False,
    "pty": False,
    "startedAt": None,
    "lastCommandAt": None,
    "commandCount": 0,
    "cwd": None,
    "currentCommand": None,
}


class ShellActions:
    """The persistent shell of the sandbox, if any."""

    def __init__(self, shared: Surroundings, log: CommandLog) -> None:
        self._shared, self._log = shared, log
        self._shell: PersistentShell | None = None

    def inspect(self, request: ActionRequest) -> None:
        request.reply(self._describe())

    def open(self, request: ActionRequest) -> None:
        options = self._options(request.arguments)
        restart = flag_argument(request.arguments, "restart")
        shell = self._shell
        if shell is not None and shell.is_alive and restart:
            shell.close(lambda: request.attempt(lambda: self._open(request, options)))
        elif shell is not None and shell.is_closing:
            shell.after_end(lambda: request.attempt(lambda: self._open(request, options)))
        else:
            self._open(request, options)

    def close(self, request: ActionRequest) -> None:
        if self._shell is not None and self._shell.is_alive:
            self._shell.close(lambda: request.reply(self._describe()))
        else:
            request.reply(self._describe())

    def execute(self, request: ActionRequest) -> None:
        arguments = request.arguments
        known = self._log.find(text_argument(arguments, "commandId", ""))
        if known is not None:
            self._wait(request, known, "waitMs", 15_000)
            return
        record = CommandState(command_id_argument(arguments), command_argument(arguments))
        changes = self._changes(arguments)
        self._check_waiting(arguments, "waitMs", 15_000)
        shell = self._shell
        if shell is not None and shell.is_closing:
            shell.after_end(lambda: request.attempt(lambda: self._execute(request, record, changes)))
        else:
            self._execute(request, record, changes)

    def wait(self, request: ActionRequest) -> None:
        arguments = request.arguments
        current = None if self._shell is None else self._shell.current
        if arguments.get("commandId") is not None:
            current = self._log.require(arguments)
        if current is None:
            self._check_waiting(arguments, "timeoutMs", 1000)
            request.reply({"commandId": None, "status": "idle", "shell": self._describe()})
        else:
            self._wait(request, current, "timeoutMs", 1000)

    def interrupt(self, request: ActionRequest) -> None:
        shell, record = self._require_running()
        shell.interrupt()
        request.reply({"interrupted": True, "commandId": record.command_id})

    def send_input(self, request: ActionRequest) -> None:
        shell, record = self._require_running()
        data = text_argument(request.arguments, "text", "")
        try:
            encoded = data.encode()
        except UnicodeEncodeError:
            raise Failure("invalid_arguments", "text contains half of a character (a lone surrogate). Remove it.") from None
        shell.send_input(encoded, is_last=flag_argument(request.arguments, "eof"))
        request.reply({"commandId": record.command_id, "accepted": len(encoded)})

    def _open(self, request: ActionRequest, options: ShellOptions) -> None:
        if self._shell is None or not self._shell.is_alive:
            self._shell = PersistentShell(self._shared, options)
        request.reply(self._describe())

    def _execute(self, request: ActionRequest, record: CommandState, changes: Changes) -> None:
        if self._shell is None or not self._shell.is_alive:
            self._shell = PersistentShell(self._shared, self._options({}))
        shell = self._shell
        if shell.current is not None:
            sentence = (
                f"The shell runs the command {shell.current.command_id}. Wait for it, interrupt it, or restart the shell."
            )
            raise Failure("shell_busy", sentence, retryable=True)
        record.details = lambda: self._describe_record(shell, record)
        shell.execute(record, changes)
        self._log.add(record)
        self._wait(request, record, "waitMs", 15_000)

    def _wait(self, request: ActionRequest, record: CommandState, name: str, default: int) -> None:
        milliseconds, max_chars = self._check_waiting(request.arguments, name, default)
        record.wait(self._shared.loop, milliseconds, lambda: request.reply(record.describe(max_chars)))

    @staticmethod
    def _check_waiting(arguments: Output, name: str, default: int) -> tuple[int, int]:
        milliseconds = number_argument(arguments, name, default, low=0, high=MAX_WAIT_MS)
        return milliseconds, number_argument(arguments, "maxOutputChars", 12_000, high=MAX_OUTPUT_CHARS)

    def _require_running(self) -> tuple[PersistentShell, CommandState]:
        shell = self._shell
        if shell is None or shell.current is None:
            raise Failure("shell_idle", "The shell runs no command. Start one with exec_persistent_shell.")
        return shell, shell.current

    def _describe(self) -> Output:
        return dict(NO_SHELL) if self._shell is None else self._shell.describe()

    @staticmethod
    def _describe_record(shell: PersistentShell, record: CommandState) -> Output:
        result = record.result or shell.describe_surroundings()
        return {**result, "shell": shell.describe()}

    def _options(self, arguments: Output) -> ShellOptions:
        environment = {**self._shared.environment, **environment_argument(arguments, "environment")}
        cwd = directory_argument(self._shared, arguments)
        if not flag_argument(arguments, "pty"):
            return ShellOptions(cwd, environment)
        columns = number_argument(arguments, "columns", 120, high=_MAX_SIDE)
        lines = number_argument(arguments, "lines", 40, high=_MAX_SIDE)
        return ShellOptions(cwd, {"TERM": _TERMINAL, **environment}, (columns, lines))

    def _changes(self, arguments: Output) -> Changes:
        cwd = None if arguments.get("setCwd") is None else check_text("setCwd", text_argument(arguments, "setCwd"))
        if cwd is not None:
            cwd = directory_argument(self._shared, {"cwd": cwd})
        names = arguments.get("unsetEnvironment") or []
        if not isinstance(names, list):
            raise Failure("invalid_arguments", "unsetEnvironment is not a list. Pass names of variables.")
        unset = tuple(check_variable(name) for name in names)
        return Changes(cwd, environment_argument(arguments, "setEnvironment"), unset)
