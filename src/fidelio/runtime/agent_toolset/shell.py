"""The tool `bash` of `agent_toolset_20260401`: a command in the persistent shell of the session, waited for to its end.

The model has no other tool for a command that still runs, so a call returns when the command has ended, or ends it at its time
limit. History, directory, variables and recovery after a crash are those of the durable shell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.errors import ToolRefused
from fidelio.runtime.agent_toolset.definitions import DEFAULT_TIMEOUT_MS, BashInput
from fidelio.runtime.agent_toolset.files import render_hits, render_paths
from fidelio.runtime.durable_shell import CommandRecord
from fidelio.runtime.shell.commands import (
    MAX_WAIT_MS,
    CommandPreparation,
    build_result,
    encode_exec,
    find_incarnation,
    prepare_command,
    require_idle,
    start_for_commands,
    try_command,
)
from fidelio.runtime.shell.control import describe_change, open_shell
from fidelio.runtime.shell.live import CommandAnswer, Observation, ask_command, observe, read_answer, read_shell
from fidelio.runtime.shell.settle import Settlement, commit_settlement, describe_findings
from fidelio.runtime.tools.model import Implementation, Preparation, ToolCall, ToolResult
from fidelio.runtime.tools.parameters import ShellExec

MAX_OUTPUT = 40_000
# How long a command gets to end after Ctrl-C, before its shell is ended.
_END_MS = 2_000
_RESTARTED = "The shell was restarted."
_BUSY = "Call bash with restart: true to end it."


async def _prepare(call: ToolCall, arguments: BashInput) -> Preparation:
    if not (arguments.command or arguments.restart):
        raise ToolRefused("There is no command.", remedy="Pass command, or restart: true.", reason="invalid_arguments")
    state = await start_for_commands(call)
    if arguments.restart:
        await commit_settlement(call, await observe(call))
    else:
        await require_idle(call, state, _BUSY)
    if not arguments.command:
        return Preparation()
    return await prepare_command(call, "shell_exec", ShellExec(command=arguments.command), state)


async def _run(call: ToolCall, arguments: BashInput, preparation: Preparation) -> ToolResult:
    if not isinstance(preparation, CommandPreparation):
        restarted = await open_shell(call, None, pty=False, restart=True)
        return replace(restarted, output={"text": _RESTARTED}, text=_RESTARTED)
    if arguments.restart:
        opening = {"cwd": preparation.cwd, "restart": True}
        refused = await try_command(call, preparation, "open_persistent_shell", opening, 0)
        if isinstance(refused, ToolResult):
            return refused
    limit = arguments.timeout_ms or DEFAULT_TIMEOUT_MS
    ended = await _run_to_end(call, preparation, limit)
    if isinstance(ended, ToolResult):
        return ended
    text = render_answer(ended.answer, limit_ms=limit, was_restarted=ended.was_restarted)
    return replace(build_result({"text": text}, ended.found, preparation.variables.resealed), text=text)


class _Ended(msgspec.Struct, frozen=True):
    """A command that does not run any more, and what is recorded of it. `answer` None: nobody knows how it ended."""

    answer: CommandAnswer | None
    found: Settlement
    was_restarted: bool = False


async def _run_to_end(call: ToolCall, preparation: CommandPreparation, limit_ms: int) -> _Ended | ToolResult:
    clock = asyncio.get_running_loop().time
    deadline = clock() + limit_ms / 1000
    wait = min(MAX_WAIT_MS, limit_ms)
    exec_ = ShellExec(command=preparation.command, timeoutMs=wait, maxOutputChars=MAX_OUTPUT)
    sent = encode_exec(call.record.shell, exec_, preparation)
    output = await try_command(call, preparation, "exec_persistent_shell", sent, wait)
    if isinstance(output, ToolResult):
        return output
    answer: CommandAnswer | None = read_answer(output, preparation.command_id)
    record = call.record.shell.find(preparation.command_id)
    while answer is not None and answer.status == "running" and record is not None:
        if (left := int((deadline - clock()) * 1000)) <= 0:
            return await _stop(call, record)
        answer = await ask_command(call, record, timeout_ms=min(MAX_WAIT_MS, left), max_chars=MAX_OUTPUT)
    shell = answer.shell if answer is not None else None
    seen = Observation(find_incarnation(call), shell, {preparation.command_id: answer}, is_shell_known=shell is not None)
    return _Ended(answer, describe_findings(call, call.record, seen))


async def _stop(call: ToolCall, record: CommandRecord) -> _Ended:
    """End a command at its time limit: Ctrl-C first; if it goes on, its shell ends with everything in it."""
    await call.try_action("interrupt_persistent_shell", {})
    answer = await ask_command(call, record, timeout_ms=_END_MS, max_chars=MAX_OUTPUT)
    if answer is not None and answer.status != "running":
        seen = Observation(find_incarnation(call), answer.shell, {record.id: answer}, is_shell_known=answer.shell is not None)
        return _Ended(replace(answer, timed_out=True), describe_findings(call, call.record, seen))
    live = read_shell(await call.act("open_persistent_shell", {"cwd": call.record.shell.cwd, "pty": False, "restart": True}))
    found = await describe_change(call, live, "restarted")
    ended = next((each for each in found.ended if each.command_id == record.id), None) or answer
    return _Ended(replace(ended, timed_out=True) if ended is not None else None, found, was_restarted=True)


def render_answer(answer: CommandAnswer | None, *, limit_ms: int = 0, was_restarted: bool = False) -> str:
    """What a command has printed, and how it ended if that is not obvious. A non-zero exit code is no error of the tool."""
    if answer is None:
        return "[The shell ended before the command did; how far it got is unknown. Look before you repeat it.]"
    printed = [answer.stdout.rstrip("\n"), answer.stderr.rstrip("\n")]
    return "\n".join([*(part for part in printed if part), *_describe_end(answer, limit_ms, was_restarted)]) or "[No output.]"


def _describe_end(answer: CommandAnswer, limit_ms: int, was_restarted: bool) -> Iterable[str]:
    if answer.is_truncated:
        yield f"[The output was cut at {MAX_OUTPUT:,} characters. Send it to a file, and read the part that matters.]"
    if answer.timed_out:
        again = " The shell was restarted; its directory and variables stay." if was_restarted else ""
        yield f"[The command was ended at its time limit of {limit_ms:,} ms.{again} Pass a longer timeout_ms, or use &.]"
    elif answer.lost:
        yield "[The shell ended before the command did; how far it got is unknown.]"
    elif answer.signal:
        yield f"[The command was ended by {answer.signal}.]"
    elif answer.exit_code:
        yield f"[Exit code {answer.exit_code}.]"


def render_projection(result: ToolResult) -> ToolResult:
    """The text of the read-only call that was carried out for a command."""
    output = result.output.get("output")
    if result.is_error or not isinstance(output, Mapping):
        return result
    text = _render_read(output)
    return replace(result, output={"text": text}, text=text)


def _render_read(output: Mapping[str, Any]) -> str:
    if "entries" in output:
        return render_paths(output)
    if "matches" in output:
        return render_hits(output)
    if "content" in output:
        rest = ["[Cut. Use read with view_range for the rest.]"] if output.get("truncated") else []
        return "\n".join([str(output["content"]).rstrip("\n"), *rest])
    code = output.get("exitCode")
    texts = [str(output.get(name) or "").rstrip("\n") for name in ("stdout", "stderr")]
    return "\n".join([*(text for text in texts if text), *([f"[Exit code {code}.]"] if code else [])]) or "[No output.]"


BASH = Implementation(_run, _prepare, render=render_projection)
