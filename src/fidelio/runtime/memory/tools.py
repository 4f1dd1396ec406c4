"""The memory tools: the stores of a session and of its agent, and learnings."""

from __future__ import annotations

from typing import Any

from fidelio.errors import ToolRefused
from fidelio.ledger.encoding import hash_blob
from fidelio.runtime import events as e
from fidelio.runtime.memory.checkpoint import describe_checkpoint
from fidelio.runtime.memory.learnings import list_learnings
from fidelio.runtime.memory.notes import (
    list_note_versions,
    make_conflict,
    prepare_note,
    promote_note,
    read_content,
    read_note_version,
)
from fidelio.runtime.memory.parameters import (
    ListLearnings,
    ListMemoryVersions,
    ReadMemory,
    ReadMemoryVersion,
    Store,
    WriteMemory,
)
from fidelio.runtime.memory.session_memory import (
    MAX_CHARACTERS,
    describe_version,
    find_session_version,
    list_session_versions,
    load_session_memory,
    read_number,
)
from fidelio.runtime.memory.workspace import load_workspace_memory
from fidelio.runtime.navigation.visibility import load_visible
from fidelio.runtime.resources.drafts import open_substrate
from fidelio.runtime.shell.views import render_state
from fidelio.runtime.tools.model import Implementation, LoadedRuntime, Preparation, ToolCall, ToolResult, event

# Title, description, whether it belongs to the session or to the agent, and how it is written.
_STORES: dict[Store, tuple[str, str, str, bool]] = {
    "checkpoint": ("Checkpoint", "Where the session stands: last wake, summary, queued wakes, outcomes.", "session", False),
    "shell_state": ("Shell state", "Directory, variable names and recent commands of the shell.", "session", False),
    "session_state": ("Session state", "Your own notes about the state of your work; versioned.", "session", True),
    "working_buffer": ("Working buffer", "Your own scratch text for later wakes; versioned.", "session", True),
    "workspace_memory": (
        "Shared memory",
        "The whole MEMORY.md, which is in the prompt of all your sessions.",
        "agent",
        False,
    ),
    "workspace_memory_notes": ("Shared notes", "The notes of MEMORY.md; memory_promote_note adds to them.", "agent", False),
}


async def _list_stores(_: ToolCall, __: Any, ___: Preparation) -> ToolResult:
    stores = [
        {
            "target": target,
            "title": title,
            "description": description,
            "scope": scope,
            "writable": writable,
            "searchable": True,
        }
        for target, (title, description, scope, writable) in _STORES.items()
    ]
    return ToolResult(output={"count": len(stores), "stores": stores})


async def _read(call: ToolCall, arguments: ReadMemory, _: Preparation) -> ToolResult:
    session = await load_visible(call, arguments.sessionId)
    content, version = await _load(call, session, arguments.target)
    shown = content[:MAX_CHARACTERS] if isinstance(content, str) else content
    return ToolResult(
        output={
            "sessionId": session.id,
            "target": arguments.target,
            "content": shown,
            "versionId": version,
            "contentHash": hash_blob(content.encode()) if isinstance(content, str) else None,
            "truncated": shown != content,
        }
    )


async def _load(call: ToolCall, session: LoadedRuntime, target: Store) -> tuple[str | dict[str, Any], str | None]:
    """The content of a store and the id of its version."""
    if target == "checkpoint":
        return await describe_checkpoint(call.context, session), None
    if target == "shell_state":
        return render_state(session.record.shell), None
    if target in ("session_state", "working_buffer"):
        stored = await load_session_memory(call.context, session.id, target)
        return stored.text, stored.version_id
    memory = await load_workspace_memory(await open_substrate(call))
    return memory.text if target == "workspace_memory" else memory.section("notes"), memory.version_id


async def _list_versions(call: ToolCall, arguments: ListMemoryVersions, _: Preparation) -> ToolResult:
    session = await load_visible(call, arguments.sessionId)
    if arguments.target == "workspace_memory_notes":
        versions = await list_note_versions(await open_substrate(call), arguments.limit)
    else:
        versions = await list_session_versions(call.context, session.id, arguments.target, arguments.limit)
    return ToolResult(output={"count": len(versions), "versions": [version.describe() for version in versions]})


async def _read_version(call: ToolCall, arguments: ReadMemoryVersion, _: Preparation) -> ToolResult:
    session, target = await load_visible(call, arguments.sessionId), arguments.target
    if target == "workspace_memory_notes":
        found, notes = await read_note_version(await open_substrate(call), arguments.versionId)
        return ToolResult(output={"version": found.describe(), "content": notes})
    version = await find_session_version(call.context, session.id, target, arguments.versionId)
    if version is None:
        raise ToolRefused(
            f"{target} has no version {arguments.versionId!r:.80}.",
            remedy="List them with memory_list_versions.",
            reason="not_found",
        )
    stored = await load_session_memory(call.context, session.id, target, read_number(target, version.version_id))
    return ToolResult(output={"version": version.describe(), "content": stored.text})


async def _write(call: ToolCall, arguments: WriteMemory, _: Preparation) -> ToolResult:
    _check_own_session(call, arguments.sessionId)
    content = read_content(arguments.content)
    current = await load_session_memory(call.context, call.session.id, arguments.target)
    if arguments.expectedVersionId not in (None, current.version_id):
        raise make_conflict(arguments.target, str(arguments.expectedVersionId), current.version_id)
    new = current.apply(content, arguments.mode)
    version = describe_version(new, agent=call.record.agent, mode=arguments.mode, wake=call.wake, now=call.context.clock())
    body = {
        "target": arguments.target,
        "mode": arguments.mode,
        "version_id": version.version_id,
        "previous_version_id": current.version_id or "",
        "content_digest": version.content_hash,
        "size": version.size_bytes,
        **({"wake_id": call.wake} if call.wake else {}),
    }
    output = {
        "sessionId": call.session.id,
        "target": arguments.target,
        "mode": arguments.mode,
        # It is a document of the ledger, and no file of the sandbox.
        "path": None,
        "versionId": version.version_id,
        "previousVersionId": current.version_id,
        "contentHash": version.content_hash,
        "content": new.text,
    }
    return ToolResult(output=output, events=(event(e.MEMORY_CHANGED, body),), documents=new.build_documents(version))


def _check_own_session(call: ToolCall, session: str | None) -> None:
    if session not in (None, call.session.id):
        raise ToolRefused(
            f"Session {session!r:.80} is not this session: a session writes only its own memory.",
            remedy="Leave sessionId out.",
            reason="other_session",
        )


async def _list_learnings(call: ToolCall, arguments: ListLearnings, _: Preparation) -> ToolResult:
    record = call.record
    found = await list_learnings(call.context, record.project, record.agent, arguments.limit, reader=record)
    described = [learning.describe(record.agent) for learning in found]
    return ToolResult(output={"agentId": record.agent, "count": len(described), "learnings": described})


IMPLEMENTATIONS: dict[str, Implementation] = {
    "memory_list": Implementation(_list_stores),
    "memory_read": Implementation(_read),
    "memory_list_versions": Implementation(_list_versions),
    "memory_read_version": Implementation(_read_version),
    "memory_write": Implementation(_write),
    "memory_promote_note": Implementation(promote_note, prepare_note),
    "learning_list": Implementation(_list_learnings),
}
