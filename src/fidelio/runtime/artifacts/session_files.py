"""The files about tools, permissions, environment, drafts and shell, which every call of a tool keeps up to date.

Each names the part of the record that it shows, and is written again only when a call has changed that part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fidelio.clock import format_iso
from fidelio.ledger.unit_of_work import CommittedSession
from fidelio.runtime.artifacts.model import RuntimeFile, SandboxFacts, Subject, render_files
from fidelio.runtime.artifacts.outcome_files import OUTCOME_FILES
from fidelio.runtime.artifacts.writing import write_files
from fidelio.runtime.environments.versions import load_environment
from fidelio.runtime.files import describe_mounts
from fidelio.runtime.navigation.context import describe_pressure, load_window
from fidelio.runtime.navigation.own_files import has_file, runtime_directory
from fidelio.runtime.permissions.policy import find_policy
from fidelio.runtime.permissions.posture import describe_permissions
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.setup import sections
from fidelio.runtime.shell.history import load_output
from fidelio.runtime.shell.views import SHOWN_COMMANDS, render_command, render_output, render_state
from fidelio.runtime.tools.definitions import RUNTIME_TOOLS
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext, ToolCall
from fidelio.runtime.vaults import describe_vault, list_visible
from fidelio.sandbox.model import SandboxSpec

# Written with every session: if it is missing, the others are too.
_FIRST = "session-runtime.json"
_POSTURE = "permission-posture.json"
_VAULTS = "vaults.json"
_LAST_OUTPUT = "shell-last-output.json"
# A file that every command changes and that is longer than a page costs 0.5 ms more.
_PREVIEW, _ARGS = 120, 8


def _describe_session(subject: Subject) -> Mapping[str, Any]:
    record = subject.record
    return {
        "sessionId": subject.session,
        "agentId": record.agent,
        "status": record.status,
        "environment": {"name": record.environment, "version": record.environment_version, "network": subject.sandbox.network},
        "sandboxLevel": record.sandbox.level or None,
        "mounts": subject.sandbox.mounts,
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
        for tool in RUNTIME_TOOLS
        if tool.name in subject.tools
    ]
    return {"count": len(tools), "tools": tools}


def _describe_policies(subject: Subject) -> Mapping[str, Any]:
    offered = [tool for tool in RUNTIME_TOOLS if tool.name in subject.tools]
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
    facts = subject.sandbox
    return {
        "name": subject.record.environment,
        "version": subject.record.environment_version,
        "network": facts.network,
        "hosts": facts.hosts,
        "limits": facts.limits,
        "variables": facts.variables,
        "mountedResources": facts.mounts,
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


def _describe_posture(subject: Subject) -> Mapping[str, Any]:
    record, window = subject.record, subject.window
    pressure = None if window is None else describe_pressure(record, window, tools=subject.tools)
    return describe_permissions(record, None, subject.tools, now=subject.now, pressure=pressure)


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
    commands = [_shorten(render_command(command)) for command in subject.record.shell.commands[:SHOWN_COMMANDS]]
    return {"cwd": subject.record.shell.cwd, "count": len(commands), "commands": commands}


def _shorten(command: dict[str, Any]) -> dict[str, Any]:
    """A command of the history whose file fits into a page; `shell_read_command` has the rest."""
    cut = {name: command[name][:_PREVIEW] for name in ("command", "stdoutPreview", "stderrPreview")}
    return {**command, **cut, "args": [arg[:_PREVIEW] for arg in command["args"][:_ARGS]]}


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
    RuntimeFile(_VAULTS, lambda r: r.vaults, lambda s: {"count": len(s.vaults), "vaults": list(s.vaults)}),
    RuntimeFile("staged-substrate.json", lambda r: r.drafts, _describe_drafts),
    RuntimeFile(
        _POSTURE,
        lambda r: (r.approvals, r.policies, r.allowed, r.shell.cwd, r.shell.is_open, r.shell.running),
        _describe_posture,
        _explain_posture,
    ),
    RuntimeFile("shell-state.json", lambda r: r.shell, lambda s: render_state(s.record.shell)),
    RuntimeFile("shell-history.json", lambda r: r.shell.commands, _describe_history, _explain_history),
    RuntimeFile(_LAST_OUTPUT, lambda r: r.shell.commands, lambda s: {"lastCommand": s.last_output}, _explain_last_output),
    *OUTCOME_FILES,
)


async def write_artifacts(call: ToolCall) -> None:
    """Write the files whose part of the record this call has changed; all of them the first time."""
    directory = runtime_directory(call.context, call.record)
    is_first = not has_file(directory, _FIRST)
    changed = ARTIFACTS if is_first else [file for file in ARTIFACTS if file.part(call.before) != file.part(call.record)]
    if changed:
        # The call may have been refused before its sandbox was known.
        facts = read_spec(call.spec) if call.spec.directory else await load_facts(call.context, call.record)
        subject = await load_subject(call.context, call.session, facts, call.tools, changed)
        # A few small files: a thread would cost more than the writing.
        write_files(directory, render_files(changed, subject), call.session.id)


def read_spec(spec: SandboxSpec) -> SandboxFacts:
    return SandboxFacts(
        spec.network, spec.hosts, msgspec.to_builtins(spec.limits), tuple(sorted(spec.environment)), describe_mounts(spec)
    )


async def load_facts(context: RuntimeContext, record: RuntimeRecord) -> SandboxFacts:
    """What is known of the sandbox of a session without building its specification, which prepares the environment."""
    environment = (await load_environment(context, record.environment, record.environment_version)).environment
    mounts = sections.list_mounts(record, environment)
    limits = msgspec.to_builtins(msgspec.structs.asdict(environment.limits))
    return SandboxFacts(environment.network, environment.hosts, limits, tuple(sorted(environment.variables)), mounts)


async def load_subject(
    context: RuntimeContext,
    session: LoadedRuntime,
    facts: SandboxFacts,
    tools: frozenset[str],
    files: Iterable[RuntimeFile],
) -> Subject:
    """What these files are rendered from; what none of them shows is not loaded."""
    names, record = {file.name for file in files}, session.record
    output = await _load_last_output(context, session) if _LAST_OUTPUT in names else None
    attached = await list_visible(context, record) if _VAULTS in names else ()
    window = await load_window(context, session) if _POSTURE in names else None
    vaults = tuple(describe_vault(vault) for vault in attached)
    return Subject(session.id, record, facts, tools, context.clock(), output, vaults, window)


async def _load_last_output(context: RuntimeContext, session: LoadedRuntime) -> Mapping[str, Any] | None:
    last, committed = session.record.shell.last, session.events if isinstance(session, CommittedSession) else ()
    return None if last is None else render_output(await load_output(context.ledger, session.id, last, committed))
