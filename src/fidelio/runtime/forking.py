"""Forks: a new session whose conversation is that of another session up to a wake, with another model or version if wanted.

The events of the conversation are copied in a single commit, so that the first request of the fork begins with exactly the
messages of the source. The workspace is what it was after that wake, where a snapshot shows it, and otherwise what it is now.
Requests, queued wakes and schedules are not copied, and nothing that was used counts against the budgets of the fork.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.clock import format_iso
from fidelio.errors import UsageProblem
from fidelio.ledger.model import Event, NewEvent, PutDocument
from fidelio.ledger.paging import all_events
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.agents.versions import load_session_agent
from fidelio.runtime.attachments import repeat_resources
from fidelio.runtime.memory.session_memory import (
    SessionMemory,
    SessionStore,
    describe_version,
    list_session_versions,
    load_session_memory,
    read_number,
)
from fidelio.runtime.project.copying import COPY, MANIFEST, load_manifest, save_manifest
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.servers.listing import listing_document, load_listing
from fidelio.runtime.sessions import NewAgentSession, SessionPlan, plan_session
from fidelio.runtime.snapshots.snapshots import changes_workspace, run_to_end
from fidelio.runtime.snapshots.store import AREA, AREAS, SnapshotManifest, SnapshotStore
from fidelio.runtime.snapshots.tree import TreeLimits, TreeTooLarge
from fidelio.runtime.snapshots.writing import copy_area, set_modes, write_tree
from fidelio.runtime.specs import session_directory
from fidelio.runtime.stores import refuse_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.runtime.vaults import list_attached
from fidelio.runtime.wakes.conversation import LOST, TYPES
from fidelio.sandbox.directory import host_uid, remove_directory, share

# More than a window of any model holds; a longer conversation was compacted.
MAX_EVENTS = 9_000
# The present workspace of the source is copied within these limits.
_COPY = TreeLimits(max_bytes=2 << 30, max_entries=100_000)
_VERSIONS = 200
_DIGEST = re.compile(r"[0-9a-f]{64}")
_STORES: tuple[SessionStore, ...] = ("session_state", "working_buffer")


class History(msgspec.Struct, frozen=True):
    """What a fork begins with. `snapshot` is empty where none shows the workspace after the wake."""

    wake: str
    end: Event
    events: tuple[Event, ...]
    snapshot: str


async def fork_session(
    context: RuntimeContext, session: str, *, wake: str | None = None, model: str = "", version: int | None = None, by: str
) -> str:
    """Begin a session with the conversation of another session up to the end of a wake, by default its last. Returns its id."""
    source = await context.unit.load(session)
    refuse_store(source)
    if not source.record.agent_version:
        raise UsageProblem(f"Session {session} has no model, so it has no wakes.", remedy="Name a session of an agent.")
    history = await _read_history(context, source, wake)
    plan = await plan_session(context, await _describe_fork(context, source, model, version))
    try:
        await run_to_end(lambda: _fill(session_directory(context, source.record), plan.directory, history.snapshot))
        decision = await _decide(context, source, history, plan, by)
        await context.unit.create(plan.session, RuntimeRecord(), decision)
    except BaseException:
        await asyncio.to_thread(remove_directory, plan.directory)
        raise
    return plan.session


async def _describe_fork(context: RuntimeContext, source: LoadedRuntime, model: str, version: int | None) -> NewAgentSession:
    record = source.record
    former = await load_session_agent(context, record)
    # What a person has changed for the session holds for the fork, too; the rest is that of its version.
    changed = {
        name: policy for name, policy in record.policies.items() if former.definition.tools.list_policies().get(name) != policy
    }
    return NewAgentSession(
        project=record.project,
        agent=record.agent,
        version=record.agent_version if version is None else version,
        # Another version is taken as it is.
        variant=record.agent_variant if version is None else "",
        model=model or record.model,
        title=record.title,
        environment=record.environment,
        environment_version=record.environment_version,
        mount=f"{record.mount_source}:{record.mount_mode}" if record.mount_mode else None,
        vaults=tuple(vault.name for vault in await list_attached(context, record)),
        vault_ids=record.vault_ids,
        resources=repeat_resources(record.resources),
        budget=record.budget,
        tools=record.tools,
        policies=changed,
        depth=record.depth,
    )


async def _read_history(context: RuntimeContext, source: LoadedRuntime, wake: str | None) -> History:
    types = (*TYPES, e.SPAN_COMPLETED, e.SNAPSHOT_TAKEN, e.SNAPSHOT_RESTORED)
    events = await all_events(context.ledger, source.id, types=types)
    ended = [event for event in events if event.type == e.SPAN_COMPLETED and event.body.get("span_kind") == "wake"]
    found = [event for event in ended if wake is None or event.body.get("wake_id") == wake]
    if not found:
        missing = "no wake has ended" if wake is None else f"no wake {wake!r:.80} has ended"
        raise UsageProblem(f"In session {source.id} {missing}.", remedy="Wait for the end of the wake, or name another one.")
    end = found[-1]
    copied = tuple(_select(events, end.seq))
    if len(copied) > MAX_EVENTS:
        raise UsageProblem(f"The conversation has {len(copied):,} events, too many for a fork.", remedy="Name an earlier wake.")
    snapshot = _find_snapshot(events, end.seq)
    known = snapshot if source.record.snapshots.find(snapshot) else ""
    return History(end.body["wake_id"], end, copied, known)


def _select(events: Iterable[Event], end: int) -> Iterator[Event]:
    """The events of the conversation up to a sequence number; of what was summarised only the summary, which comes first."""
    before = [event for event in events if event.seq <= end and event.type in TYPES]
    summaries = [event for event in before if event.type == e.CONTEXT_COMPACTED and not event.redacted]
    begin = summaries[-1].body["through_seq"] if summaries else 0
    yield from summaries[-1:]
    uses = {event.body.get("id") for event in before if event.type in (e.TOOL_USE, e.CUSTOM_TOOL_USE) and _has_wake(event)}
    for event in before:
        if event.seq > begin and event.type != e.CONTEXT_COMPACTED and _is_of_conversation(event, uses):
            yield event


def _is_of_conversation(event: Event, uses: set[Any]) -> bool:
    body = event.body
    if event.type == e.SPAN_STARTED:
        return body.get("span_kind") == "wake"
    if event.type in (e.TOOL_RESULT, e.USER_TOOL_RESULT, e.WORKER_RESULT):
        return (body.get("tool_use_id") or body.get("custom_tool_use_id")) in uses
    # Of a call that was redacted nothing is left; a redacted text leaves a mark in the conversation.
    return _has_wake(event) or (event.redacted and event.type in (e.AGENT_MESSAGE, e.AGENT_THINKING))


def _has_wake(event: Event) -> bool:
    return bool(event.body.get("wake_id"))


def _find_snapshot(events: Iterable[Event], end: int) -> str:
    """The snapshot that shows the workspace after an event; empty if none does."""
    listed = tuple(events)
    changes = [event.seq for event in listed if _changes_workspace(event)]
    taken = [(event.seq, event.body.get("snapshot_id", "")) for event in listed if event.type == e.SNAPSHOT_TAKEN]
    later = next(((seq, name) for seq, name in taken if seq > end), None)
    if later is not None and not any(end < change < later[0] for change in changes):
        return str(later[1])
    earlier = next(((seq, name) for seq, name in reversed(taken) if seq <= end), None)
    if earlier is not None and not any(earlier[0] < change <= end for change in changes):
        return str(earlier[1])
    return ""


def _changes_workspace(event: Event) -> bool:
    body = event.body
    if event.type == e.SNAPSHOT_RESTORED:
        return True
    is_call = event.type == e.SPAN_STARTED and body.get("span_kind") == "tool"
    is_external = event.type == e.TOOL_USE and not body.get("wake_id")
    return (is_call or is_external) and changes_workspace(str(body.get("name", "")))


def _fill(source: Path, target: Path, snapshot: str) -> None:
    """Write the workspace, and the copy of the project if it has any, into the directory of the fork."""
    store = SnapshotStore(source)
    manifest = store.load(snapshot) if snapshot else None
    areas = [area for area in AREAS if area == AREA or (source / MANIFEST).exists()]
    try:
        for area in areas:
            _fill_area(source, target, area, store, manifest)
        if COPY in areas:
            save_manifest(target, load_manifest(source))
    except TreeTooLarge as problem:
        raise UsageProblem(f"The workspace cannot be copied: {problem}.", remedy="Name a wake with a snapshot.") from problem
    except OSError as error:
        remedy = "Check the disk of the home, and fork again."
        raise UsageProblem(f"The workspace cannot be copied: {error.strerror}.", remedy=remedy) from error


def _fill_area(source: Path, target: Path, area: str, store: SnapshotStore, manifest: SnapshotManifest | None) -> None:
    (target / area).mkdir(mode=0o755, exist_ok=True)
    if manifest is not None and area in manifest.trees:
        tree = manifest.trees[area]
        write_tree(target / area, tree, store.read_blob)
    else:
        tree = copy_area(source / area, target / area, replace(_COPY), AREAS[area])
    share(target / area, host_uid(target))
    set_modes(target / area, tree)


async def _decide(
    context: RuntimeContext, source: LoadedRuntime, history: History, plan: SessionPlan, by: str
) -> SessionDecision[None]:
    (started,) = plan.events
    body = dict(started.body)
    if body["environment"] == source.record.environment:
        body["environment_version"] = source.record.environment_version
    origin = {"session": source.id, "wake": history.wake, "seq": history.end.seq}
    forked = {**origin, "wake_id": history.wake, "snapshot_id": history.snapshot}
    events = (
        replace(started, body={**body, "forked_from": origin}, actor=by),
        *map(_copy, history.events),
        NewEvent(type=e.SESSION_FORKED, body=forked, actor=by),
    )
    documents = await _copy_memory(context, source, history, plan.session)
    listing = await load_listing(context, source.id)
    # With another version, the tools of its servers are listed anew.
    if listing is not None and body["agent_version"] == source.record.agent_version:
        documents = (*documents, listing_document(plan.session, listing))
    return SessionDecision(None, events=events, create=plan.create, documents=documents)


def _copy(event: Event) -> NewEvent:
    """The same event for another session. It gets an id of its own; the ids of tool calls are in its body."""
    body = event.body
    if event.redacted:
        texts = {"content": [{"type": "text", "text": LOST}]} if event.type == e.AGENT_MESSAGE else {}
        body = {**texts, "wake_id": "redacted"}
    if event.type == e.CONTEXT_COMPACTED:
        # Of this session, only its beginning is before the summary.
        body = {**body, "through_seq": 1}
    return NewEvent(type=event.type, body=body, actor=event.actor, time=event.time, blobs=tuple(_find_digests(body)))


def _find_digests(value: Any) -> Iterator[str]:
    """The blobs that a body refers to: every stored text names its own."""
    if isinstance(value, Mapping):
        if isinstance(digest := value.get("blob"), str) and _DIGEST.fullmatch(digest):
            yield digest
        for inner in value.values():
            yield from _find_digests(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _find_digests(inner)


async def _copy_memory(
    context: RuntimeContext, source: LoadedRuntime, history: History, session: str
) -> tuple[PutDocument, ...]:
    """The stores of the session's memory, with what they held at the end of the wake."""
    documents: list[PutDocument] = []
    until, now = format_iso(history.end.time), context.clock()
    for target in _STORES:
        versions = await list_session_versions(context, source.id, target, _VERSIONS)
        chosen = next((version for version in versions if version.created_at <= until), None)
        if chosen is None:
            continue
        number = read_number(target, chosen.version_id)
        held = await load_session_memory(context, source.id, target, number)
        copied = SessionMemory(session, target).apply(held.text, "replace")
        version = describe_version(copied, agent=source.record.agent, mode="replace", wake=history.wake, now=now)
        documents += copied.build_documents(version)
    return tuple(documents)
