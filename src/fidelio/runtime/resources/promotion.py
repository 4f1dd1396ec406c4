"""Writing shared files: promotion of a draft, and restoring a version.

A person allows exact bytes on top of an exact version. The approval is bound to both; when it is carried out, the draft is read
again and must still have these bytes, and the commit fails if the shared file has another version by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.errors import ToolRefused
from fidelio.ledger.encoding import hash_blob
from fidelio.runtime import events as e
from fidelio.runtime.outcomes.gate import check_gate, describe_outcomes, is_shell_busy, refuse_switch
from fidelio.runtime.outcomes.verdicts import read_verdict
from fidelio.runtime.permissions.approvals import digest_call, escape
from fidelio.runtime.resources.compare import compare_texts, render_unified
from fidelio.runtime.resources.drafts import open_substrate, read_session_file
from fidelio.runtime.resources.memory_file import check_memory
from fidelio.runtime.resources.paths import read_session_path, read_shared_path
from fidelio.runtime.resources.versions import VERSION_ID, NewVersion, SharedFile, Substrate, Version, decode_text
from fidelio.runtime.tools.model import Preparation, ToolCall, ToolResult, event
from fidelio.runtime.tools.parameters import PromoteResource, RestoreVersion

SHOWN_LINES = 40
SHOWN_CHARACTERS = 160


async def prepare_promotion(call: ToolCall, arguments: PromoteResource) -> Preparation:
    source = read_session_path(arguments.sourcePath)
    target = read_shared_path(arguments.targetPath or source)
    refuse_switch(arguments.requireOutcomePass)
    substrate = await open_substrate(call)
    current = await substrate.load(target)
    _check_preconditions(arguments, current)
    if current.version is not None and not (arguments.overwrite or _has_precondition(arguments)):
        raise ToolRefused(
            f"The shared file {target} exists.",
            remedy="Compare first, then pass overwrite: true or the promotePrecondition of the comparison.",
            reason="exists",
        )
    draft = await read_session_file(call, source)
    return await _prepare_gated(call, arguments, await _prepare_write(substrate, current, draft.content))


async def promote(call: ToolCall, arguments: PromoteResource, preparation: Preparation) -> ToolResult:
    source = read_session_path(arguments.sourcePath)
    verdict = await _require_open_gate(call, arguments.requireOutcomePass)
    draft = await read_session_file(call, source)
    if draft.digest != preparation.bound["contentDigest"]:
        raise ToolRefused(
            f"{source} was changed after it was looked at; nothing was shared.",
            remedy="Compare and promote again.",
            reason="content_changed",
            retryable=True,
        )
    substrate = await open_substrate(call)
    current = await _load_bound(substrate, preparation)
    new = await substrate.new_version(current, draft.content, origin="promotion", session=call.session.id, source=source)
    return _describe_write(call, current, new, verdict, source_path=source)


async def prepare_restoring(call: ToolCall, arguments: RestoreVersion) -> Preparation:
    refuse_switch(arguments.requireOutcomePass)
    substrate = await open_substrate(call)
    version = await load_version(substrate, arguments.versionId)
    current = await substrate.load(version.target_path)
    _check_preconditions(arguments, current)
    prepared = await _prepare_write(substrate, current, await substrate.load_content(version))
    return await _prepare_gated(call, arguments, prepared)


async def restore(call: ToolCall, arguments: RestoreVersion, preparation: Preparation) -> ToolResult:
    verdict = await _require_open_gate(call, arguments.requireOutcomePass)
    substrate = await open_substrate(call)
    version = await load_version(substrate, arguments.versionId)
    current = await _load_bound(substrate, preparation)
    content = await substrate.load_content(version)
    new = await substrate.new_version(
        current, content, origin="restore", session=call.session.id, restored_from=version.version_id
    )
    return _describe_write(call, current, new, verdict, restored_from=version.version_id)


async def load_version(substrate: Substrate, version_id: str) -> Version:
    version = await substrate.find_version(version_id) if VERSION_ID.fullmatch(version_id) else None
    if version is None:
        raise ToolRefused(
            f"There is no version {version_id!r:.80} of the files that this agent shares.",
            remedy="List them with resources_list_versions.",
            reason="not_found",
        )
    return version


async def _prepare_gated(call: ToolCall, arguments: PromoteResource | RestoreVersion, prepared: Preparation) -> Preparation:
    """Refuse what the gate forbids, and show the outcomes to the person who decides."""
    digest = digest_call(call.definition.name, msgspec.to_builtins(arguments), call.record, prepared)
    own = call.record.find_approval(digest, call.tool_use)
    # Its own request must not block it: the gate would never open.
    request = own.request if own is not None else call.id
    is_busy = await is_shell_busy(call)
    check_gate(
        call.record,
        shell_busy=is_busy,
        request=request,
        requires=arguments.requireOutcomePass,
        tools=call.tools,
        now=call.context.clock(),
    )
    outcomes = describe_outcomes(call.record, shell_busy=is_busy, request=request)
    return replace(prepared, about=(*outcomes, *prepared.about))


async def _require_open_gate(call: ToolCall, requires: bool | None) -> dict[str, Any]:
    """Check the gate again when the write is carried out, from what is committed then; its own approval is used up."""
    is_busy, now = await is_shell_busy(call), call.context.clock()
    check_gate(call.record, shell_busy=is_busy, request=call.id, requires=requires, tools=call.tools, now=now)
    return read_verdict(call.record, shell_busy=is_busy, tools=call.tools, ignoring=call.id, now=now)


def _has_precondition(arguments: PromoteResource) -> bool:
    return arguments.expectedVersionId is not None or arguments.expectedContentHash is not None


def _check_preconditions(arguments: PromoteResource | RestoreVersion, current: SharedFile) -> None:
    newest = current.version.version_id if current.version else None
    for name, expected, found in (
        ("expectedVersionId", arguments.expectedVersionId, newest),
        ("expectedContentHash", arguments.expectedContentHash, current.digest or None),
    ):
        if expected is not None and expected != found:
            raise _precondition_failed(f"{name} is {expected!r:.80}, but {current.path} has {found or 'no version'}.")


def _precondition_failed(sentence: str) -> ToolRefused:
    remedy = "Nothing was written. Compare again, and pass what the comparison returns."
    return ToolRefused(sentence, remedy=remedy, reason="precondition_failed", retryable=False)


async def _prepare_write(substrate: Substrate, current: SharedFile, content: bytes) -> Preparation:
    if current.version is None and (obstacle := await substrate.find_obstacle(current.path)):
        raise ToolRefused(
            f"{current.path} cannot be shared, because there is the shared file {obstacle}.",
            remedy="Choose another targetPath: one name cannot be a file and a directory.",
            reason="exists",
        )
    before = None if current.version is None else await substrate.find_content(current.version)
    check_memory(current.path, before, content)
    bound = {
        "contentDigest": hash_blob(content),
        "targetPath": current.path,
        "targetVersion": current.version.version_id if current.version else "",
    }
    about = await asyncio.to_thread(lambda: tuple(_describe_change(current, before, content)))
    return Preparation(bound=bound, about=about)


async def _load_bound(substrate: Substrate, preparation: Preparation) -> SharedFile:
    """The state of the target, which must not have changed since it was looked at."""
    current = await substrate.load(str(preparation.bound["targetPath"]))
    if (current.version.version_id if current.version else "") != preparation.bound["targetVersion"]:
        raise _precondition_failed(f"The shared file {current.path} was changed after it was looked at.")
    return current


def _describe_write(
    call: ToolCall,
    current: SharedFile,
    new: NewVersion,
    verdict: dict[str, Any],
    *,
    source_path: str | None = None,
    restored_from: str | None = None,
) -> ToolResult:
    version, previous = new.version, current.version.version_id if current.version else None
    origin = {"sourcePath": source_path} if source_path is not None else {"restoredFromVersionId": restored_from}
    output: dict[str, Any] = {
        "sessionId": call.session.id,
        **origin,
        "targetPath": version.target_path,
        "bytes": version.size_bytes,
        "versionId": version.version_id,
        "previousVersionId": previous,
        "contentHash": version.content_hash,
        "outcomeEvaluation": verdict,
    }
    body = {
        "source_path": source_path or "",
        "restored_from": restored_from or "",
        "target_path": version.target_path,
        "content_digest": version.content_hash,
        "version_id": version.version_id,
        "previous_version_id": previous or "",
    }
    return ToolResult(output=output, events=(event(e.PROMOTED, body),), linked=(new.change,))


def _describe_change(current: SharedFile, before: bytes | None, content: bytes) -> Iterator[str]:
    """What a person reads: sizes, versions and the beginning of the diff."""
    path, old = f"/workspace/agent/{current.path}", current.version
    if old is None:
        yield f"This creates the shared file {path} with {len(content)} bytes."
    else:
        yield f"This replaces the shared file {path}: {old.size_bytes} bytes of {old.version_id} become {len(content)} bytes."
    yield f"Every session of this agent in this project will see it. SHA-256: {hash_blob(content)}"
    old_text, new_text = decode_text(before or b""), decode_text(content)
    if old_text is None or new_text is None:
        yield "The content is binary, so no difference is shown."
        return
    if before == content:
        yield "The content is the same as before."
    lines = list(render_unified(compare_texts(old_text, new_text), "shared", "new"))[2:]
    yield from (_shorten(escape(line)) for line in lines[:SHOWN_LINES])
    if len(lines) > SHOWN_LINES:
        yield f"... and {len(lines) - SHOWN_LINES} more lines of the difference."


def _shorten(line: str) -> str:
    """A line of the difference. What is left out of it is counted: it may be what matters."""
    left = len(line) - SHOWN_CHARACTERS
    return line if left <= 0 else f"{line[:SHOWN_CHARACTERS]} ... and {left} more characters of this line"
