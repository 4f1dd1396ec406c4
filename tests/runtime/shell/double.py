"""A model of the persistent shell inside of a sandbox, with a language of its own, for tests without processes.

Commands are separated by semicolons: `cd DIR`, `export NAME=VALUE`, `unset NAME`, `print TEXT`, `exit CODE`, `false`, and
`sleep`, which runs until the test ends it with `finish`. Replies have the form of `fidelio.sandbox.inside.shell_actions`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.runtime.support import FakeSandboxes, fail

BASE = {"PATH": "/usr/bin", "HOME": "/workspace"}


@dataclass
class ScriptedCommand:
    id: str
    text: str
    status: str = "running"
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    shell: Shell | None = None
    surroundings: dict[str, Any] = field(default_factory=dict)
    lost: bool = False


@dataclass
class Shell:
    id: str
    cwd: str = "/workspace"
    variables: dict[str, str] = field(default_factory=lambda: dict(BASE))
    is_alive: bool = True
    pty: bool = False
    count: int = 0
    current: ScriptedCommand | None = None
    exit_code: int | None = None


class ShellDouble(FakeSandboxes):
    """The sandboxes of one session with a shell that exists only as values. `runs` lists every command that was run."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.directories = {"/", "/workspace", "/workspace/src", "/tmp"}
        self.runs: list[str] = []
        self.inputs: list[dict[str, Any]] = []
        self.commands: dict[str, ScriptedCommand] = {}
        self.shell: Shell | None = None
        self._number = 0
        self.replies |= {
            "list_dir": self._list_dir,
            "open_persistent_shell": self._open,
            "inspect_persistent_shell": lambda _: self._describe(self.shell),
            "exec_persistent_shell": self._execute,
            "wait_persistent_shell": self._wait,
            "close_persistent_shell": self._close,
            "interrupt_persistent_shell": self._interrupt,
            "send_input": self._send_input,
            "run_shell": self._run_shell,
            "run_command": self._run_command,
        }

    def crash(self, session: str) -> None:
        """The sandbox and everything in it ends; the next one knows nothing."""
        self._live.pop(session, None)
        self.shell, self.commands = None, {}

    def kill_shell(self) -> None:
        assert self.shell is not None
        self._end_shell(self.shell, None)

    def finish(self, stdout: str = "", exit_code: int = 0, *, then: str = "") -> None:
        """End the command that sleeps, in the shell or in one of its own."""
        command = next(each for each in self.commands.values() if each.status == "running")
        command.stdout += stdout
        if command.shell is not None:
            self._interpret(command.shell, command, then)
        self._complete(command, exit_code)

    def _list_dir(self, arguments: dict[str, Any]) -> Any:
        found = arguments["path"] in self.directories
        return {"entries": []} if found else fail("not_found", f"{arguments['path']} does not exist.")

    def _new_shell(self, cwd: str = "/workspace", *, pty: bool = False) -> Shell:
        self._number += 1
        self.shell = Shell(f"shell_{self._number}", cwd, pty=pty)
        return self.shell

    def _open(self, arguments: dict[str, Any]) -> Any:
        if arguments["cwd"] not in self.directories:
            return fail("cwd_unavailable", "The directory does not exist.")
        if self.shell is not None and self.shell.is_alive and arguments.get("restart"):
            self._end_shell(self.shell, None)
        if self.shell is None or not self.shell.is_alive:
            self._new_shell(arguments["cwd"], pty=arguments.get("pty", False))
        return self._describe(self.shell)

    def _close(self, _: dict[str, Any]) -> Any:
        if self.shell is not None and self.shell.is_alive:
            self._end_shell(self.shell, None)
        return self._describe(self.shell)

    def _execute(self, arguments: dict[str, Any]) -> Any:
        known = self.commands.get(arguments["commandId"])
        if known is not None:
            return self._answer(known)
        if arguments["setCwd"] not in self.directories:
            return fail("cwd_unavailable", "The directory does not exist.")
        shell = self.shell if self.shell is not None and self.shell.is_alive else self._new_shell()
        if shell.current is not None:
            return fail("shell_busy", f"The shell runs {shell.current.id}.", retryable=True)
        for name in arguments["unsetEnvironment"]:
            shell.variables.pop(name, None)
        shell.variables |= arguments["setEnvironment"]
        shell.cwd = arguments["setCwd"]
        command = self._start(arguments, shell)
        self._interpret(shell, command, command.text)
        if command.status == "running" and "sleep" not in command.text.split("; "):
            self._complete(command, command.exit_code or 0)
        return self._answer(command)

    def _start(self, arguments: dict[str, Any], shell: Shell | None) -> ScriptedCommand:
        command = ScriptedCommand(arguments["commandId"], arguments["command"], shell=shell)
        self.commands[command.id] = command
        self.runs.append(command.text)
        if shell is not None:
            shell.current = command
            shell.count += 1
        return command

    def _interpret(self, shell: Shell, command: ScriptedCommand, text: str) -> None:
        for word, _, rest in (part.strip().partition(" ") for part in text.split(";")):
            match word:
                case "cd":
                    shell.cwd = rest
                case "export":
                    name, _, value = rest.partition("=")
                    shell.variables[name] = value
                case "unset":
                    shell.variables.pop(rest, None)
                case "env":
                    command.stdout += "".join(f"{name}={value}\n" for name, value in sorted(shell.variables.items()))
                case "pwd":
                    command.stdout += f"{shell.cwd}\n"
                case "print":
                    command.stdout += rest
                case "false":
                    command.exit_code = 1
                case "exit":
                    self._end_shell(shell, int(rest))
                    return

    def _complete(self, command: ScriptedCommand, exit_code: int | None) -> None:
        command.status, command.exit_code, command.lost = "completed", exit_code, exit_code is None
        if command.shell is not None:
            command.surroundings = self._surroundings(command.shell)
            command.shell.current = None

    def _end_shell(self, shell: Shell, exit_code: int | None) -> None:
        shell.is_alive, shell.exit_code = False, exit_code
        if shell.current is not None:
            # It did not report any more: its variables are those of its start.
            shell.variables = dict(BASE)
            self._complete(shell.current, exit_code)

    @staticmethod
    def _surroundings(shell: Shell) -> dict[str, Any]:
        changed = {name: value for name, value in shell.variables.items() if BASE.get(name) != value}
        return {"cwd": shell.cwd, "environment": changed, "unset": [name for name in BASE if name not in shell.variables]}

    def _wait(self, arguments: dict[str, Any]) -> Any:
        command = self.commands.get(arguments["commandId"])
        return fail("unknown_command", "No such command is known.") if command is None else self._answer(command)

    def _interrupt(self, _: dict[str, Any]) -> Any:
        if self.shell is None or self.shell.current is None:
            return fail("shell_idle", "The shell runs no command.")
        self._complete(self.shell.current, 130)
        return {"interrupted": True}

    def _send_input(self, arguments: dict[str, Any]) -> Any:
        if self.shell is None or self.shell.current is None:
            return fail("shell_idle", "The shell runs no command.")
        self.inputs.append(arguments)
        self.shell.current.stdout += f"read {arguments['text']}"
        return {"accepted": len(arguments["text"])}

    def _run_shell(self, arguments: dict[str, Any]) -> Any:
        if arguments["cwd"] not in self.directories:
            return fail("cwd_unavailable", "The directory does not exist.")
        command = self._start(arguments, None)
        self._interpret(Shell("", arguments["cwd"], BASE | arguments["environment"]), command, command.text)
        if command.text != "sleep":
            self._complete(command, command.exit_code or 0)
        return self._answer(command)

    def _run_command(self, arguments: dict[str, Any]) -> Any:
        text = "".join(f"{name}={value}\n" for name, value in sorted(arguments["environment"].items()))
        ended = {"exitCode": 0, "signal": None, "timedOut": False, "truncated": {"stdout": False, "stderr": False}}
        return {**ended, "stdout": text if arguments["argv"][0].endswith("/env") else "done\n", "stderr": "", "durationMs": 3}

    def _answer(self, command: ScriptedCommand) -> dict[str, Any]:
        ended = {"exitCode": command.exit_code, "signal": None, "timedOut": False} if command.status == "completed" else {}
        shell = {"shell": self._describe(command.shell)} if command.shell is not None else {}
        around = command.surroundings or (self._surroundings(command.shell) if command.shell is not None else {})
        return {
            "commandId": command.id,
            "status": command.status,
            **ended,
            **({"lost": True} if command.lost else {}),
            "stdout": command.stdout,
            "stderr": command.stderr,
            "stdoutOffset": 0,
            "stderrOffset": 0,
            "truncated": {"stdout": False, "stderr": False},
            "durationMs": 7,
            **around,
            **shell,
        }

    @staticmethod
    def _describe(shell: Shell | None) -> dict[str, Any]:
        if shell is None:
            return {"shellId": None, "alive": False, "busy": False, "pty": False, "cwd": None, "currentCommand": None}
        current = shell.current
        preview = (
            None
            if current is None
            else {
                "commandId": current.id,
                "command": current.text,
                "startedAt": "2027-01-15T08:00:00.000Z",
                "stdoutPreview": current.stdout[-400:],
                "stderrPreview": "",
            }
        )
        return {
            "shellId": shell.id,
            "alive": shell.is_alive,
            "busy": current is not None,
            "pty": shell.pty,
            "startedAt": "2027-01-15T08:00:00.000Z",
            "lastCommandAt": None,
            "commandCount": shell.count,
            "cwd": shell.cwd,
            "currentCommand": preview,
            **({"exitCode": shell.exit_code} if not shell.is_alive else {}),
        }
