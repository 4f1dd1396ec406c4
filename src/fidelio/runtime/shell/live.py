"""The live side of the shell: what the sandbox says about the persistent shell and its commands.

Values of the replies are typed here, once: a reply of another form refuses the call. Asking starts no sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from fidelio.errors import SandboxError, ToolRefused
from fidelio.runtime.durable_shell import CommandRecord
from fidelio.runtime.tools.model import ToolCall
from fidelio.sandbox.model import SandboxState

# What a command that nobody waits for any more leaves of its output on record.
SETTLED_CHARS = 12_000

T = TypeVar("T")
# What a sandbox says is not trusted: a number that the ledger cannot store would fail the commit of the result.
ExitCode = Annotated[int, Meta(ge=-255, le=255)]
Count = Annotated[int, Meta(ge=0, le=1 << 53)]


class CurrentCommand(msgspec.Struct, frozen=True, rename="camel"):
    """The command that the live shell runs, and the end of what it has printed."""

    command_id: str
    command: str = ""
    started_at: str | None = None
    stdout_preview: str = ""
    stderr_preview: str = ""


class LiveShell(msgspec.Struct, frozen=True, rename="camel"):
    """The persistent shell as the sandbox describes it."""

    shell_id: str | None = None
    alive: bool = False
    busy: bool = False
    pty: bool = False
    cwd: str | None = None
    command_count: Count = 0
    exit_code: ExitCode | None = None
    current_command: CurrentCommand | None = None


class CommandAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """What the sandbox says about a command: it runs, it has completed, or (`idle`) nothing runs at all.

    `lost`: it does not run any more, and nobody saw how it ended.
    `environment` are exported variables that differ from those of the start of the shell.
    """

    command_id: str | None = None
    status: Literal["running", "completed", "idle"] = "completed"
    exit_code: ExitCode | None = None
    signal: str | None = None
    timed_out: bool = False
    lost: bool = False
    cwd: str | None = None
    environment: dict[str, str] = {}
    stdout: str = ""
    stderr: str = ""
    truncated: bool | dict[str, bool] = False
    duration_ms: Count = 0
    shell: LiveShell | None = None

    @property
    def is_truncated(self) -> bool:
        return any(self.truncated.values()) if isinstance(self.truncated, dict) else self.truncated


class Observation(msgspec.Struct, frozen=True):
    """What was seen of the sandbox of a session. `incarnation` is empty if none is live.

    `answers` are about the commands that were asked for; None if the sandbox does not know one. `shell` is None if there is no
    shell; it says nothing unless `is_shell_known`. `reason` is why the shell on record was ended, if that is known.
    """

    incarnation: str = ""
    shell: LiveShell | None = None
    answers: Mapping[str, CommandAnswer | None] = msgspec.field(default_factory=dict)
    is_shell_known: bool = True
    reason: str = ""


async def observe(call: ToolCall) -> Observation:
    """Ask about everything that the record cannot know for certain: an open shell, and the commands that run."""
    shell = call.record.shell
    state = await find_sandbox(call) if shell.is_open or shell.unsettled else None
    if state is None:
        return Observation()
    try:
        return await _ask_everything(call, state)
    except SandboxError:
        return await observe_after_loss(call)


def observe_sandbox(call: ToolCall, state: SandboxState) -> Observation:
    """What the start of a sandbox tells without a question: whether it is that of the record, and if not, why that ended."""
    ending = state.closed_because
    is_same = ending is not None and ending.incarnation == call.record.shell.incarnation
    reason = ending.reason if ending is not None and is_same else ""
    return Observation(state.incarnation, is_shell_known=False, reason=reason)


async def observe_after_loss(call: ToolCall) -> Observation:
    """What is known after a question that got no answer: whether the sandbox still lives, and nothing else."""
    state = await call.context.sandboxes.state(call.session.id)
    return Observation("" if state is None else state.incarnation, is_shell_known=False)


async def find_sandbox(call: ToolCall) -> SandboxState | None:
    """The live sandbox of the session; None if there is none. Starts none."""
    state = call.sandbox or await call.context.sandboxes.state(call.session.id)
    # One that is not on record yet is noted when an action is run in it.
    if state is not None and state.incarnation == call.record.sandbox.incarnation:
        call.sandbox = state
    return state


async def _ask_everything(call: ToolCall, state: SandboxState) -> Observation:
    shell = call.record.shell
    answers = {
        command.id: await ask_command(call, command) for command in shell.unsettled if command.incarnation == state.incarnation
    }
    live = next((answer.shell for answer in answers.values() if answer is not None and answer.shell is not None), None)
    if live is None and shell.is_open and shell.incarnation == state.incarnation:
        live = await inspect_shell(call)
    return Observation(state.incarnation, live, answers)


async def inspect_shell(call: ToolCall) -> LiveShell | None:
    result = await call.try_action("inspect_persistent_shell", {})
    return read_shell(result.output) if result.error is None else None


async def ask_command(
    call: ToolCall, command: CommandRecord, *, timeout_ms: int = 0, max_chars: int = SETTLED_CHARS
) -> CommandAnswer | None:
    """The command as the sandbox knows it, after at most `timeout_ms`; None if it does not know it."""
    arguments = {"commandId": command.id, "timeoutMs": timeout_ms, "maxOutputChars": max_chars}
    result = await call.try_action("wait_persistent_shell", arguments, timeout=timeout_ms / 1000 + 30)
    if result.error is not None:
        return None
    answer = read_answer(result.output)
    # `idle` is about no command at all.
    return answer if answer.command_id == command.id and answer.status != "idle" else None


def read_shell(output: Mapping[str, Any]) -> LiveShell:
    return _convert(output, LiveShell)


def read_answer(output: Mapping[str, Any], command_id: str = "") -> CommandAnswer:
    """Read the reply about a command. With `command_id`, a reply about another command is refused."""
    answer = _convert(output, CommandAnswer)
    if command_id and (answer.command_id not in (None, command_id) or answer.status == "idle"):
        raise ToolRefused("The sandbox replied about another command than the one it was sent.", reason="bad_reply")
    return replace(answer, command_id=command_id) if command_id else answer


def _convert(output: Mapping[str, Any], type_: type[T]) -> T:
    try:
        return msgspec.convert(output, type_)
    except msgspec.ValidationError as error:
        raise ToolRefused(f"The sandbox replied with an unexpected value: {error}.", reason="bad_reply") from error
