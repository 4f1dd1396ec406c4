"""How the shell is shown in the results of its tools and in the artifacts. No values of variables, no path of the host."""

from __future__ import annotations

from typing import Any

from fidelio.clock import format_iso
from fidelio.ledger.long_text import shorten_to_line
from fidelio.runtime.durable_shell import CommandRecord, ShellRecord
from fidelio.runtime.shell.history import CommandOutput
from fidelio.runtime.shell.live import CommandAnswer, CurrentCommand, LiveShell
from fidelio.runtime.shell.plans import find_status
from fidelio.sandbox.model import RUNTIME_LINK

SHELL_PATH = "/bin/bash"
SHOWN_COMMANDS = 5
# The files that `fidelio.runtime.artifacts` writes for the shell.
ARTIFACTS = {
    "shellState": f"{RUNTIME_LINK}/shell-state.json",
    "shellHistory": f"{RUNTIME_LINK}/shell-history.json",
    "shellHistoryMarkdown": f"{RUNTIME_LINK}/shell-history.md",
    "shellLastOutput": f"{RUNTIME_LINK}/shell-last-output.json",
    "shellLastOutputMarkdown": f"{RUNTIME_LINK}/shell-last-output.md",
}


def render_env(shell: ShellRecord) -> dict[str, Any]:
    """The durable variables: names only."""
    return {"count": len(shell.variables), "keys": sorted(shell.variables)}


def render_shell(shell: ShellRecord, live: LiveShell | None = None) -> dict[str, Any] | None:
    """The persistent shell; None if none was ever started."""
    if not shell.shell_id:
        return None
    current = live.current_command if live is not None else None
    return {
        "shellId": shell.shell_id,
        "shellPath": SHELL_PATH,
        "status": "active" if shell.is_open else "closed",
        "busy": find_status(shell, live) == "busy",
        "pty": shell.is_pty,
        "startedAt": render_time(shell.opened_at),
        "lastCommandAt": render_time(shell.last_command_at),
        "commandCount": shell.command_count,
        "closedBecause": shell.closed_because or None,
        "currentCommand": render_current(shell, current),
    }


def render_current(shell: ShellRecord, current: CurrentCommand | None) -> dict[str, Any] | None:
    """The running command with what it has printed so far; None if none runs."""
    command = shell.running
    if command is not None:
        seen = {"commandId": command.id, "command": command.command, "startedAt": render_time(command.started_at)}
    elif current is not None:
        seen = {"commandId": current.command_id, "command": current.command, "startedAt": current.started_at}
    else:
        return None
    preview = current if current is not None else CurrentCommand("")
    return {**seen, "stdoutPreview": preview.stdout_preview, "stderrPreview": preview.stderr_preview}


def render_state(shell: ShellRecord, live: LiveShell | None = None, *, with_commands: bool = True) -> dict[str, Any]:
    """The durable shell. Without the list of commands it is short enough for the result of every command."""
    state: dict[str, Any] = {
        "cwd": shell.cwd,
        "updatedAt": render_time(shell.updated_at),
        "env": render_env(shell),
        "persistentShell": render_shell(shell, live),
    }
    if with_commands:
        state["lastCommand"] = render_line(shell.last) if shell.last is not None else None
        state["recentCommands"] = [render_line(command) for command in shell.commands[:SHOWN_COMMANDS]]
    return state


def render_line(command: CommandRecord) -> dict[str, Any]:
    """A command in a line, for lists inside of other results."""
    return {
        "commandId": command.id,
        "command": shorten_to_line(" ".join((command.command, *command.args))),
        "status": command.state,
        "exitCode": command.exit_code,
    }


def render_command(command: CommandRecord) -> dict[str, Any]:
    """A command of the history with previews of its output."""
    return {
        **_render_facts(command),
        "command": command.command,
        "stdoutPreview": command.stdout,
        "stderrPreview": command.stderr,
        "outputPreview": summarize(command),
    }


def render_output(found: CommandOutput) -> dict[str, Any]:
    """A command with its whole output, as far as it was stored."""
    return {
        **_render_facts(found.command),
        "command": found.text,
        "stdout": found.stdout,
        "stderr": found.stderr,
        "truncated": found.is_truncated,
        "summary": summarize(found.command),
    }


def render_output_so_far(answer: CommandAnswer) -> dict[str, Any]:
    """What the sandbox says about a command that runs or has just ended."""
    return {
        "commandId": answer.command_id,
        "exitCode": answer.exit_code,
        "signal": answer.signal,
        "durationMs": answer.duration_ms,
        "stdout": answer.stdout,
        "stderr": answer.stderr,
        "truncated": answer.is_truncated,
    }


def _render_facts(command: CommandRecord) -> dict[str, Any]:
    return {
        "commandId": command.id,
        "tool": command.tool,
        "args": list(command.args),
        "cwd": command.cwd,
        "status": command.state,
        "exitCode": command.exit_code,
        "signal": command.signal,
        "timedOut": command.timed_out,
        "durationMs": command.duration_ms,
        "startedAt": render_time(command.started_at),
        "updatedAt": render_time(command.ended_at or command.started_at),
    }


def summarize(command: CommandRecord) -> str:
    """Say in a line how a command ended."""
    if command.state == "running":
        return "It still runs."
    if command.state == "refused":
        return "It never ran."
    if command.state == "lost":
        return "The shell or the sandbox ended before it; how far it got is unknown."
    end = f"was ended by {command.signal}" if command.signal else f"exited with {command.exit_code}"
    return f"It {end} after {command.duration_ms} ms{' at its time limit' if command.timed_out else ''}."


def render_time(moment: int) -> str | None:
    return format_iso(moment) if moment else None
