"""Suggested next calls for the shell. Pure functions of the record, the live shell and the tools that the caller has.

A suggestion is a call that its own tool accepts: `{tool, args, rationale}`. It names only tools that the caller has; where
there is none, there is no suggestion. Nothing here decides whether a call may run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from fidelio.runtime.durable_shell import ShellRecord
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.shell.live import LiveShell

Suggestion: TypeAlias = dict[str, Any]
Tools: TypeAlias = Collection[str]
Status: TypeAlias = Literal["missing", "closed", "busy", "ready"]

WAIT_MS = 1_000
# While a command runs these gather evidence without touching it.
_READ_TOOLS = (
    *("shell_wait", "shell_describe", "shell_history", "shell_read_last_output", "shell_read_command"),
    *("bash", "read", "glob", "grep", "session_get_snapshot", "retrieval_search"),
)
# These would wait, fail, or end the running command.
_AVOIDED_TOOLS = ("shell_run", "shell_exec", "shell_open", "shell_restart", "shell_close")


def suggest(tools: Tools, tool: str, args: Mapping[str, Any], rationale: str) -> Suggestion | None:
    """A suggested call, if the caller has the tool."""
    return {"tool": tool, "args": dict(args), "rationale": rationale} if tool in tools else None


def find_status(shell: ShellRecord, live: LiveShell | None) -> Status:
    """The posture of the persistent shell, from the settled record and what was seen of the live shell."""
    # The call that opened the shell for its command may not have committed that yet.
    if shell.running is not None or (live is not None and live.busy):
        return "busy"
    if shell.is_open:
        return "ready"
    return "closed" if shell.shell_id else "missing"


def plan_busy(shell: ShellRecord, live: LiveShell | None, tools: Tools) -> Suggestion | None:
    """What to do while a command runs: wait for it, and read meanwhile; None if nothing runs."""
    waiting = _suggest_waiting(shell, live, tools) if find_status(shell, live) == "busy" else None
    if waiting is None:
        return None
    return {
        **waiting,
        "allowlistedReadTools": list_read_tools(tools),
        "evidencePlan": plan_evidence(tools),
        "avoidTools": [tool for tool in _AVOIDED_TOOLS if tool in tools],
        "liveOutputPreview": preview_output(live),
    }


def _suggest_waiting(shell: ShellRecord, live: LiveShell | None, tools: Tools) -> Suggestion | None:
    current = shell.running.id if shell.running is not None else _current_id(live)
    named = {"commandId": current} if current else {}
    waiting = suggest(tools, "shell_wait", {**named, "timeoutMs": WAIT_MS}, "A command runs: wait for it before the next one.")
    return waiting or suggest(tools, "shell_describe", {}, "A command runs: look whether it has ended.")


def _current_id(live: LiveShell | None) -> str:
    return live.current_command.command_id if live is not None and live.current_command is not None else ""


def list_read_tools(tools: Tools) -> list[str]:
    """The tools of the caller that are safe to use while a command runs."""
    return [tool for tool in _READ_TOOLS if tool in tools]


def plan_evidence(tools: Tools) -> Suggestion | None:
    return suggest(tools, "shell_read_last_output", {}, "See what the running command has printed so far.")


def preview_output(live: LiveShell | None) -> dict[str, str] | None:
    """The end of what the running command has printed."""
    if live is None or live.current_command is None:
        return None
    return {"stdout": live.current_command.stdout_preview, "stderr": live.current_command.stderr_preview}


def plan_recovery(shell: ShellRecord, live: LiveShell | None, tools: Tools) -> Suggestion | None:
    """How to get a live shell where there is none; directory and variables are durable."""
    status, args = find_status(shell, live), {"cwd": shell.cwd}
    if status == "closed":
        why = "The shell has ended; a new one starts in the same directory with the same variables."
        return suggest(tools, "shell_restart", args, why) or suggest(tools, "shell_open", args, why)
    if status == "missing":
        return suggest(tools, "shell_open", args, "No shell is open yet.")
    return None


def plan_next_step(shell: ShellRecord, live: LiveShell | None, tools: Tools) -> Suggestion | None:
    """The next call: wait for what runs, else repair the shell, else nothing in particular."""
    if find_status(shell, live) == "busy":
        return _suggest_waiting(shell, live, tools)
    return plan_recovery(shell, live, tools)


def describe_plans(shell: ShellRecord, live: LiveShell | None, tools: Tools) -> dict[str, Suggestion | None]:
    """The three plans that the reading tools return."""
    return {
        "busyPlan": plan_busy(shell, live, tools),
        "recoveryPlan": plan_recovery(shell, live, tools),
        "nextStep": plan_next_step(shell, live, tools),
    }


def describe_posture(record: RuntimeRecord, live: LiveShell | None, tools: Tools) -> dict[str, Any]:
    """`shellMutationPosture`: whether a command for the shell would run now, and what to do if not."""
    shell = record.shell
    status = find_status(shell, live)
    return {
        "status": status,
        "cwd": shell.cwd,
        "shellId": shell.shell_id or None,
        "runningCommandId": (shell.running.id if shell.running is not None else _current_id(live)) or None,
        "canExecute": status != "busy",
        **describe_plans(shell, live, tools),
    }


def read_first_alternatives(
    record: RuntimeRecord,
    live: LiveShell | None,
    tools: Tools,
    *,
    preferred: Suggestion | None = None,
    in_describe: bool = False,
) -> list[Suggestion]:
    """`shellReadFirstAlternatives`: cheaper calls than a command. `preferred` comes first if the caller has it."""
    found = _iter_alternatives(record.shell, live, tools, in_describe=in_describe)
    first = preferred if preferred is not None and preferred["tool"] in tools else None
    return [each for each in (first, *found) if each is not None]


def _iter_alternatives(
    shell: ShellRecord, live: LiveShell | None, tools: Tools, *, in_describe: bool
) -> Iterator[Suggestion | None]:
    if not in_describe:
        yield suggest(tools, "shell_describe", {}, "Look at directory, variables and recent commands first.")
    yield suggest(tools, "bash", {"command": "pwd", "args": [], "cwd": shell.cwd}, "A read-only command needs no approval.")
    if shell.last is not None or find_status(shell, live) == "busy":
        yield suggest(tools, "shell_read_last_output", {}, "The answer may be in the last output.")
