"""Snapshots of the workspace of a session: stored before a wake, listed and compared.

Whether a look at the disk is needed is decided from the record alone, so a wake costs nothing if nothing can have changed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from fidelio.clock import format_iso
from fidelio.errors import UsageProblem
from fidelio.ids import new_id
from fidelio.ledger.model import NewEvent
from fidelio.runtime import events as e
from fidelio.runtime.environments.versions import load_environment
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.snapshots.record import ANY_TOOL, MAX_SNAPSHOTS, SnapshotEntry
from fidelio.runtime.snapshots.store import AREA, AREAS, SnapshotManifest, SnapshotStore
from fidelio.runtime.snapshots.tree import (
    MAX_BYTES,
    FileTree,
    TreeEntry,
    TreeLimits,
    TreeTooLarge,
    compare_trees,
    compute_digest,
    list_tree,
    read_contents,
)
from fidelio.runtime.specs import session_directory
from fidelio.runtime.stores import refuse_store
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.runtime.tools.model import SANDBOX_GROUPS, LoadedRuntime, RuntimeContext
from fidelio.runtime.wakes.updates import WakeUpdates
from fidelio.sandbox.model import WORKSPACE

# All snapshots of a session together.
MAX_STORE_BYTES = 1_000_000_000
MAX_CHANGES = 1_000

T = TypeVar("T")


def changes_workspace(tool: str) -> bool:
    """Whether a tool of this name may change files of the workspace."""
    definition = DEFINITIONS.get(tool)
    if definition is None:
        return tool == ANY_TOOL
    return definition.group in SANDBOX_GROUPS and not definition.read_only


def may_have_changed(record: RuntimeRecord) -> bool:
    """Whether the workspace can differ from what it was at the last look at it."""
    return record.snapshots.was_live or any(map(changes_workspace, record.snapshots.tools))


async def store_snapshot(updates: WakeUpdates, wake: str) -> None:
    """Store a snapshot before the tools of a wake, if the workspace can have changed. A failure is an event, and no error."""
    if may_have_changed(updates.record):
        await updates.commit([await describe_snapshot(updates.context, updates.loaded, wake)])


async def describe_snapshot(context: RuntimeContext, session: LoadedRuntime, wake: str, restoring: str = "") -> NewEvent:
    """Store a snapshot, and return its event or that of a failure. `restoring` is a snapshot that must not be removed now."""
    body: dict[str, Any] = {"wake_id": wake, "is_live": await _is_live(context, session)}
    limits = await _find_limits(context, session.record)
    directory = session_directory(context, session.record)
    try:
        stored = await run_to_end(lambda: _create(directory, session.record, limits, restoring))
    except TreeTooLarge as problem:
        reason = f"No snapshot of the workspace was stored: {problem}."
        return NewEvent(type=e.SNAPSHOT_SKIPPED, body={**body, "reason": reason}, actor="system")
    except OSError as error:
        reason = f"No snapshot of the workspace was stored: {error.strerror}."
        return NewEvent(type=e.SNAPSHOT_SKIPPED, body={**body, "reason": reason}, actor="system")
    return NewEvent(type=e.SNAPSHOT_TAKEN, body={**body, **stored}, actor="system")


def _create(directory: Path, record: RuntimeRecord, limits: TreeLimits, restoring: str) -> dict[str, Any]:
    """Store the present state, and remove the oldest snapshots. A state that is stored already keeps its id."""
    store, known = SnapshotStore(directory), [entry.id for entry in record.snapshots.snapshots]
    previous = store.find(known[-1]) if known else None
    manifest = store.create(new_id("snap_"), limits, previous)
    if previous is not None and manifest.is_same(previous):
        manifest = store.rename(manifest, previous.id)
    removed = _prune(store, record, manifest, restoring, limits)
    return {
        "snapshot_id": manifest.id,
        "files": manifest.files,
        "bytes": manifest.size,
        **({"removed": removed} if removed else {}),
        **({"without": manifest.without} if manifest.without else {}),
        **({"unreadable": manifest.unreadable} if manifest.unreadable else {}),
    }


def _prune(
    store: SnapshotStore, record: RuntimeRecord, newest: SnapshotManifest, restoring: str, limits: TreeLimits
) -> list[str]:
    """Remove snapshots beyond the limits, but neither the newest nor what is about to be restored."""
    known = [entry for entry in record.snapshots.snapshots if entry.id != newest.id]
    bound = _bound_store(limits)
    # Equal files are stored once, so the sum is at least what is stored.
    if len(known) < MAX_SNAPSHOTS and sum(entry.bytes for entry in known) + newest.size <= bound:
        return []
    protected = frozenset(snapshot for snapshot in (newest.id, restoring) if snapshot)
    others = [entry.id for entry in reversed(known) if entry.id not in protected][: MAX_SNAPSHOTS - len(protected)]
    remaining = store.prune([*protected, *others], bound, protected)
    return [entry.id for entry in known if entry.id not in remaining]


def _bound_store(limits: TreeLimits) -> int:
    return MAX_STORE_BYTES if limits.max_bytes == MAX_BYTES else limits.max_bytes


async def _find_limits(context: RuntimeContext, record: RuntimeRecord) -> TreeLimits:
    """What a snapshot may have. Snapshots count for the session's use of the disk, of which they get a quarter."""
    environment = (await load_environment(context, record.environment, record.environment_version)).environment
    return TreeLimits(max_bytes=min(MAX_BYTES, environment.limits.disk_bytes // 4))


async def _is_live(context: RuntimeContext, session: LoadedRuntime) -> bool:
    """Whether commands or a shell of the session are live, as far as its record knows of them."""
    record = session.record
    if not record.sandbox.incarnation or not (record.shell.is_open or record.shell.unsettled):
        return False
    state = await context.sandboxes.state(session.id)
    return state is not None and state.incarnation == record.sandbox.incarnation


async def list_snapshots(context: RuntimeContext, session: str) -> list[dict[str, Any]]:
    """The snapshots of a session, newest first."""
    loaded = await context.unit.load(session)
    refuse_store(loaded)
    return [describe_entry(entry) for entry in reversed(loaded.record.snapshots.snapshots)]


def describe_entry(entry: SnapshotEntry) -> dict[str, Any]:
    return {
        "snapshotId": entry.id,
        "wakeId": entry.wake or None,
        "takenAt": format_iso(entry.at),
        "files": entry.files,
        "bytes": entry.bytes,
    }


async def diff_snapshot(context: RuntimeContext, session: str, snapshot: str, other: str | None = None) -> dict[str, Any]:
    """What has changed from a snapshot to another, or to the present state."""
    loaded = await context.unit.load(session)
    refuse_store(loaded)
    for name in (snapshot, other):
        if name is not None:
            require_snapshot(loaded, name)
    limits = await _find_limits(context, loaded.record)
    changes = await asyncio.to_thread(_compare, session_directory(context, loaded.record), snapshot, other, limits)
    shown, truncated = changes[:MAX_CHANGES], len(changes) > MAX_CHANGES
    return {"snapshotId": snapshot, "otherId": other, "changes": shown, "truncated": truncated}


def _compare(directory: Path, snapshot: str, other: str | None, limits: TreeLimits) -> list[dict[str, str]]:
    store = SnapshotStore(directory)
    before = store.load(snapshot)
    after = store.load(other).trees if other is not None else _read_present(directory, before, limits)
    found = (
        {"path": _show_path(area, entry), "kind": kind}
        for area, tree in before.trees.items()
        if area in after
        for entry, kind in compare_trees(tree, after[area])
    )
    return list(islice(found, MAX_CHANGES + 1))


def _show_path(area: str, entry: TreeEntry) -> str:
    """The path inside of the sandbox; that of a directory ends with a slash."""
    # A name may have bytes that are no text.
    name = os.fsdecode(entry.path).encode(errors="replace").decode()
    inside = name if area == AREA else f"{area}/{name}"
    return f"{WORKSPACE}/{inside}{'/' if entry.kind == 'directory' else ''}"


def _read_present(directory: Path, before: SnapshotManifest, limits: TreeLimits) -> dict[str, FileTree]:
    """The present state of the areas of a snapshot; only files that may differ are read."""
    trees = {}
    try:
        for area, tree in before.trees.items():
            listed = list_tree(directory / area, limits, without=AREAS[area])
            trees[area] = read_contents(directory / area, listed, tree.find_settled(), limits, compute_digest)
    except TreeTooLarge as problem:
        raise UsageProblem(f"The workspace cannot be compared: {problem}.", remedy="Compare two snapshots.") from problem
    except OSError as error:
        raise UsageProblem(f"The workspace cannot be read: {error.strerror}.", remedy="Compare two snapshots.") from error
    return trees


def require_snapshot(session: LoadedRuntime, snapshot: str) -> SnapshotEntry:
    entry = session.record.snapshots.find(snapshot)
    if entry is None:
        known = ", ".join(each.id for each in session.record.snapshots.snapshots)
        raise UsageProblem(
            f"Session {session.id} has no snapshot {snapshot!r:.80}.", remedy=f"It has: {known}." if known else "It has none."
        )
    return entry


async def run_to_end(work: Callable[[], T]) -> T:
    """Run work in a thread, to its end also if the caller is cancelled: nothing else may touch the files meanwhile."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
