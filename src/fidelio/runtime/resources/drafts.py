"""Drafts: shared files that were copied into the workspace to be changed there.

Every byte of the workspace goes through the sandbox, where a link or a race leads to nothing that a command could not reach.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any

import msgspec

from fidelio.clock import format_iso
from fidelio.errors import ToolRefused
from fidelio.runtime import events as e
from fidelio.runtime.draft_record import StagedDraft
from fidelio.runtime.resources.paths import absolute_session_path, read_session_path, read_shared_path
from fidelio.runtime.resources.versions import MAX_BYTES, SharedFile, Substrate
from fidelio.runtime.tools.model import Preparation, ToolCall, ToolResult, event
from fidelio.runtime.tools.parameters import CopyResource

_CHUNK = 1 << 20


class SessionFile(msgspec.Struct, frozen=True):
    """A file of the workspace as it was read."""

    path: str
    content: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


async def open_substrate(call: ToolCall) -> Substrate:
    return await Substrate.open(call.context, call.record.project, call.record.agent)


async def read_session_file(call: ToolCall, path: str) -> SessionFile:
    """Read a file of the workspace as a whole. Raises `ToolRefused` if it is missing or too large."""
    content = bytearray()
    while True:
        arguments = {"path": absolute_session_path(path), "offset": len(content), "length": _CHUNK}
        output = await call.act("read_bytes", arguments)
        size, data = output.get("size"), _decode(output.get("data"))
        if (isinstance(size, int) and size > MAX_BYTES) or len(content) + len(data) > MAX_BYTES:
            raise _too_large(path, max(size if isinstance(size, int) else 0, len(content) + len(data)))
        content += data
        if output.get("eof") is True or len(data) < _CHUNK:
            return SessionFile(path, bytes(content))


def _decode(data: object) -> bytes:
    """The bytes of a reply, which is as hostile as the agent inside."""
    try:
        return base64.b64decode(data, validate=True) if isinstance(data, str) else b""
    except (binascii.Error, ValueError):
        return b""


def _too_large(path: str, size: int) -> ToolRefused:
    return ToolRefused(
        f"{path} has {size} bytes; a shared file has at most {MAX_BYTES}.",
        remedy="Share a smaller file, or where the content can be found.",
        reason="resource_too_large",
    )


async def load_shared(substrate: Substrate, path: str) -> SharedFile:
    """A shared file that must exist."""
    file = await substrate.load(path)
    if file.version is None:
        listed = ", ".join(await substrate.list_paths(20)) or "none yet"
        raise ToolRefused(f"There is no shared file {path}.", remedy=f"Shared files: {listed}.", reason="not_found")
    return file


async def copy_shared(call: ToolCall, arguments: CopyResource, _: Preparation) -> ToolResult:
    source = read_shared_path(arguments.sourcePath)
    target = read_session_path(arguments.targetPath or source)
    substrate = await open_substrate(call)
    file = await load_shared(substrate, source)
    existing = await _read_digest(call, target)
    if existing is not None and not arguments.overwrite:
        return _reuse(call, file, target, existing)
    assert file.version is not None
    content = await substrate.load_content(file.version)
    await call.act(
        "write_bytes",
        {
            "path": absolute_session_path(target),
            "data": base64.b64encode(content).decode(),
            "append": False,
            # What was looked at is what is replaced: a file that appeared meanwhile stays.
            "expectDigest": existing or "",
        },
    )
    return _describe_staged(call, file, target, file.digest, is_new=True)


def _reuse(call: ToolCall, file: SharedFile, target: str, existing: str) -> ToolResult:
    draft = call.record.drafts.get(target)
    if existing != file.digest and (draft is None or draft.source_path != file.path):
        raise ToolRefused(
            f"{absolute_session_path(target)} exists and was not copied from {file.path}.",
            remedy="Choose another targetPath, or pass overwrite: true to replace it.",
            reason="exists",
        )
    return _describe_staged(call, file, target, existing, is_new=False)


def _describe_staged(call: ToolCall, file: SharedFile, target: str, digest: str, *, is_new: bool) -> ToolResult:
    assert file.version is not None
    output = {
        "sessionId": call.session.id,
        "sourcePath": file.path,
        "targetPath": target,
        "bytes": file.version.size_bytes,
        "reusedExisting": not is_new,
        "divergedFromSource": digest != file.digest,
        "sourceContentHash": file.digest,
        "targetContentHash": digest,
    }
    known = call.record.drafts.get(target)
    if not is_new and known is not None and known.source_path == file.path:
        return ToolResult(output=output)
    body = {"source_path": file.path, "source_digest": file.digest, "target_path": target, "target_digest": digest}
    return ToolResult(output=output, events=(event(e.STAGED, body),))


async def list_drafts(call: ToolCall, _: Any, __: Preparation) -> ToolResult:
    substrate = await open_substrate(call)
    drafts = [await _describe_draft(call, substrate, path, draft) for path, draft in sorted(call.record.drafts.items())]
    return ToolResult(output={"count": len(drafts), "drafts": drafts})


async def _describe_draft(call: ToolCall, substrate: Substrate, path: str, draft: StagedDraft) -> dict[str, Any]:
    current = await _read_digest(call, path)
    file = await substrate.load(draft.source_path)
    shared = file.digest or None
    return {
        "sourcePath": draft.source_path,
        "targetPath": path,
        "stagedAt": format_iso(draft.staged_at),
        "draftExists": current is not None,
        "substrateExists": shared is not None,
        "draftContentHash": current,
        "substrateContentHash": shared,
        "latestVersionId": file.version.version_id if file.version else None,
        "sourceChangedSinceStage": shared != draft.source_digest,
        "draftChangedSinceStage": current != draft.target_digest,
        "status": _find_status(current, shared),
    }


def _find_status(current: str | None, shared: str | None) -> str:
    if current is None:
        return "draft_missing"
    if shared is None:
        return "substrate_missing"
    return "in_sync" if current == shared else "ready"


async def _read_digest(call: ToolCall, path: str) -> str | None:
    """The digest of a file of the workspace; None if there is none."""
    result = await call.try_action("digest", {"path": absolute_session_path(path)})
    if result.error is not None:
        if result.error.code == "not_found":
            return None
        raise ToolRefused(result.error.message, reason=result.error.code, retryable=result.error.retryable)
    return str(result.output.get("digest", ""))
