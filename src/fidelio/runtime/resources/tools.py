"""Tools for shared resources: list, copy, compare, promote, restore. Writing is in `promotion`, drafts are in `drafts`."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from fidelio.runtime.resources.compare import compare_texts, preview
from fidelio.runtime.resources.drafts import SessionFile, copy_shared, list_drafts, open_substrate, read_session_file
from fidelio.runtime.resources.paths import read_session_path, read_shared_path
from fidelio.runtime.resources.promotion import (
    load_version,
    prepare_promotion,
    prepare_restoring,
    promote,
    restore,
)
from fidelio.runtime.resources.versions import SharedFile, decode_text
from fidelio.runtime.tools.model import Implementation, Preparation, ToolCall, ToolResult
from fidelio.runtime.tools.parameters import CompareResource, ListVersions, ReadVersion
from fidelio.runtime.vaults import list_visible
from fidelio.sandbox.model import VAULTS, Mount

# What one answer holds of a version; a longer one can be restored and read in parts.
MAX_CHARACTERS = 100_000
MAX_BINARY = 64 << 10


async def _list_resources(call: ToolCall, _: Any, __: Preparation) -> ToolResult:
    resources = [_describe_mount(mount) for mount in call.spec.mounts]
    return ToolResult(output={"sessionId": call.session.id, "resources": resources})


def _describe_mount(mount: Mount) -> dict[str, Any]:
    described: dict[str, Any] = {"kind": mount.kind, "mountPath": mount.path, "access": mount.access}
    if mount.kind == "vault":
        described["vaultName"] = mount.path.removeprefix(f"{VAULTS}/")
    return described


async def _list_versions(call: ToolCall, arguments: ListVersions, _: Preparation) -> ToolResult:
    substrate = await open_substrate(call)
    versions = await substrate.list_versions(read_shared_path(arguments.targetPath), arguments.limit)
    return ToolResult(output={"count": len(versions), "versions": [await substrate.describe(each) for each in versions]})


async def _read_version(call: ToolCall, arguments: ReadVersion, _: Preparation) -> ToolResult:
    substrate = await open_substrate(call)
    version = await load_version(substrate, arguments.versionId)
    shown = _show_content(await substrate.load_content(version))
    return ToolResult(output={"version": await substrate.describe(version), **shown})


def _show_content(content: bytes) -> dict[str, Any]:
    text = decode_text(content)
    if text is not None:
        is_cut = len(text) > MAX_CHARACTERS
        return {"content": text[:MAX_CHARACTERS], "encoding": "utf-8", "truncated": is_cut}
    encoded = base64.b64encode(content[:MAX_BINARY]).decode()
    return {"content": encoded, "encoding": "base64", "truncated": len(content) > MAX_BINARY}


async def _compare(call: ToolCall, arguments: CompareResource, _: Preparation) -> ToolResult:
    path = read_session_path(arguments.sessionPath)
    substrate = await open_substrate(call)
    shared = await substrate.load(read_shared_path(arguments.substratePath or path))
    draft = await read_session_file(call, path)
    content = None if shared.version is None else await substrate.find_content(shared.version)
    differences = await asyncio.to_thread(_describe_differences, content, draft.content, arguments.maxPreviewLines)
    return ToolResult(output={**_describe_comparison(call, draft, shared, content), **differences})


def _describe_comparison(call: ToolCall, draft: SessionFile, shared: SharedFile, content: bytes | None) -> dict[str, Any]:
    version = shared.version
    return {
        "sessionId": call.session.id,
        "sessionPath": draft.path,
        "substratePath": shared.path,
        "substrateExists": version is not None,
        "identical": content == draft.content,
        "sessionCharCount": _count_characters(draft.content),
        "substrateCharCount": None if content is None else _count_characters(content),
        "sessionContentHash": draft.digest,
        "substrateContentHash": shared.digest or None,
        "latestVersionId": version.version_id if version else None,
        "latestVersionCreatedAt": version.created_at if version else None,
        "latestVersionContentHash": version.content_hash if version else None,
        "latestVersionWakeId": version.wake_id if version else None,
        "promotePrecondition": {
            "expectedVersionId": version.version_id if version else None,
            "expectedContentHash": shared.digest or None,
            "versionAvailable": version is not None,
            "contentHashAvailable": version is not None,
        },
    }


def _count_characters(content: bytes) -> int | None:
    text = decode_text(content)
    return None if text is None else len(text)


def _describe_differences(old: bytes | None, new: bytes, limit: int) -> dict[str, Any]:
    before, after = decode_text(old or b""), decode_text(new)
    if before is None or after is None:
        return {"binary": True, "differingLineCount": None, "preview": [], "previewTruncated": False}
    comparison = compare_texts(before, after)
    shown = preview(comparison, limit)
    return {
        "binary": False,
        "differingLineCount": comparison.differing_lines,
        "differingLineCountExact": comparison.is_exact,
        "preview": shown,
        "previewTruncated": len(shown) < comparison.differing_lines,
    }


async def _list_vaults(call: ToolCall, _: Any, __: Preparation) -> ToolResult:
    vaults = await list_visible(call.context, call.record)
    return ToolResult(output={"count": len(vaults), "vaults": [vault.describe() for vault in vaults]})


IMPLEMENTATIONS: dict[str, Implementation] = {
    "resources_list": Implementation(_list_resources),
    "resources_stage_from_substrate": Implementation(copy_shared),
    "resources_list_staged_drafts": Implementation(list_drafts),
    "resources_list_versions": Implementation(_list_versions),
    "resources_read_version": Implementation(_read_version),
    "resources_compare_with_substrate": Implementation(_compare),
    "resources_promote_to_substrate": Implementation(promote, prepare_promotion),
    "resources_restore_version": Implementation(restore, prepare_restoring),
    "vault_list": Implementation(_list_vaults),
}
