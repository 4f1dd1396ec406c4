"""Commands in the ledger: the events of their beginning and end, and how they are read back with their whole output.

The record holds the newest commands with previews; everything older is read from the events, newest first and in bounded steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from fidelio.ids import ALPHABET, new_id
from fidelio.ledger import Ledger
from fidelio.ledger.long_text import INLINE, StoredText, load_text, sanitize_text, store_text
from fidelio.ledger.model import Event, NewEvent
from fidelio.ledger.unit_of_work import LoadedSession
from fidelio.runtime import events as e
from fidelio.runtime.durable_shell import PREVIEW, CommandRecord, CommandState, read_ended, read_started
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.shell.live import CommandAnswer
from fidelio.runtime.tools.model import ToolCall, event

_ID_LETTERS = 16
_ID = re.compile(rf"cmd_[{ALPHABET}]{{{_ID_LETTERS}}}")
_TYPES = (e.COMMAND_STARTED, e.COMMAND_ENDED)
# The first step back through the events of a session; each further one is twice as long.
_STEP = 512
# A running command can end long after later ones have begun.
_MAX_EVENTS = 100_000


class StoredEvent(msgspec.Struct, frozen=True):
    """An event with the contents of its blobs, to be committed together."""

    event: NewEvent
    blobs: tuple[bytes, ...] = ()


class CommandOutput(msgspec.Struct, frozen=True):
    """A command with the whole text and output that the events have."""

    command: CommandRecord
    text: str
    stdout: str = ""
    stderr: str = ""
    is_truncated: bool = False


def new_command_id() -> str:
    return new_id("cmd_", _ID_LETTERS)


def describe_start(
    call: ToolCall, command_id: str, tool: str, text: str, *, cwd: str, incarnation: str, args: Sequence[str] = ()
) -> StoredEvent:
    """The event of a command that is about to run. It is committed before the command."""
    stored = store_text(text) if len(text) > INLINE else StoredText({})
    body = {
        "command_id": command_id,
        "tool": tool,
        "command": sanitize_text(text[:INLINE]),
        **({"command_text": stored.body} if stored.body else {}),
        "args": [sanitize_text(word) for word in args],
        "cwd": cwd,
        "incarnation": incarnation,
        **({"variables": call.record.shell.variables} if tool == "shell_exec" and call.record.shell.variables else {}),
        "tool_use_id": call.id,
    }
    return StoredEvent(event(e.COMMAND_STARTED, body, blobs=stored.digests), stored.blobs)


def describe_end(command_id: str, answer: CommandAnswer) -> StoredEvent:
    """The event of a command that the sandbox says has ended."""
    stdout, stderr = store_text(answer.stdout), store_text(answer.stderr)
    body = {
        "command_id": command_id,
        "state": "lost" if answer.lost else "completed",
        "exit_code": answer.exit_code,
        "signal": answer.signal,
        "timed_out": answer.timed_out,
        "duration_ms": answer.duration_ms,
        "stdout": stdout.body,
        "stderr": stderr.body,
        "truncated": answer.is_truncated,
    }
    ended = event(e.COMMAND_ENDED, body, blobs=(*stdout.digests, *stderr.digests))
    return StoredEvent(ended, (*stdout.blobs, *stderr.blobs))


def describe_unknown_end(command_id: str, state: CommandState, reason: str) -> NewEvent:
    """The event of a command that never ran (`refused`), or of which nobody knows how it ended (`lost`)."""
    return event(e.COMMAND_ENDED, {"command_id": command_id, "state": state, "reason": reason})


async def load_output(ledger: Ledger, session: str, command: CommandRecord, committed: Iterable[Event] = ()) -> CommandOutput:
    """A command of the record with its whole text and output. What was redacted is empty.

    `committed` are events that need not be read again.
    """
    # A short text is whole in the record.
    is_whole = len(command.command) < PREVIEW
    started = {"command": command.command} if is_whole else await _read_body(ledger, session, command.start_seq)
    ended = next((each.body for each in committed if each.seq == command.seq), None)
    return await _load_texts(ledger, command, started, ended or await _read_body(ledger, session, command.seq))


async def _read_body(ledger: Ledger, session: str, seq: int) -> dict[str, Any]:
    found = await ledger.events(session, after=seq - 1, types=_TYPES, limit=1) if seq else ()
    return next((each.body for each in found if each.seq == seq), {})


async def find_command(ledger: Ledger, session: LoadedSession[RuntimeRecord], command_id: str) -> CommandOutput | None:
    """A command of the session, however old, with its whole text and output; None if the session has none of this id."""
    if not _ID.fullmatch(command_id):
        return None
    named = await ledger.events_naming(session.id, command_id)
    events = [each for each in named if each.type in _TYPES and each.body.get("command_id") == command_id]
    command = next(iter(_pair(events)), None)
    if command is None:
        return None
    started = next(each.body for each in events if each.type == e.COMMAND_STARTED)
    ended = next((each.body for each in events if each.seq == command.seq), {})
    return await _load_texts(ledger, command, started, ended)


async def _load_texts(ledger: Ledger, command: CommandRecord, started: dict[str, Any], ended: dict[str, Any]) -> CommandOutput:
    text = await load_text(ledger, started.get("command_text")) or str(started.get("command", ""))
    stdout, stderr = await load_text(ledger, ended.get("stdout")), await load_text(ledger, ended.get("stderr"))
    return CommandOutput(command, text, stdout, stderr, bool(ended.get("truncated", False)))


async def list_commands(ledger: Ledger, session: LoadedSession[RuntimeRecord], limit: int) -> list[CommandRecord]:
    """The newest commands, newest first: from the record, and if they are more, from the events."""
    known = session.record.shell.commands
    if limit <= len(known):
        return list(known[:limit])
    step, start = _STEP, session.record.seq
    events: list[Event] = []
    while start > 0 and len(events) < _MAX_EVENTS:
        end, start = start, max(0, start - step)
        step *= 2
        events = [*await _read_between(ledger, session.id, start, end), *events]
        if sum(each.type == e.COMMAND_STARTED for each in events) >= limit:
            break
    return _pair(events)[:limit]


async def _read_between(ledger: Ledger, session: str, after: int, last: int) -> list[Event]:
    """The events of commands after a sequence number and up to another."""
    found: list[Event] = []
    while page := await ledger.events(session, after=after, types=_TYPES, limit=1000):
        found += (each for each in page if each.seq <= last)
        after = page[-1].seq
        if after >= last or len(page) < 1000:
            break
    return found


def _pair(events: Iterable[Event]) -> list[CommandRecord]:
    """The commands of these events, newest first. What was redacted is left out."""
    commands: dict[str, CommandRecord] = {}
    for each in events:
        if each.redacted:
            continue
        if each.type == e.COMMAND_STARTED:
            commands[each.body["command_id"]] = read_started(each)
        elif (found := commands.get(each.body["command_id"])) is not None:
            commands[found.id] = read_ended(found, each)
    return list(reversed(commands.values()))
