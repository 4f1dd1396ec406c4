"""Files that describe a session inside of its own sandbox, at /runtime and /workspace/.openboa-runtime, read-only there.

An agent that works with files reads them in place of calling tools. They are projections of the record: each names the part of
the record that it shows, and is written again only when that part has changed. They never hold a value of a variable, a secret
or a path of the host.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fidelio.clock import format_iso
from fidelio.ledger.unit_of_work import CommittedSession
from fidelio.runtime.files import describe_mounts
from fidelio.runtime.permissions.policy import find_policy
from fidelio.runtime.permissions.posture import describe_permissions
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.shell.history import load_output
from fidelio.runtime.shell.views import SHOWN_COMMANDS, render_command, render_output, render_state
from fidelio.runtime.tools.definitions import SANDBOX_TOOLS
from fidelio.runtime.tools.model import ToolCall
from fidelio.runtime.vaults import describe_vault, list_attached
from fidelio.sandbox.model import SandboxSpec

_log = logging.getLogger(__name__)
# Written with every session: if it is missing, the others are too.
_FIRST = "session-runtime.json"
_PAGE = 4096


class Subject(msgspec.Struct, frozen=True):
    """What the files are rendered from."""

    session: str
    record: RuntimeRecord
    spec: SandboxSpec
    tools: frozenset[str]
    # The last command with its whole output and the attached vaults, which the record does not hold.
    last_output: Mapping[str, Any] | None
    vaults: tuple[Mapping[str, Any], ...]


Render = Callable[[Subject], Mapping[str, Any]]


class RuntimeFile(msgspec.Struct, frozen=True):
    """A file: the part of the record it shows, its JSON, and its lines for people if it has a Markdown twin."""

    name: str
    part: Callable[[RuntimeRecord], object]
    render: Render
    lines: Callable[[Mapping[str, Any]], list[str]] | None = None


def _describe_session(subject: Subject) -> Mapping[str, Any]:
    record = subject.record
    return {
        "sessionId": subject.session,
        "agentId": record.agent,
        "status": record.status,
        "environment": {"name": record.environment, "version": record.environment_version, "network": subject.spec.network},
        "sandboxLevel": record.sandbox.level or None,
        "mounts": describe_mounts(subject.spec),
        "pendingRequests": sorted(record.approvals),
    }


def _explain_session(body: Mapping[str, Any]) -> list[str]:
    mounts = [f"- `{mount['mountPath']}` ({mount['access']})" for mount in body["mounts"]]
    return [
        "# Session",
        f"Session {body['sessionId']} of agent {body['agentId']}, status {body['status']}.",
        f"Environment {body['environment']['name']}, network {body['environment']['network']}.",
        "## Mounts",
        *mounts,
        "Work in `/workspace`. Shared files are in `/workspace/agent`: stage, edit, compare and promote them.",
        "Commands of `shell_run` and `shell_exec` wait for a person. Read with `read`, `glob`, `grep` and `bash`.",
    ]


def _describe_tools(subject: Subject) -> Mapping[str, Any]:
    tools = [
        {
            "name": tool.name,
            "description": tool.description,
            "ownership": tool.ownership,
            "permissionPolicy": find_policy(tool, subject.record),
            "effects": list(tool.effects),
            "readOnly": tool.read_only,
            "destructive": tool.destructive,
            "interruptBehavior": tool.interrupt,
        }
        for tool in SANDBOX_TOOLS
        if tool.name in subject.tools
    ]
    return {"count": len(tools), "tools": tools}


def _describe_policies(subject: Subject) -> Mapping[str, Any]:
    offered = [tool for tool in SANDBOX_TOOLS if tool.name in subject.tools]
    asking = [tool for tool in offered if find_policy(tool, subject.record) != "always_allow"]
    return {
        "alwaysAsk": [
            {
                "name": tool.name,
                "permissionPolicy": find_policy(tool, subject.record),
                "effects": list(tool.effects),
                "readOnly": tool.read_only,
                "destructive": tool.destructive,
            }
            for tool in asking
        ],
        "alwaysAllow": [tool.name for tool in offered if tool not in asking],
        "allowedPatterns": [
            {"pattern": allowed.pattern, "until": format_iso(allowed.expires)} for allowed in subject.record.allowed
        ],
    }


def _explain_policies(body: Mapping[str, Any]) -> list[str]:
    asking = [f"- `{tool['name']}` ({tool['permissionPolicy']})" for tool in body["alwaysAsk"]]
    return ["# Permissions", "These tools ask a person:", *asking, f"All others run: {', '.join(body['alwaysAllow'])}."]


def _describe_environment(subject: Subject) -> Mapping[str, Any]:
    spec = subject.spec
    return {
        "name": subject.record.environment,
        "version": subject.record.environment_version,
        "network": spec.network,
        "hosts": list(spec.hosts),
        "limits": msgspec.to_builtins(spec.limits),
        "variables": sorted(spec.environment),
        "mountedResources": describe_mounts(spec),
    }


def _describe_drafts(subject: Subject) -> Mapping[str, Any]:
    return {
        "entries": {
            path: {
                "sourcePath": draft.source_path,
                "sourceContentHash": draft.source_digest,
                "targetContentHash": draft.target_digest,
                "stagedAt": format_iso(draft.staged_at),
            }
            for path, draft in subject.record.drafts.items()
        }
    }


def _explain_posture(body: Mapping[str, Any]) -> list[str]:
    waiting = [
        f"- `{request['toolName']}`: request {request['requestId']}" for request in body["pendingToolConfirmationRequests"]
    ]
    step = body["nextShellStep"]
    return [
        "# Permission posture",
        "Waiting for a person:" if waiting else "Nothing waits for a person.",
        *waiting,
        *([f"Next step: `{step['tool']}`."] if step else []),
    ]


def _describe_history(subject: Subject) -> Mapping[str, Any]:
    commands = [render_command(command) for command in subject.record.shell.commands[:SHOWN_COMMANDS]]
    return {"cwd": subject.record.shell.cwd, "count": len(commands), "commands": commands}


def _explain_history(body: Mapping[str, Any]) -> list[str]:
    return ["# Shell history", *(f"- `{command['command']}`: {command['status']}" for command in body["commands"])]


def _explain_last_output(body: Mapping[str, Any]) -> list[str]:
    last = body["lastCommand"]
    if last is None:
        return ["# Last output", "No command has run."]
    return [
        "# Last output",
        f"`{last['command']}`, exit code {last['exitCode']}.",
        "```",
        last["stdout"],
        last["stderr"],
        "```",
    ]


ARTIFACTS = (
    RuntimeFile(
        _FIRST, lambda r: (r.status, r.sandbox, r.approvals.keys(), r.environment_version), _describe_session, _explain_session
    ),
    RuntimeFile("managed-tools.json", lambda r: r.policies, _describe_tools),
    RuntimeFile("permissions.json", lambda r: (r.policies, r.allowed), _describe_policies, _explain_policies),
    RuntimeFile("environment.json", lambda r: (r.environment, r.environment_version), _describe_environment),
    RuntimeFile("vaults.json", lambda r: r.vaults, lambda s: {"count": len(s.vaults), "vaults": list(s.vaults)}),
    RuntimeFile("staged-substrate.json", lambda r: r.drafts, _describe_drafts),
    RuntimeFile(
        "permission-posture.json",
        lambda r: (r.approvals, r.policies, r.allowed, r.shell.cwd, r.shell.is_open, r.shell.running),
        lambda s: describe_permissions(s.record, None, s.tools),
        _explain_posture,
    ),
    RuntimeFile("shell-state.json", lambda r: r.shell, lambda s: render_state(s.record.shell)),
    RuntimeFile("shell-history.json", lambda r: r.shell.commands, _describe_history, _explain_history),
    RuntimeFile(
        "shell-last-output.json", lambda r: r.shell.commands, lambda s: {"lastCommand": s.last_output}, _explain_last_output
    ),
)


async def write_artifacts(call: ToolCall) -> None:
    """Write the files whose part of the record this call has changed; all of them the first time.

    They can be written again at any time, so a full disk does not fail the call, which is on record already.
    """
    if not call.spec.directory:
        # The call was refused before its sandbox was known.
        return
    directory = Path(call.spec.directory) / "runtime"
    is_first = not (directory / _FIRST).exists()
    changed = [artifact for artifact in ARTIFACTS if is_first or artifact.part(call.before) != artifact.part(call.record)]
    if not changed:
        return
    subject = await _load_subject(call)
    texts = {name: text for artifact in changed for name, text in _render(artifact, subject).items()}
    try:
        # A few small files: a thread would cost more than the writing.
        _write(directory, texts)
    except OSError as error:
        _log.warning("The files that describe session %s cannot be written: %s.", call.session.id, error.strerror)


async def _load_subject(call: ToolCall) -> Subject:
    last, context = call.record.shell.last, call.context
    committed = call.session.events if isinstance(call.session, CommittedSession) else ()
    output = None if last is None else render_output(await load_output(context.ledger, call.session.id, last, committed))
    vaults = tuple(describe_vault(vault) for vault in await list_attached(context, call.record))
    return Subject(call.session.id, call.record, call.spec, call.tools, output, vaults)


def _render(artifact: RuntimeFile, subject: Subject) -> dict[str, str]:
    body = artifact.render(subject)
    texts = {artifact.name: msgspec.json.format(msgspec.json.encode(body), indent=2).decode() + "\n"}
    if artifact.lines is not None:
        texts[artifact.name.removesuffix("json") + "md"] = "\n".join(artifact.lines(body)) + "\n"
    return texts


def _write(directory: Path, texts: Mapping[str, str]) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Another process may serve the same session.
        fcntl.flock(handle, fcntl.LOCK_EX)
        for name, text in texts.items():
            _write_file(handle, name, text.encode(errors="replace"))
    finally:
        os.close(handle)


def _write_file(directory: int, name: str, content: bytes) -> None:
    """Write a file so that a reader sees either the old or the new content.

    A single page is written in place, padded with blank lines until the rest is cut off. A rename makes ext4 write the file to
    disk at once: 0.5 ms for each of the five files that every command changes. Longer contents are renamed into place.
    """
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=directory)
    try:
        size = os.fstat(file).st_size
        if max(size, len(content)) <= _PAGE:
            os.pwrite(file, content.ljust(size, b"\n"), 0)
            os.ftruncate(file, len(content))
            # The sandbox may run as another user than this process, whatever the umask is.
            os.fchmod(file, 0o644)
            return
    finally:
        os.close(file)
    _replace_file(directory, name, content)


def _replace_file(directory: int, name: str, content: bytes) -> None:
    draft = os.open(f".{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=directory)
    with os.fdopen(draft, "wb") as file:
        file.write(content)
        os.fchmod(draft, 0o644)
    os.replace(f".{name}", name, src_dir_fd=directory, dst_dir_fd=directory)
