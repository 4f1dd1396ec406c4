"""Approvals: a person's yes to a single execution of exact arguments.

An approval is bound to a digest of everything that decides what would happen. A call with another digest is another request, so
an approval that does not fit any more is never used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.clock import format_iso
from fidelio.ids import new_id
from fidelio.inbox import APPROVAL, PROVEN, NewRequest, demand_proof, open_request
from fidelio.ledger.model import NewEvent
from fidelio.runtime import events as e
from fidelio.runtime.record import ApprovalRecord, RuntimeRecord
from fidelio.runtime.tools.model import Preparation, ToolCall, ToolDefinition
from fidelio.runtime.wakes.record import WAKE_JOB
from fidelio.sandbox.model import SandboxSpec

_ANSWERED_BY = "answered_by"
LIFETIME_MS = 24 * 60 * 60 * 1000
_OPTIONS = (
    {"id": "allow", "label": "Allow it once", "description": "Runs exactly this, once."},
    {"id": "deny", "label": "Deny it", "description": "Nothing runs. A comment reaches the agent."},
)


def digest_call(tool: str, arguments: Mapping[str, Any], record: RuntimeRecord, preparation: Preparation) -> str:
    """Everything that decides what the call would do: tool, arguments, directory, variables, environment, bound content.

    `tool` is the action where a call names one that is no tool. Secret values in `arguments` are keyed digests already.
    """
    subject = {
        "tool": tool,
        "arguments": arguments,
        "cwd": preparation.cwd or record.shell.cwd,
        "variables": record.shell.variables,
        # What the live shell is made to forget before its next command.
        "removed": record.shell.removed,
        "environment": [record.environment, record.environment_version],
        "mount": [record.mount_mode, record.mount_source],
        "bound": preparation.bound,
    }
    raw = msgspec.json.encode(subject, order="deterministic")
    return hashlib.sha256(b"fidelio.approval.v1:" + raw).hexdigest()


def bind_to_proof(preparation: Preparation) -> Preparation:
    """A yes to the call must be signed with a registered key. A yes from before that was demanded does not fit."""
    return replace(preparation, bound={**preparation.bound, _ANSWERED_BY: PROVEN})


class NewApproval(msgspec.Struct, frozen=True):
    """A request to open, and the event that puts it into the record."""

    request: NewRequest
    event: NewEvent


def request_approval(
    definition: ToolDefinition,
    arguments: msgspec.Struct,
    preparation: Preparation,
    spec: SandboxSpec,
    *,
    call: ToolCall,
    digest: str,
    cwd: str,
    now: int,
) -> NewApproval:
    """Build the request for a call that waits for a person."""
    expires = now + LIFETIME_MS
    is_proven = preparation.bound.get(_ANSWERED_BY) == PROVEN
    question = "\n".join(describe_call(definition, arguments, preparation, spec, cwd))
    detail: dict[str, Any] = {
        _ANSWERED_BY: "person",
        "tool": definition.name,
        "arguments": definition.hide_secrets(arguments),
        "command": preparation.command,
        "cwd": cwd,
        "writable": [mount.path for mount in spec.mounts if mount.access == "read_write"],
        "network": spec.network,
        "digest": digest,
        **({"tool_use_id": call.id, "job": WAKE_JOB, "root": call.record.root or call.session.id} if call.wake else {}),
    }
    detail = demand_proof(detail, refusals=("deny",)) if is_proven else detail
    # A key is used once per session, and the same call may be asked again after a denial.
    request = open_request(APPROVAL, f"{digest[:32]}:{new_id('')}", question, _OPTIONS, detail, expires_at=expires)
    body = {
        "request": request.id,
        "digest": digest,
        "tool": definition.name,
        "expires": expires,
        "command": preparation.command,
        "cwd": cwd,
        **({_ANSWERED_BY: PROVEN} if is_proven else {}),
        **({"tool_use_id": call.id, "wake_id": call.wake, "is_unknown": call.origin.is_repeat} if call.wake else {}),
    }
    return NewApproval(request, NewEvent(type=e.APPROVAL_REQUESTED, body=body, actor="agent"))


def describe_call(
    definition: ToolDefinition, arguments: msgspec.Struct, preparation: Preparation, spec: SandboxSpec, cwd: str
) -> Iterable[str]:
    """What a person reads before the decision: the exact command or arguments, the directory, what it may touch.

    The texts of the agent cannot look like another line of the question, whatever characters they have.
    """
    if preparation.command:
        yield f"May the agent run this command with {definition.name}?"
        yield from _number_lines(preparation.command.split("\n"))
        yield f"Directory: {escape(cwd)}"
        yield from (f"{name}: {escape(str(value))}" for name, value in _find_changed(arguments))
    else:
        yield f"May the agent call {definition.name}?"
        shown = definition.hide_secrets(arguments)
        yield from (f"{name}: {escape(str(value))}" for name, value in shown.items() if value is not None)
    yield from map(escape, preparation.about)
    if preparation.command:
        writable = ", ".join(mount.path for mount in spec.mounts if mount.access == "read_write")
        yield f"It can write to: {writable or 'nothing'}. Network: {_describe_network(spec)}."


def _find_changed(arguments: msgspec.Struct) -> Iterable[tuple[str, Any]]:
    """What the call sets in addition to command and directory, for example that it ends the present shell (`restart`)."""
    for field in msgspec.structs.fields(arguments):
        value = getattr(arguments, field.name)
        if field.name not in ("command", "cwd") and value != field.default:
            yield field.name, value


def _number_lines(lines: list[str]) -> Iterable[str]:
    """A single line as it is. Several are numbered, because a form may show them without breaks."""
    if len(lines) == 1:
        return map(escape, lines)
    numbered = (f"{number}: {escape(line)}" for number, line in enumerate(lines, 1))
    return (f"It has {len(lines)} lines.", *numbered)


def escape(text: str) -> str:
    """A text of an agent on a single line: line ends, control and direction characters are shown as escapes."""
    return "".join(character if character.isprintable() or character == "\t" else ascii(character)[1:-1] for character in text)


def _describe_network(spec: SandboxSpec) -> str:
    return f"limited to {', '.join(spec.hosts) or 'no host'}" if spec.network == "limited" else spec.network


def describe_waiting(approval: ApprovalRecord, tool: str) -> dict[str, Any]:
    """The result of a call that waits: what for, and how it goes on."""
    how = " with a registered key, on the web page" if approval.is_proven else ""
    return {
        "status": "waiting",
        "tool": tool,
        "requestId": approval.request,
        "expiresAt": format_iso(approval.expires),
        "message": (
            f"A person must allow this call{how}: request {approval.request} is in the inbox. "
            "You cannot answer it. Repeat the same call with the same arguments: it waits up to 45 seconds for the answer and "
            "runs once it is allowed. Other arguments are a new request."
        ),
    }
