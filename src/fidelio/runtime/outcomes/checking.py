"""Carries out the checks of criteria. What an agent says, or what its own commands printed, decides nothing here.

A check is met, not met, or undecided: where the sandbox cannot run, the time is used up or a rule exceeds its limits, the
criterion stays unverified, which is never a pass.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from fidelio.errors import RuntimeProblem, SandboxError, UsageProblem
from fidelio.ledger.long_text import shorten_to_line
from fidelio.runtime.outcomes.checks import (
    Check,
    CommandCheck,
    DiffPathsCheck,
    FileExistsCheck,
    FileMatchesCheck,
    JsonSchemaCheck,
    WorkflowActivityCheck,
    find_workspace_path,
    read_check,
)
from fidelio.runtime.outcomes.record import CriterionResult
from fidelio.runtime.outcomes.workspace import WorkspaceView, run_in_copy
from fidelio.runtime.permissions.policy import find_policy
from fidelio.runtime.project.changes import ProjectChanges
from fidelio.runtime.shell.live import CommandAnswer
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.sandbox.inside.globbing import GlobPattern
from fidelio.sandbox.model import ActionError, ActionResult
from fidelio.validation import CheckUndecided, find_violations

MAX_JSON = 4 << 20
_CHUNK = 1 << 20
_MAX_FOUND = 1_000
_SHOWN_PATHS = 5
_SHOWN_OUTPUT = 300
# What the sandbox says about a path at which there is no such file. Anything else decides nothing.
_ABSENT = frozenset(
    {"not_found", "not_a_directory", "not_a_file", "is_directory", "outside", "too_many_links", "permission_denied"}
)
# The agent's own check of a command where commands need an approval.
UNAPPROVED = (
    "The agent itself has defined this command, and commands need an approval here: a person has to define the outcome, or to"
    " decide it."
)
_UNDECIDED = (SandboxError, RuntimeProblem, UsageProblem, CheckUndecided)


class CheckContext(msgspec.Struct, frozen=True):
    """What checks need. `deadline` is a time of the event loop.

    `is_own`: the session that is judged has defined the check. `defined_seq`: the event that defined it.
    """

    context: RuntimeContext
    session: LoadedRuntime
    view: WorkspaceView
    deadline: float
    is_own: bool = False
    defined_seq: int = 0


async def carry_out(subject: CheckContext, check: Mapping[str, Any]) -> CriterionResult:
    """The result of a check. Only what was decided is `met` or `not_met`."""
    left = subject.deadline - asyncio.get_running_loop().time()
    if left <= 0:
        return _undecided("The time for checks is used up.")
    try:
        async with asyncio.timeout(left):
            return await _dispatch(subject, read_check(check, "this criterion"))
    except TimeoutError:
        return _undecided("The time for checks is used up.")
    except _UNDECIDED as error:
        return _undecided(shorten_to_line(str(error), _SHOWN_OUTPUT))


async def _dispatch(subject: CheckContext, check: Check) -> CriterionResult:
    match check:
        case CommandCheck():
            return await _check_command(subject, check)
        case FileExistsCheck():
            return await _check_existence(subject, check)
        case FileMatchesCheck():
            return await _check_match(subject, check)
        case JsonSchemaCheck():
            return await _check_schema(subject, check)
        case DiffPathsCheck():
            return await _check_diff(subject, check)
        case WorkflowActivityCheck():
            return await _check_activity(subject, check)


def _result(is_met: bool, reason: str, *citations: str) -> CriterionResult:
    return CriterionResult("met" if is_met else "not_met", "check", shorten_to_line(reason, 600), citations)


def _undecided(reason: str) -> CriterionResult:
    return CriterionResult("unverified", "check", reason)


async def _check_command(subject: CheckContext, check: CommandCheck) -> CriterionResult:
    # Otherwise an agent would run commands, and read a byte of what each finds, without the approval that a command needs.
    if subject.is_own and find_policy(DEFINITIONS["shell_run"], subject.session.record) != "always_allow":
        return _undecided(UNAPPROVED)
    answer = await run_in_copy(subject.context, subject.session, check.command, timeout_ms=check.timeout_ms)
    if answer.status != "completed" or answer.lost:
        return _undecided("How the command ended is not known.")
    is_met = answer.signal is None and answer.exit_code == check.expect_exit and not answer.timed_out
    if subject.is_own:
        return _result(is_met, "The command ended as expected." if is_met else "The command did not end as expected.")
    if answer.timed_out:
        return _result(False, f"The command did not end within {check.timeout_ms} ms.")
    ended = f"signal {answer.signal}" if answer.signal is not None else f"exit status {answer.exit_code}"
    output = _quote_output(answer) if not is_met else ""
    return _result(is_met, f"The command ended with {ended}; expected is exit status {check.expect_exit}.{output}")


def _quote_output(answer: CommandAnswer) -> str:
    text = (answer.stderr.strip() or answer.stdout.strip())[-_SHOWN_OUTPUT:]
    return f" It printed: {shorten_to_line(text, _SHOWN_OUTPUT)}" if text else ""


async def _check_existence(subject: CheckContext, check: FileExistsCheck) -> CriterionResult:
    found = await subject.view.act("read_bytes", {"path": _path_of(check.path), "offset": 0, "length": 0})
    if found.error is None or found.error.code == "is_directory":
        return _result(True, f"{check.path} exists.")
    return _explain_absence(found.error)


async def _check_match(subject: CheckContext, check: FileMatchesCheck) -> CriterionResult:
    arguments = {
        "path": _path_of(check.path),
        "query": check.pattern,
        "regex": True,
        "caseSensitive": True,
        "limit": _MAX_FOUND,
        "kind": "file",
    }
    found = await subject.view.act("grep_text", arguments)
    if found.error is not None:
        return _explain_absence(found.error)
    count, is_cut = found.output.get("count"), found.output.get("truncated") is True
    if not isinstance(count, int):
        return _undecided("The sandbox did not say how many lines match.")
    if found.output.get("skippedBinary"):
        return _result(False, f"{check.path} is binary.")
    is_met = count >= check.min and (check.max is None or (count <= check.max and not is_cut))
    wanted = f"at least {check.min}" + ("" if check.max is None else f" and at most {check.max}")
    return _result(is_met, f"{count}{' or more' if is_cut else ''} lines of {check.path} match; expected are {wanted}.")


async def _check_schema(subject: CheckContext, check: JsonSchemaCheck) -> CriterionResult:
    read = await read_file(subject.view, _path_of(check.path), MAX_JSON)
    if isinstance(read, ActionError):
        return _explain_absence(read)
    if len(read) > MAX_JSON:
        return _undecided(f"{check.path} has more than {MAX_JSON >> 20} MiB.")
    try:
        value = msgspec.json.decode(read)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return _result(False, f"{check.path} is not JSON: {error!s:.200}.")
    unusable, violated = await find_violations(check.schema, value)
    if unusable:
        return _undecided(f"The schema cannot be used. {unusable}")
    return _result(not violated, f"{check.path} is valid." if not violated else f"{check.path} is not valid. {violated}")


async def _check_diff(subject: CheckContext, check: DiffPathsCheck) -> CriterionResult:
    if subject.session.record.mount_mode == "ro":
        return _result(True, "The project is mounted read-only, so nothing in it was changed.")
    changes = (await ProjectChanges(subject.context).diff(subject.session.id)).changes
    patterns = [GlobPattern(pattern, hidden=True) for pattern in check.paths]
    outside = [change.path for change in changes if not any(matches_glob(pattern, change.path) for pattern in patterns)]
    if not outside:
        return _result(True, f"All {len(changes)} changed paths match.")
    shown = ", ".join(ascii(path)[1:-1] for path in outside[:_SHOWN_PATHS])
    return _result(False, f"{len(outside)} changed paths match no pattern: {shown}.")


def matches_glob(pattern: GlobPattern, path: str) -> bool:
    """Whether a path, relative to the project, matches."""
    states = pattern.start
    for name in path.split("/"):
        states = pattern.step(states, name)
    return pattern.accepts(states)


async def _check_activity(subject: CheckContext, check: WorkflowActivityCheck) -> CriterionResult:
    # A workflow that was begun before the outcome was defined says nothing about the work for it. A person who names a session
    # has chosen it.
    since = 0 if check.session and not subject.is_own else await _find_definition_time(subject)
    wanted = {"workflow": check.workflow, "session": check.session, "activity": check.activity, "since": since}
    found = await subject.context.ports.find_activity(wanted, subject.session.record.project)
    return _result(found.is_completed, found.reason, *([found.citation] if found.citation else []))


async def _find_definition_time(subject: CheckContext) -> int:
    defined = await subject.context.ledger.events(subject.session.id, after=subject.defined_seq - 1, limit=1)
    return defined[0].time if defined else subject.session.session.created_at


def _path_of(path: str) -> str:
    found = find_workspace_path(path)
    assert found is not None, "checked when it was read"
    return found


def _explain_absence(error: ActionError) -> CriterionResult:
    if error.code in _ABSENT:
        return _result(False, error.message)
    return _undecided(shorten_to_line(error.message, _SHOWN_OUTPUT))


async def read_file(view: WorkspaceView, path: str, limit: int) -> bytes | ActionError:
    """The content of a file, or why it cannot be read. More than `limit` bytes mean that it is longer."""
    content = bytearray()
    while len(content) <= limit:
        arguments = {"path": path, "offset": len(content), "length": min(_CHUNK, limit + 1 - len(content))}
        found = await view.act("read_bytes", arguments)
        if found.error is not None:
            return found.error
        data = _decode(found)
        content += data
        if found.output.get("eof") is True or not data:
            break
    return bytes(content)


def _decode(found: ActionResult) -> bytes:
    """The bytes of a reply, which is as hostile as whatever runs in the sandbox."""
    data = found.output.get("data")
    try:
        return base64.b64decode(data, validate=True) if isinstance(data, str) else b""
    except (binascii.Error, ValueError):
        return b""
