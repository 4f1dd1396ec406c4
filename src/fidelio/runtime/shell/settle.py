"""Reconciles the durable shell with the live shell: what ended, what was lost, which shell lives.

The record says which command runs and whether a shell is open; both can change without a call, when a command ends, a shell
exits, a sandbox is closed or the host restarts. `reconcile` compares the record with an observation and is pure. A tool that
only reads commits what it found with its result; one that changes something commits it first, because a decision and an
approval are bound to the directory and the variables on record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from fidelio.ledger.model import NewEvent, PutDocument
from fidelio.ledger.redaction import EventView
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.durable_shell import CommandRecord, ShellRecord
from fidelio.runtime.record import RuntimeRecord, fold
from fidelio.runtime.shell.history import describe_end, describe_unknown_end
from fidelio.runtime.shell.live import CommandAnswer, LiveShell, Observation
from fidelio.runtime.shell.variables import ExportedVariables, find_changed, find_unset, store_change
from fidelio.runtime.tools.model import LoadedRuntime, ToolCall, event

# How long a command on record may be unknown to its sandbox: another call may have committed it and not sent it yet.
GRACE_MS = 10_000
MAX_PATH = 4_096


class Findings(msgspec.Struct, frozen=True):
    """What the record does not say yet. `closed` is the reason why the shell on record does not live any more."""

    ended: tuple[CommandAnswer, ...] = ()
    lost: tuple[str, ...] = ()
    closed: str = ""
    started: LiveShell | None = None


class Settlement(msgspec.Struct, frozen=True):
    """The findings as changes of the session. `ended` are the commands whose ends are among the events."""

    events: tuple[NewEvent, ...] = ()
    blobs: tuple[bytes, ...] = ()
    documents: tuple[PutDocument, ...] = ()
    ended: tuple[CommandAnswer, ...] = ()


def reconcile(shell: ShellRecord, seen: Observation, *, now: int) -> Findings:
    """Compare the record with what was seen."""
    answers = [seen.answers.get(command.id) for command in shell.unsettled]
    closed = _find_closing_reason(shell, seen)
    return Findings(
        ended=tuple(answer for answer in answers if answer is not None and answer.status == "completed"),
        lost=tuple(command.id for command in shell.unsettled if _is_lost(command, seen, now)),
        closed=closed,
        started=_find_new_shell(shell, seen, was_closed=bool(closed)),
    )


def _is_lost(command: CommandRecord, seen: Observation, now: int) -> bool:
    if command.incarnation != seen.incarnation:
        return True
    is_unknown = command.id in seen.answers and seen.answers[command.id] is None
    return is_unknown and now - command.started_at > GRACE_MS


def _find_closing_reason(shell: ShellRecord, seen: Observation) -> str:
    if not shell.is_open:
        return ""
    if shell.incarnation != seen.incarnation:
        return seen.reason or ("sandbox_restarted" if seen.incarnation else "sandbox_ended")
    is_same = seen.shell is not None and seen.shell.alive and seen.shell.shell_id == shell.shell_id
    return "" if is_same or not seen.is_shell_known else seen.reason or "shell_exited"


def _find_new_shell(shell: ShellRecord, seen: Observation, *, was_closed: bool) -> LiveShell | None:
    """A live shell that the record does not have: the call that started it has not committed its result."""
    if seen.shell is None or not seen.shell.alive or not seen.shell.shell_id:
        return None
    return seen.shell if was_closed or not shell.is_open else None


def describe_findings(call: ToolCall, record: RuntimeRecord, seen: Observation) -> Settlement:
    """The changes that make the record say what was seen."""
    findings = reconcile(record.shell, seen, now=call.context.clock())
    ended = [describe_end(str(answer.command_id), answer) for answer in findings.ended]
    moved = [describe_move(call, record, answer) for answer in findings.ended]
    shells = tuple(describe_shells(record.shell, findings, seen))
    return Settlement(
        events=(
            *(describe_unknown_end(command, "lost", "the sandbox or the shell ended") for command in findings.lost),
            # A new shell was opened before the command that ended in it; an old one is closed after its last command.
            *(shells if findings.started is not None else ()),
            *(each.event for each in ended),
            *(each for change in moved for each in change.events),
            *(shells if findings.started is None else ()),
        ),
        blobs=tuple(blob for each in ended for blob in each.blobs),
        documents=tuple(document for change in moved for document in change.documents),
        ended=findings.ended,
    )


def describe_shells(shell: ShellRecord, findings: Findings, seen: Observation) -> Iterator[NewEvent]:
    if findings.closed:
        code = seen.shell.exit_code if seen.shell is not None else None
        yield event(e.SHELL_CLOSED, {"shell_id": shell.shell_id, "reason": findings.closed, "exit_code": code})
    if findings.started is not None:
        yield describe_opening(findings.started, seen.incarnation)


def describe_opening(live: LiveShell, incarnation: str) -> NewEvent:
    return event(e.SHELL_OPEN, {"shell_id": live.shell_id or "", "incarnation": incarnation, "pty": live.pty})


def describe_move(call: ToolCall, record: RuntimeRecord, answer: CommandAnswer) -> Settlement:
    """What a command of the shell changed for those after it: `cd` and `export` stay.

    What another call has set since the command began wins: it applies before the next command.
    """
    shell, command = record.shell, record.shell.find(answer.command_id or "")
    # A command in a shell of its own leaves nothing, and a shell that has ended did not report any more.
    if command is None or answer.shell is None or not answer.shell.alive:
        return Settlement()
    events: list[NewEvent] = []
    if answer.cwd and answer.cwd != shell.cwd and is_storable_path(answer.cwd):
        events.append(event(e.SHELL_CWD, {"cwd": answer.cwd, "by_command": True, "command_id": command.id}))
    seen = ExportedVariables(answer.environment, command.variables)
    if not seen.exported and not seen.received:
        return Settlement(events=tuple(events))
    keys, session = call.context.open_keys(), call.session.id
    changed = find_changed(keys, session, shell, seen)
    stored = store_change(keys, session, changed, find_unset(shell, seen), by_command=True)
    return Settlement(events=(*events, *stored.events), documents=stored.documents)


def is_storable_path(path: str) -> bool:
    """Whether a directory can be named in the ledger and in a later call: absolute, of a usable length, valid text."""
    return path.startswith("/") and len(path) <= MAX_PATH and not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in path)


async def commit_settlement(call: ToolCall, seen: Observation) -> LiveShell | None:
    """Commit what was seen before the call goes on. Nothing is committed if the record says the same."""

    def decide(current: LoadedRuntime) -> SessionDecision[None] | None:
        found = describe_findings(call, current.record, seen)
        if not found.events:
            return None
        return SessionDecision(None, events=found.events, blobs=found.blobs, documents=found.documents)

    call.session = await call.context.unit.update(call.session, decide)
    return seen.shell


def fold_ahead(record: RuntimeRecord, events: Iterable[NewEvent], *, now: int) -> RuntimeRecord:
    """The record as it will be when these events are committed."""
    views = [EventView(seq, each.type, now, dict(each.body)) for seq, each in enumerate(events, record.seq + 1)]
    return fold(record, views)
