"""`memory_promote_note`: notes of an agent in the managed section of MEMORY.md, which all its sessions have in their prompts.

It is a shared mutation like a promotion: a person allows exact bytes on top of an exact version, the outcomes must be met where
there are any, and the write is a new version of the shared file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec

from fidelio.engine.variables import is_blank
from fidelio.errors import ToolRefused
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.long_text import sanitize_text, shorten_to_line
from fidelio.ledger.model import NewEvent
from fidelio.runtime import events as e
from fidelio.runtime.memory.parameters import Mode, PromoteNote
from fidelio.runtime.memory.session_memory import MemoryVersion
from fidelio.runtime.memory.workspace import NOTES_SOURCE, WorkspaceMemory, build_version, load_workspace_memory
from fidelio.runtime.outcomes.gate import check_gate, describe_outcomes, is_shell_busy
from fidelio.runtime.outcomes.verdicts import read_verdict
from fidelio.runtime.permissions.approvals import digest_call
from fidelio.runtime.resources.compare import compare_texts, render_unified
from fidelio.runtime.resources.drafts import open_substrate
from fidelio.runtime.resources.memory_file import MEMORY_FILES, read_section
from fidelio.runtime.resources.promotion import load_version
from fidelio.runtime.resources.versions import PREVIEW, NewVersion, Substrate, Version, decode_text
from fidelio.runtime.tools.model import Preparation, ToolCall, ToolResult, event
from fidelio.sandbox.model import SUBSTRATE

TARGET = "workspace_memory_notes"
SHOWN_LINES = 40


def read_content(content: str) -> str:
    """The content of a call, trimmed. Raises `ToolRefused` if a person would see nothing in it."""
    if is_blank(content):
        raise ToolRefused("The content is empty.", remedy="Pass the text to store.", reason="empty_content")
    return sanitize_text(content).strip()


def make_conflict(target: str, expected: str, found: str | None) -> ToolRefused:
    """The refusal of a call whose precondition does not hold."""
    return ToolRefused(
        f"expectedVersionId is {expected!r:.80}, but {target} has {found or 'no version'}.",
        remedy="Nothing was written. Read it again, and pass the versionId that you get.",
        reason="precondition_failed",
    )


async def prepare_note(call: ToolCall, arguments: PromoteNote) -> Preparation:
    memory = await load_workspace_memory(await open_substrate(call))
    if arguments.expectedVersionId not in (None, memory.version_id):
        raise make_conflict(memory.file.path, str(arguments.expectedVersionId), memory.version_id)
    text = _plan_text(memory, arguments)
    bound = {
        "contentDigest": hash_blob(text.encode()),
        "targetPath": memory.file.path,
        "targetVersion": memory.version_id or "",
    }
    preparation = Preparation(bound=bound)
    request, busy = _find_request(call, arguments, preparation), await is_shell_busy(call)
    requires, now = arguments.requireOutcomePass, call.context.clock()
    check_gate(call.record, shell_busy=busy, request=request, requires=requires, tools=call.tools, now=now)
    change = await asyncio.to_thread(lambda: tuple(_describe_change(memory, text)))
    about = (*change, *describe_outcomes(call.record, shell_busy=busy, request=request))
    return msgspec.structs.replace(preparation, about=about)


async def promote_note(call: ToolCall, arguments: PromoteNote, preparation: Preparation) -> ToolResult:
    substrate = await open_substrate(call)
    memory = await load_workspace_memory(substrate)
    text = _plan_text(memory, arguments)
    if (memory.version_id or "") != preparation.bound["targetVersion"]:
        raise make_conflict(memory.file.path, str(preparation.bound["targetVersion"]), memory.version_id)
    source = f"{NOTES_SOURCE}{arguments.mode}"
    new = await build_version(substrate, memory, text, session=call.session.id, source=source)
    busy, now = await is_shell_busy(call), call.context.clock()
    verdict = read_verdict(call.record, shell_busy=busy, tools=call.tools, ignoring=call.id, now=now)
    output = {**_describe_result(call, memory, new, text, arguments.mode), "outcomeEvaluation": verdict}
    return ToolResult(output=output, events=tuple(_build_events(call, memory, new, arguments.mode)), linked=(new.change,))


def _plan_text(memory: WorkspaceMemory, arguments: PromoteNote) -> str:
    """The whole file with the note."""
    content, notes = read_content(arguments.content), memory.section("notes")
    body = f"{notes}\n{content}" if arguments.mode == "append" and notes else content
    return memory.with_section("notes", body)


def _find_request(call: ToolCall, arguments: PromoteNote, preparation: Preparation) -> str:
    """The approval of this very call, which must not count as something that the session waits for."""
    digest = digest_call(call.definition.name, msgspec.to_builtins(arguments), call.record, preparation)
    approvals = call.record.approvals.values()
    found = (each.request for each in approvals if each.digest == digest or (each.tool_use and each.tool_use == call.id))
    return next(found, "")


def _describe_result(call: ToolCall, memory: WorkspaceMemory, new: NewVersion, text: str, mode: Mode) -> dict[str, Any]:
    notes = read_section(text, "notes")
    return {
        "sessionId": call.session.id,
        "target": TARGET,
        "mode": mode,
        "path": f"{SUBSTRATE}/{memory.file.path}",
        "versionId": new.version.version_id,
        "previousVersionId": memory.version_id,
        "contentHash": hash_blob(notes.encode()),
        "content": notes,
    }


def _build_events(call: ToolCall, memory: WorkspaceMemory, new: NewVersion, mode: Mode) -> Iterator[NewEvent]:
    version = new.version
    facts = {
        "content_digest": version.content_hash,
        "version_id": version.version_id,
        "previous_version_id": memory.version_id or "",
        **({"wake_id": call.wake} if call.wake else {}),
    }
    yield event(e.PROMOTED, {"source_path": "", "restored_from": "", "target_path": version.target_path, **facts})
    yield event(e.MEMORY_CHANGED, {"target": TARGET, "mode": mode, "size": version.size_bytes, **facts})


def _describe_change(memory: WorkspaceMemory, text: str) -> Iterator[str]:
    """What a person reads in addition to the content: what it becomes part of, and which lines of the file change."""
    yield f"This changes the notes of {SUBSTRATE}/{memory.file.path}, on top of {memory.version_id or 'no version'}."
    yield "Every session of this agent in this project has them in its prompt."
    lines = list(render_unified(compare_texts(memory.text, text), "shared", "new"))[2:]
    changed = [line for line in lines if line[0] in "+-"]
    yield from changed[:SHOWN_LINES]
    if len(changed) > SHOWN_LINES:
        yield f"... and {len(changed) - SHOWN_LINES} more changed lines."


async def list_note_versions(substrate: Substrate, limit: int) -> tuple[MemoryVersion, ...]:
    """The newest versions of the memory file, newest first."""
    return tuple([version for version, _ in await load_note_versions(substrate, limit)])


async def load_note_versions(substrate: Substrate, limit: int) -> tuple[tuple[MemoryVersion, str], ...]:
    """The newest versions of the memory file, newest first, each with its notes: empty if a person has erased them."""
    memory = await load_workspace_memory(substrate)
    versions = await substrate.list_versions(memory.file.path, limit)
    loaded = [(version, await _load_notes(substrate, version)) for version in versions]
    return tuple((_describe_version(version, notes), notes) for version, notes in loaded)


async def read_note_version(substrate: Substrate, version_id: str) -> tuple[MemoryVersion, str]:
    version = await load_version(substrate, version_id)
    if version.target_path not in MEMORY_FILES:
        raise ToolRefused(
            f"Version {version_id} is one of {version.target_path}, not of the memory file.",
            remedy="Read it with resources_read_version.",
            reason="not_found",
        )
    await substrate.load_content(version)
    notes = await _load_notes(substrate, version)
    return _describe_version(version, notes), notes


async def _load_notes(substrate: Substrate, version: Version) -> str:
    """The notes in a version; empty if a person has redacted it."""
    content = await substrate.find_content(version)
    return read_section(decode_text(content or b"") or "", "notes")


def _describe_version(version: Version, notes: str) -> MemoryVersion:
    source = version.source_path or ""
    is_note = source.startswith(NOTES_SOURCE)
    return MemoryVersion(
        version_id=version.version_id,
        agent_id=version.agent_id,
        session_id=version.session_id,
        target=TARGET,
        created_at=version.created_at,
        source="memory_promote_note" if is_note else version.origin,
        mode=source.removeprefix(NOTES_SOURCE) if is_note else None,
        content_hash=hash_blob(notes.encode()),
        size_bytes=len(notes.encode()),
        wake_id=version.wake_id,
        preview=shorten_to_line(notes, PREVIEW),
    )
