"""Tools that change the shell without running a command: directory, variables, open, restart, close, interrupt, input.

Directory and variables are changed on record only; the next command gets them, whether its shell lives already or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelio.errors import ToolRefused
from fidelio.ledger.model import NewEvent
from fidelio.runtime import events as e
from fidelio.runtime.durable_shell import CommandRecord
from fidelio.runtime.shell.commands import build_result, find_incarnation, resolve_directory, start_for_commands
from fidelio.runtime.shell.live import CommandAnswer, LiveShell, Observation, ask_command, observe, read_shell
from fidelio.runtime.shell.plans import describe_plans
from fidelio.runtime.shell.settle import Settlement, commit_settlement, describe_findings, fold_ahead, is_storable_path
from fidelio.runtime.shell.variables import check_count, check_name, check_value, store_change
from fidelio.runtime.shell.views import render_env, render_output_so_far, render_shell, render_state
from fidelio.runtime.tools.model import Implementation, Preparation, ToolCall, ToolResult, event
from fidelio.runtime.tools.parameters import (
    EmptyParameters,
    ShellOpen,
    ShellRestart,
    ShellSendInput,
    ShellSetCwd,
    ShellSetEnv,
    ShellUnsetEnv,
)

# How long a call waits for the effect of an interrupt or of input, so that the caller sees it at once.
_EFFECT_MS = {"interrupt": 2_000, "input": 250}


async def _prepare_settled(call: ToolCall, _: object) -> Preparation:
    await commit_settlement(call, await observe(call))
    return Preparation()


async def _set_cwd(call: ToolCall, arguments: ShellSetCwd, _: Preparation) -> ToolResult:
    changed = await _change_cwd(call, arguments.path)
    shell = fold_ahead(call.record, changed, now=call.context.clock()).shell
    output = {"sessionId": call.session.id, "cwd": shell.cwd, "shellState": render_state(shell, with_commands=False)}
    return ToolResult(output=output, events=changed)


async def _change_cwd(call: ToolCall, path: str | None) -> tuple[NewEvent, ...]:
    """The event of an explicit change of directory, which must exist; nothing if none was named."""
    if path is None:
        return ()
    cwd = resolve_directory(path, call.record.shell)
    if not is_storable_path(cwd):
        raise ToolRefused(f"{path!r:.80} is not the path of a directory.", reason="invalid_path")
    await call.act("list_dir", {"path": cwd, "limit": 1})
    return (event(e.SHELL_CWD, {"cwd": cwd}),)


async def _prepare_set_env(call: ToolCall, arguments: ShellSetEnv) -> Preparation:
    check_name(arguments.key)
    check_value(arguments.key, arguments.value)
    check_count(call.record.shell, arguments.key)
    return Preparation()


async def _set_env(call: ToolCall, arguments: ShellSetEnv, _: Preparation) -> ToolResult:
    stored = store_change(call.context.open_keys(), call.session.id, {arguments.key: arguments.value})
    found = Settlement(events=stored.events, documents=stored.documents)
    return build_result(_describe_variable(call, arguments.key, found), found)


async def _prepare_unset_env(_: ToolCall, arguments: ShellUnsetEnv) -> Preparation:
    check_name(arguments.key)
    return Preparation()


async def _unset_env(call: ToolCall, arguments: ShellUnsetEnv, _: Preparation) -> ToolResult:
    name, shell = arguments.key, call.record.shell
    found = Settlement()
    if name in shell.variables:
        stored = store_change(call.context.open_keys(), call.session.id, {}, [name])
        found = Settlement(events=stored.events, documents=stored.documents)
    elif shell.is_open:
        # Not durable, but the live shell may have it.
        found = Settlement(events=(event(e.SHELL_ENV, {"set": {}, "unset": [name]}),))
    output = {**_describe_variable(call, name, found), "removed": name in shell.variables}
    return build_result(output, found)


def _describe_variable(call: ToolCall, name: str, found: Settlement) -> dict[str, Any]:
    shell = fold_ahead(call.record, found.events, now=call.context.clock()).shell
    return {
        "sessionId": call.session.id,
        "key": name,
        "env": render_env(shell),
        "shellState": render_state(shell, with_commands=False),
    }


async def _prepare_open(call: ToolCall, _: object) -> Preparation:
    await start_for_commands(call)
    return await _prepare_settled(call, _)


async def _open(call: ToolCall, arguments: ShellOpen, _: Preparation) -> ToolResult:
    return await open_shell(call, arguments.cwd, pty=arguments.pty, restart=arguments.restart)


async def _restart(call: ToolCall, arguments: ShellRestart, _: Preparation) -> ToolResult:
    return await open_shell(call, arguments.cwd, pty=arguments.pty, restart=True)


async def open_shell(call: ToolCall, path: str | None, *, pty: bool, restart: bool) -> ToolResult:
    moved = await _change_cwd(call, path)
    cwd = resolve_directory(path, call.record.shell)
    live = read_shell(await call.act("open_persistent_shell", {"cwd": cwd, "pty": pty, "restart": restart}))
    found = await describe_change(call, live, "restarted")
    shell = fold_ahead(call.record, (*found.events, *moved), now=call.context.clock()).shell
    output = {
        **_describe_shell(call, found, live, moved),
        "reused": call.record.shell.is_open and call.record.shell.shell_id == shell.shell_id,
    }
    return build_result(output, found, events=moved)


async def describe_change(call: ToolCall, live: LiveShell, reason: str) -> Settlement:
    """What the record does not say yet after a shell was started or ended: also how the commands in it ended."""
    answers = {command.id: await ask_command(call, command) for command in call.record.shell.unsettled}
    return describe_findings(call, call.record, Observation(find_incarnation(call), live, answers, reason=reason))


def _describe_shell(
    call: ToolCall, found: Settlement, live: LiveShell | None, events: tuple[NewEvent, ...] = ()
) -> dict[str, Any]:
    shell = fold_ahead(call.record, (*found.events, *events), now=call.context.clock()).shell
    return {
        "sessionId": call.session.id,
        "cwd": shell.cwd,
        "persistentShell": render_shell(shell, live),
        "shellState": render_state(shell, live, with_commands=False),
        **describe_plans(shell, live, call.tools),
    }


async def _close(call: ToolCall, _: EmptyParameters, __: Preparation) -> ToolResult:
    shell, found = call.record.shell, Settlement()
    if shell.is_open:
        live = read_shell(await call.act("close_persistent_shell", {}))
        found = await describe_change(call, live, "closed")
    after = fold_ahead(call.record, found.events, now=call.context.clock()).shell
    output = {
        "sessionId": call.session.id,
        "closed": shell.is_open,
        "shellId": shell.shell_id or None,
        "shellState": render_state(after, with_commands=False),
    }
    return build_result(output, found)


async def _interrupt(call: ToolCall, _: EmptyParameters, __: Preparation) -> ToolResult:
    running = call.record.shell.running
    if running is None:
        nothing = {"interrupted": False, "commandId": None, "status": None, "result": None}
        return ToolResult(output={**_describe_shell(call, Settlement(), None), **nothing})
    result = await call.try_action("interrupt_persistent_shell", {})
    # It may have ended a moment before.
    return await _describe_effect(call, running, "interrupt", {"interrupted": result.error is None})


async def _prepare_input(call: ToolCall, arguments: ShellSendInput) -> Preparation:
    if not arguments.text and not arguments.eof:
        raise ToolRefused("There is neither text nor eof to send.", remedy="Pass text, or eof: true.", reason="empty_input")
    await commit_settlement(call, await observe(call))
    running = call.record.shell.running
    if running is None:
        raise ToolRefused(
            "The shell runs no command that could read input.",
            remedy="Start one with shell_exec and a short timeoutMs.",
            reason="shell_idle",
        )
    # What a person allows for one program must not reach another one.
    return Preparation(bound={"commandId": running.id}, about=(f"It is read by the running command: {running.command}",))


async def _send_input(call: ToolCall, arguments: ShellSendInput, preparation: Preparation) -> ToolResult:
    running = call.record.shell.running
    if running is None or running.id != preparation.bound["commandId"]:
        raise ToolRefused("The command that should read the input has ended.", reason="shell_idle")
    sent = {"commandId": running.id, "text": arguments.text, "eof": arguments.eof}
    await call.act("send_input", sent)
    return await _describe_effect(call, running, "input", {"sent": True})


async def _describe_effect(call: ToolCall, running: CommandRecord, kind: str, facts: Mapping[str, Any]) -> ToolResult:
    """Look after the command for a moment and say how it goes on."""
    answer: CommandAnswer | None = await ask_command(call, running, timeout_ms=_EFFECT_MS[kind])
    live = answer.shell if answer is not None else None
    seen = Observation(find_incarnation(call), live, {running.id: answer}, is_shell_known=live is not None)
    found = describe_findings(call, call.record, seen)
    output = {
        **_describe_shell(call, found, live),
        **facts,
        "commandId": running.id,
        "status": answer.status if answer is not None else "running",
        "result": render_output_so_far(answer) if answer is not None else None,
    }
    return build_result(output, found)


CONTROL_IMPLEMENTATIONS = {
    "shell_set_cwd": Implementation(_set_cwd, _prepare_settled),
    "shell_set_env": Implementation(_set_env, _prepare_set_env),
    "shell_unset_env": Implementation(_unset_env, _prepare_unset_env),
    "shell_open": Implementation(_open, _prepare_open),
    "shell_restart": Implementation(_restart, _prepare_open),
    "shell_close": Implementation(_close, _prepare_settled),
    "shell_interrupt": Implementation(_interrupt, _prepare_settled),
    "shell_send_input": Implementation(_send_input, _prepare_input),
}
