"""The part of a session's record that snapshots need: which there are, and what was used since. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from fidelio.clock import format_iso
from fidelio.ledger.unit_of_work import RecordEvent
from fidelio.runtime import events as e

MAX_SNAPSHOTS = 20
# Different tools that are remembered until the next snapshot; with more, any of them may have been used.
_MAX_TOOLS = 64
ANY_TOOL = "*"


class SnapshotEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A snapshot. `wake` is the wake that began after it, empty if a person's restore did."""

    id: str
    at: int
    files: int
    bytes: int
    wake: str = ""


class SnapshotRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The snapshots of a session, oldest first, and what may have changed its workspace since the last look at it.

    `was_live`: commands or a shell were live at that look, so they could change the workspace afterwards without any call.
    `restored` is the snapshot that a person has restored since the last wake.
    """

    snapshots: tuple[SnapshotEntry, ...] = ()
    tools: tuple[str, ...] = ()
    was_live: bool = False
    restored: str = ""

    def find(self, snapshot: str) -> SnapshotEntry | None:
        return next((entry for entry in self.snapshots if entry.id == snapshot), None)


def describe_restored(record: SnapshotRecord) -> list[str]:
    """The lines for an agent whose workspace a person has restored since its last wake."""
    if not record.restored:
        return []
    entry = record.find(record.restored)
    when = f", as it was at {format_iso(entry.at)}" if entry is not None else ""
    return [f"A person has restored the workspace{when}. Files differ from what you remember."]


SnapshotFold: TypeAlias = Callable[[SnapshotRecord, RecordEvent], SnapshotRecord]


def _start_span(record: SnapshotRecord, event: RecordEvent) -> SnapshotRecord:
    body = event.body
    if body.get("span_kind") == "tool":
        return _use(record, body.get("name", ""))
    # A wake that only goes on with a turn says nothing of it.
    is_noticed = body.get("span_kind") == "wake" and not body.get("resumes")
    return replace(record, restored="") if is_noticed and record.restored else record


def _use_tool(record: SnapshotRecord, event: RecordEvent) -> SnapshotRecord:
    # A call inside of a wake counts when it begins: its name may be that of the tool that calls others.
    return record if event.body.get("wake_id") else _use(record, event.body.get("name", ""))


def _use(record: SnapshotRecord, tool: str) -> SnapshotRecord:
    if tool in record.tools or ANY_TOOL in record.tools:
        return record
    return replace(record, tools=(*record.tools, tool) if len(record.tools) < _MAX_TOOLS else (ANY_TOOL,))


def _add(record: SnapshotRecord, event: RecordEvent) -> SnapshotRecord:
    body = event.body
    entry = SnapshotEntry(body["snapshot_id"], event.time, body.get("files", 0), body.get("bytes", 0), body.get("wake_id", ""))
    # The same snapshot again: nothing had changed since.
    known = record.snapshots if record.find(entry.id) else (*record.snapshots, entry)
    removed = set(body.get("removed", ()))
    newest = tuple(each for each in known if each.id not in removed)[-MAX_SNAPSHOTS:]
    return replace(record, snapshots=newest, tools=(), was_live=bool(body.get("is_live")))


def _skip(record: SnapshotRecord, event: RecordEvent) -> SnapshotRecord:
    return replace(record, tools=(), was_live=bool(event.body.get("is_live")))


def _restore(record: SnapshotRecord, event: RecordEvent) -> SnapshotRecord:
    return replace(record, tools=(), was_live=False, restored=event.body["snapshot_id"])


SNAPSHOT_FOLDS: Mapping[str, SnapshotFold] = {
    e.SPAN_STARTED: _start_span,
    e.TOOL_USE: _use_tool,
    e.SNAPSHOT_TAKEN: _add,
    e.SNAPSHOT_SKIPPED: _skip,
    e.SNAPSHOT_RESTORED: _restore,
}
