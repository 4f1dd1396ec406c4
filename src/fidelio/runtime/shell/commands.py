"""Tools that run a command: `shell_exec` in the persistent shell, `shell_run` in a shell of its own, `bash` without a shell.

The beginning of a command is committed before it is sent to the sandbox and its end with the result, under one id by which the
sandbox never runs it twice. So after a crash the record shows what may have run, and the next tool finds out how it ended. In
the usual case a command is one action of the sandbox and two commits.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from fidelio.errors import SandboxError, SandboxLost, ToolRefused
from fidelio.ledger.model import NewEvent, PutDocument
from fidelio.runtime.durable_shell import ShellRecord
from fidelio.runtime.shell.history import describe_end, describe_start, describe_unknown_end, new_command_id
from fidelio.runtime.shell.live import CommandAnswer, Observation, observe, observe_sandbox, read_answer
from fidelio.runtime.shell.plans import describe_plans, suggest
from fidelio.runtime.shell.settle import Settlement, commit_settlement, describe_findings, fold_ahead
from fidelio.runtime.shell.variables import LoadedVariables, list_temporary, load_variables
from fidelio.runtime.shell.views import SHELL_PATH, render_state
from fidelio.runtime.tools.model import Implementation, Preparation, ToolCall, ToolResult
from fidelio.runtime.tools.parameters import ShellExec, ShellRun
from fidelio.sandbox.actions import RunCommandParameters
from fidelio.sandbox.commands.allow_list import check_command
from fidelio.sandbox.model import ActionError, SandboxState

# No call waits longer; the command goes on.
MAX_WAIT_MS = 45_000
SHOWN_COMMAND = 400
SHOWN_NAMES = 20
WAIT_FIRST = "Wait for it with shell_wait, or end it with shell_interrupt."
# For the reply of the sandbox, beyond the time that the command itself may take.
_REPLY_SECONDS = 15.0


class CommandPreparation(Preparation, frozen=True, kw_only=True):
    """A command that is about to run: its id, its directory, and the variables that it gets."""

    command_id: str
    variables: LoadedVariables


async def _prepare_exec(call: ToolCall, arguments: ShellExec) -> Preparation:
    state = await start_for_commands(call)
    if arguments.restart:
        await commit_settlement(call, await observe(call))
    else:
        await require_idle(call, state)
    return await prepare_command(call, "shell_exec", arguments, state)


async def _prepare_single(call: ToolCall, arguments: ShellRun) -> Preparation:
    state = await start_for_commands(call)
    # Whatever ran in an earlier sandbox has ended; the rest does not matter to a shell of its own.
    await commit_settlement(call, observe_sandbox(call, state))
    return await prepare_command(call, "shell_run", arguments, state)


async def prepare_command(
    call: ToolCall, tool: str, arguments: ShellExec | ShellRun, state: SandboxState
) -> CommandPreparation:
    variables = await load_variables(call)
    command_id, cwd = new_command_id(), resolve_directory(arguments.cwd, call.record.shell)
    start = describe_start(call, command_id, tool, arguments.command, cwd=cwd, incarnation=state.incarnation)
    names = ", ".join(sorted(variables.values))
    return CommandPreparation(
        # The directory on record counts too, if the one of the call is relative to it.
        bound={"cwd": cwd},
        command=arguments.command,
        about=(f"Variables: {names}",) if names else (),
        events=(start.event,),
        blobs=start.blobs,
        command_id=command_id,
        cwd=cwd,
        variables=variables,
    )


async def start_for_commands(call: ToolCall) -> SandboxState:
    """The live sandbox, at a level at which commands run."""
    state = await call.start_sandbox()
    if state.level not in ("bubblewrap", "namespaces"):
        report = await call.context.sandboxes.level()
        raise ToolRefused(
            f"Commands do not run at the level {state.level} of this sandbox: {report.reason}",
            remedy=report.remedy or "Use read, write, edit, glob and grep.",
            reason="commands_not_offered",
        )
    return state


async def require_idle(call: ToolCall, state: SandboxState, remedy: str = WAIT_FIRST) -> None:
    """Refuse if a command runs in the shell. Only if the record says so, the sandbox tells whether it has ended since."""
    running = call.record.shell.running
    is_uncertain = running is not None and running.incarnation == state.incarnation
    live = await commit_settlement(call, await observe(call) if is_uncertain else observe_sandbox(call, state))
    shell = call.record.shell
    if shell.running is not None:
        plans = describe_plans(shell, live, call.tools)
        sentence = f"The shell still runs {shell.running.id}. {remedy}"
        raise ToolRefused(sentence, reason="shell_busy", retryable=True, output=plans)


async def _run_exec(call: ToolCall, arguments: ShellExec, preparation: Preparation) -> ToolResult:
    assert isinstance(preparation, CommandPreparation)
    if arguments.restart:
        opening = {"cwd": preparation.cwd, "restart": True}
        restarted = await try_command(call, preparation, "open_persistent_shell", opening, 0)
        if isinstance(restarted, ToolResult):
            return restarted
    sent = encode_exec(call.record.shell, arguments, preparation)
    output = await try_command(call, preparation, "exec_persistent_shell", sent, arguments.timeoutMs)
    if isinstance(output, ToolResult):
        return output
    answer = read_answer(output, preparation.command_id)
    seen = Observation(find_incarnation(call), answer.shell, {preparation.command_id: answer})
    return _finish(call, "exec_persistent_shell", arguments.command, preparation, seen)


def encode_exec(shell: ShellRecord, arguments: ShellExec, preparation: CommandPreparation) -> dict[str, Any]:
    values = preparation.variables.values
    return {
        "command": arguments.command,
        "commandId": preparation.command_id,
        "waitMs": arguments.timeoutMs,
        "maxOutputChars": arguments.maxOutputChars,
        # Always sent: a shell that has ended since is replaced, and the new one must not run the command anywhere else.
        "setCwd": preparation.cwd,
        "setEnvironment": values,
        "unsetEnvironment": [name for name in shell.removed if name not in values],
    }


async def _run_single(call: ToolCall, arguments: ShellRun, preparation: Preparation) -> ToolResult:
    assert isinstance(preparation, CommandPreparation)
    sent = {
        "command": arguments.command,
        "commandId": preparation.command_id,
        "cwd": preparation.cwd,
        "environment": preparation.variables.values,
        "timeoutMs": arguments.timeoutMs,
        "waitMs": MAX_WAIT_MS,
        "maxOutputChars": arguments.maxOutputChars,
    }
    output = await try_command(call, preparation, "run_shell", sent, MAX_WAIT_MS)
    if isinstance(output, ToolResult):
        return output
    # A command in a shell of its own leaves nothing behind, whatever the sandbox says.
    answer = replace(read_answer(output, preparation.command_id), shell=None, cwd=None, environment={})
    answers = {preparation.command_id: answer}
    seen = Observation(find_incarnation(call), None, answers, is_shell_known=False)
    return _finish(call, "run_shell", arguments.command, preparation, seen)


def find_incarnation(call: ToolCall) -> str:
    return call.sandbox.incarnation if call.sandbox is not None else ""


async def try_command(
    call: ToolCall, preparation: CommandPreparation, action: str, sent: Mapping[str, Any], wait_ms: int
) -> Mapping[str, Any] | ToolResult:
    """Run the action; a result instead if the command did not run, which gets on record."""
    try:
        result = await call.try_action(action, sent, timeout=wait_ms / 1000 + _REPLY_SECONDS)
    except SandboxLost:
        # It may run, or have run: the next tool asks the sandbox, or finds that there is none any more.
        raise
    except SandboxError:
        call.noted.append(describe_unknown_end(preparation.command_id, "refused", "there was no sandbox"))
        raise
    return result.output if result.error is None else _refuse(call, preparation, result.error)


def _refuse(call: ToolCall, preparation: CommandPreparation, error: ActionError) -> ToolResult:
    """The result of a command that the sandbox did not run."""
    refused = describe_unknown_end(preparation.command_id, "refused", error.code)
    body = {"code": error.code, "message": error.message, "retryable": error.retryable}
    shell = fold_ahead(call.record, (refused,), now=call.context.clock()).shell
    plans: Mapping[str, Any] = {}
    if error.code == "shell_busy":
        plans = describe_plans(shell, None, call.tools)
    elif error.code == "cwd_unavailable":
        plans = {"nextStep": suggest(call.tools, "shell_set_cwd", {"path": "/workspace"}, "The directory does not exist.")}
    return ToolResult(output={"ok": False, "error": body, **plans}, events=(refused,), is_error=True)


def _finish(call: ToolCall, action: str, command: str, preparation: CommandPreparation, seen: Observation) -> ToolResult:
    """The result of a command that ended, or goes on: what the sandbox said, and what it changes on record."""
    answer = seen.answers[preparation.command_id]
    assert answer is not None
    found = describe_findings(call, call.record, seen)
    shell = fold_ahead(call.record, found.events, now=call.context.clock()).shell
    output = {
        **describe_answer(command, preparation, answer),
        "shellState": render_state(shell, seen.shell, with_commands=False),
    }
    plans: Mapping[str, Any] = {}
    if answer.status == "running":
        waiting = {"commandId": preparation.command_id, "timeoutMs": MAX_WAIT_MS}
        plans = describe_plans(shell, seen.shell, call.tools)
        plans = {**plans, "nextStep": suggest(call.tools, "shell_wait", waiting, "The command still runs.")}
    body = {"ok": True, "name": action, "status": answer.status, "commandId": preparation.command_id}
    return build_result({**body, "text": _summarize(answer), "output": output, **plans}, found, preparation.variables.resealed)


def build_result(
    output: Mapping[str, Any], found: Settlement, documents: tuple[PutDocument, ...] = (), events: tuple[NewEvent, ...] = ()
) -> ToolResult:
    """A result with everything that was found out for it."""
    return ToolResult(
        output=output,
        events=(*found.events, *events),
        blobs=found.blobs,
        # A value that the command has just changed is newer than the one that was sealed again.
        documents=(*(each for each in documents if each.path not in {new.path for new in found.documents}), *found.documents),
    )


def describe_answer(command: str, preparation: CommandPreparation, answer: CommandAnswer) -> dict[str, Any]:
    """The `output` of a command for the caller."""
    return {
        "commandId": preparation.command_id,
        "status": answer.status,
        "command": command[:SHOWN_COMMAND],
        "cwd": answer.cwd or preparation.cwd,
        "envKeys": sorted(preparation.variables.values),
        "notKept": list(list_temporary(answer.environment))[:SHOWN_NAMES],
        "exitCode": answer.exit_code,
        "signal": answer.signal,
        "timedOut": answer.timed_out,
        "stdout": answer.stdout,
        "stderr": answer.stderr,
        "truncated": answer.is_truncated,
        "shellPath": SHELL_PATH,
        "durationMs": answer.duration_ms,
    }


def _summarize(answer: CommandAnswer) -> str:
    if answer.status == "running":
        return f"The command still runs after {answer.duration_ms} ms. It goes on; get the rest with shell_wait."
    if answer.lost:
        return "The shell ended before the command did; how far it got is unknown."
    end = f"was ended by {answer.signal}" if answer.signal else f"exited with {answer.exit_code}"
    return f"The command {end} after {answer.duration_ms} ms{' at its time limit' if answer.timed_out else ''}."


async def _prepare_bash(call: ToolCall, arguments: RunCommandParameters) -> Preparation:
    check_command(arguments.command, arguments.args)
    await start_for_commands(call)
    return CommandPreparation(
        command_id=new_command_id(),
        cwd=resolve_directory(arguments.cwd, call.record.shell),
        variables=await load_variables(call),
    )


async def _run_bash(call: ToolCall, arguments: RunCommandParameters, preparation: Preparation) -> ToolResult:
    assert isinstance(preparation, CommandPreparation)
    sent = {
        "argv": list(check_command(arguments.command, arguments.args).argv),
        "cwd": preparation.cwd,
        "environment": preparation.variables.values,
        "timeoutMs": arguments.timeoutMs,
        "maxOutputChars": arguments.maxOutputChars,
    }
    answer = read_answer(await call.act("run_command", sent, timeout=arguments.timeoutMs / 1000 + _REPLY_SECONDS))
    found = _describe_bash(call, arguments, preparation, answer)
    shell = fold_ahead(call.record, found.events, now=call.context.clock()).shell
    output = {
        **describe_answer(arguments.command, preparation, answer),
        "args": list(arguments.args),
        "shellState": render_state(shell, with_commands=False),
    }
    body = {"ok": True, "name": "run_command", "text": _summarize(answer), "output": output}
    return build_result(body, found, preparation.variables.resealed)


def _describe_bash(
    call: ToolCall, arguments: RunCommandParameters, preparation: CommandPreparation, answer: CommandAnswer
) -> Settlement:
    """Beginning and end of a command that only reads: both are committed afterwards, because nothing is lost without them."""
    command_id, cwd, incarnation = preparation.command_id, preparation.cwd, find_incarnation(call)
    started = describe_start(call, command_id, "bash", arguments.command, args=arguments.args, cwd=cwd, incarnation=incarnation)
    ended = describe_end(command_id, answer)
    return Settlement(events=(started.event, ended.event), blobs=(*started.blobs, *ended.blobs))


def resolve_directory(path: str | None, shell: ShellRecord) -> str:
    """The directory of a command: a relative path is below the durable directory."""
    if not path:
        return shell.cwd
    # POSIX gives two leading slashes a meaning of their own, which nobody wants here.
    return "/" + posixpath.normpath(posixpath.join(shell.cwd, path)).lstrip("/")


COMMAND_IMPLEMENTATIONS = {
    "shell_exec": Implementation(_run_exec, _prepare_exec),
    "shell_run": Implementation(_run_single, _prepare_single),
    "bash": Implementation(_run_bash, _prepare_bash),
}
