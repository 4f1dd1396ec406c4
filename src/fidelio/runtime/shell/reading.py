"""Tools that read the shell: describe, history, last output, a command, wait.

They start no sandbox and change nothing in one. What they find out about the own session is committed with their result. They
also read another session of the same agent and project, from its record alone: nothing is written there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fidelio.errors import BadRecord, SandboxError, SessionNotFound, ToolRefused
from fidelio.runtime.durable_shell import CommandRecord, ShellRecord
from fidelio.runtime.environments.versions import load_environment
from fidelio.runtime.files import describe_command_policy
from fidelio.runtime.navigation.context import load_pressure
from fidelio.runtime.outcomes.verdicts import find_gate_step, read_verdict
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.shell.commands import build_result
from fidelio.runtime.shell.history import CommandOutput, find_command, list_commands, load_output
from fidelio.runtime.shell.live import (
    CommandAnswer,
    LiveShell,
    Observation,
    ask_command,
    find_sandbox,
    observe,
    observe_after_loss,
)
from fidelio.runtime.shell.plans import describe_plans, read_first_alternatives
from fidelio.runtime.shell.settle import Settlement, describe_findings, fold_ahead
from fidelio.runtime.shell.views import (
    ARTIFACTS,
    render_command,
    render_current,
    render_env,
    render_line,
    render_output,
    render_shell,
    render_state,
)
from fidelio.runtime.tools.model import Implementation, LoadedRuntime, Preparation, ToolCall, ToolResult
from fidelio.runtime.tools.parameters import SessionParameters, ShellHistory, ShellReadCommand, ShellWait
from fidelio.sandbox.model import Network

_NO_PLANS = {"busyPlan": None, "recoveryPlan": None, "nextStep": None}
# From closed to open.
_NETWORKS: tuple[Network, ...] = ("none", "limited", "unrestricted", "host")


class ReadableShell(msgspec.Struct, frozen=True):
    """The shell of the session that a call reads, settled; `found` is what to commit, nothing if it is another session's.

    `answers` are what the sandbox says about commands whose ends are not committed yet.
    """

    session: LoadedRuntime
    is_own: bool
    live: LiveShell | None = None
    found: Settlement = Settlement()
    answers: Mapping[str, CommandAnswer | None] = msgspec.field(default_factory=dict)

    @property
    def shell(self) -> ShellRecord:
        return self.session.record.shell

    def describe(self, call: ToolCall) -> dict[str, Any]:
        """What every reading tool returns. Plans and files are those of the own session."""
        plans = describe_plans(self.shell, self.live, call.tools) if self.is_own else _NO_PLANS
        paths = dict(ARTIFACTS) if self.is_own else {}
        return {"sessionId": self.session.id, "cwd": self.shell.cwd, "artifactPaths": paths, **plans}


async def read_shell_of(call: ToolCall, session_id: str | None) -> ReadableShell:
    """The shell of the named session, or of the own."""
    if session_id is not None and session_id != call.session.id:
        return await _read_other(call, session_id)
    return _read_own(call, await observe(call))


def _read_own(call: ToolCall, seen: Observation) -> ReadableShell:
    found = describe_findings(call, call.record, seen)
    record = fold_ahead(call.record, found.events, now=call.context.clock())
    live = seen.shell if seen.shell is not None and seen.shell.alive else None
    return ReadableShell(msgspec.structs.replace(call.session, record=record), True, live, found, seen.answers)


async def _read_other(call: ToolCall, session_id: str) -> ReadableShell:
    try:
        other = await call.context.unit.load(session_id)
    except (SessionNotFound, BadRecord) as error:
        raise _no_such_session(session_id) from error
    own, theirs = call.record, other.record
    if (theirs.role, theirs.agent, theirs.project) != ("session", own.agent, own.project):
        raise _no_such_session(session_id)
    await _check_network(call, other)
    # Its own calls settle it; here only a shell whose sandbox has ended is not shown as a live one.
    state = await call.context.sandboxes.state(other.id) if theirs.shell.is_open else None
    if theirs.shell.is_open and (state is None or state.incarnation != theirs.shell.incarnation):
        shell = msgspec.structs.replace(theirs.shell, is_open=False, closed_because="sandbox_ended")
        other = msgspec.structs.replace(other, record=msgspec.structs.replace(theirs, shell=shell))
    return ReadableShell(other, False)


def _no_such_session(session_id: str) -> ToolRefused:
    # The same words whether it does not exist or belongs to somebody else.
    return ToolRefused(
        f"This agent has no session {session_id!r:.80} in this project.",
        remedy="Leave sessionId out for this session.",
        reason="session_not_found",
    )


async def _check_network(call: ToolCall, other: LoadedRuntime) -> None:
    """Refuse to let the data of an offline session out through a session with a network."""
    record = other.record
    chosen = await load_environment(call.context, record.environment, record.environment_version)
    if _NETWORKS.index(chosen.environment.network) < _NETWORKS.index(call.spec.network):
        raise ToolRefused(
            f"Session {other.id} has the network {chosen.environment.network}, this one {call.spec.network}: "
            "what a closed session has seen is not read by one that is more open.",
            reason="network_too_open",
        )


async def _describe(call: ToolCall, arguments: SessionParameters, _: Preparation) -> ToolResult:
    target = await read_shell_of(call, arguments.sessionId)
    shell, record = target.shell, target.session.record
    alternatives = read_first_alternatives(record, target.live, call.tools, in_describe=True) if target.is_own else []
    output = {
        **target.describe(call),
        "env": render_env(shell),
        "persistentShell": render_shell(shell, target.live),
        "shellState": render_state(shell, target.live),
        "lastCommandPreview": render_line(shell.last) if shell.last is not None else None,
        "commandPolicy": describe_command_policy(call.spec),
        "shellReadFirstAlternatives": alternatives,
        "contextPressure": await load_pressure(call.context, target.session, call.tools),
        **_describe_outcome(call, record, target.live),
        "requiresOutcomePass": False,
    }
    return build_result(output, target.found)


def _describe_outcome(call: ToolCall, record: RuntimeRecord, live: LiveShell | None) -> dict[str, Any]:
    is_busy, now = live is not None and live.busy, call.context.clock()
    verdict = read_verdict(record, shell_busy=is_busy, tools=call.tools, now=now)
    return {"outcomeEvaluation": verdict, "nextOutcomeStep": find_gate_step(verdict, call.tools)}


async def _list_history(call: ToolCall, arguments: ShellHistory, _: Preparation) -> ToolResult:
    target = await read_shell_of(call, arguments.sessionId)
    commands = await list_commands(call.context.ledger, target.session, arguments.limit)
    output = {**target.describe(call), "count": len(commands), "commands": [render_command(each) for each in commands]}
    return build_result(output, target.found)


async def _read_last_output(call: ToolCall, arguments: SessionParameters, _: Preparation) -> ToolResult:
    target = await read_shell_of(call, arguments.sessionId)
    last = target.shell.last
    current = target.live.current_command if target.live is not None else None
    output = {
        **target.describe(call),
        "lastCommand": render_output(await _load_output(call, target, last)) if last is not None else None,
        "liveCommand": render_current(target.shell, current) if target.shell.is_open else None,
    }
    return build_result(output, target.found)


async def _read_command(call: ToolCall, arguments: ShellReadCommand, _: Preparation) -> ToolResult:
    target = await read_shell_of(call, arguments.sessionId)
    command, ledger = target.shell.find(arguments.commandId), call.context.ledger
    if command is not None:
        found: CommandOutput | None = await _load_output(call, target, command)
    else:
        found = await find_command(ledger, target.session, arguments.commandId)
    output = {**target.describe(call), "command": render_output(found) if found is not None else None}
    return build_result(output, target.found)


async def _load_output(call: ToolCall, target: ReadableShell, command: CommandRecord) -> CommandOutput:
    """A command with its output: from the ledger, or from what the sandbox has just said."""
    answer = target.answers.get(command.id)
    stored = msgspec.structs.replace(command, seq=0) if answer is not None else command
    found = await load_output(call.context.ledger, target.session.id, stored)
    if answer is None:
        return found
    return CommandOutput(command, found.text, answer.stdout, answer.stderr, answer.is_truncated)


async def _wait(call: ToolCall, arguments: ShellWait, _: Preparation) -> ToolResult:
    command = await _find_awaited(call, arguments.commandId)
    if command is None or command.state != "running":
        target = _read_own(call, await observe(call))
        return await _describe_wait(call, target, command)
    target = _read_own(call, await _observe_command(call, command, arguments))
    return await _describe_wait(call, target, target.shell.find(command.id))


async def _find_awaited(call: ToolCall, command_id: str | None) -> CommandRecord | None:
    """The command to wait for: that of the id, else that of the shell, else any that has not ended."""
    shell = call.record.shell
    if command_id is None:
        return shell.running or next(iter(shell.unsettled), None)
    known = shell.find(command_id)
    if known is not None:
        return known
    older = await find_command(call.context.ledger, call.session, command_id)
    if older is None:
        raise ToolRefused(
            f"This session has no command {command_id!r:.80}.",
            remedy="List the commands with shell_history.",
            reason="unknown_command",
        )
    return older.command


async def _observe_command(call: ToolCall, command: CommandRecord, arguments: ShellWait) -> Observation:
    """Wait for the command in the sandbox that runs it, if that still lives."""
    state = await find_sandbox(call)
    if state is None:
        return Observation()
    if state.incarnation != command.incarnation:
        return Observation(state.incarnation, is_shell_known=False)
    try:
        answer = await ask_command(call, command, timeout_ms=arguments.timeoutMs, max_chars=arguments.maxOutputChars)
    except SandboxError:
        return await observe_after_loss(call)
    shell = answer.shell if answer is not None else None
    return Observation(state.incarnation, shell, {command.id: answer}, is_shell_known=shell is not None)


async def _describe_wait(call: ToolCall, target: ReadableShell, command: CommandRecord | None) -> ToolResult:
    result = render_output(await _load_output(call, target, command)) if command is not None else None
    is_lost = command is not None and command.state in ("lost", "refused")
    output = {
        **target.describe(call),
        "status": _describe_status(command),
        "persistentShell": render_shell(target.shell, target.live),
        "shellState": render_state(target.shell, target.live, with_commands=False),
        "result": result,
        "error": {"code": "command_lost", "message": result["summary"]} if is_lost and result is not None else None,
    }
    return build_result(output, target.found)


def _describe_status(command: CommandRecord | None) -> str:
    if command is None:
        return "idle"
    return command.state if command.state in ("running", "completed") else "error"


READING_IMPLEMENTATIONS = {
    "shell_describe": Implementation(_describe),
    "shell_history": Implementation(_list_history),
    "shell_read_last_output": Implementation(_read_last_output),
    "shell_read_command": Implementation(_read_command),
    "shell_wait": Implementation(_wait),
}
