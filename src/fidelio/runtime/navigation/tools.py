"""How the navigation tools are carried out, and those of them that describe how the agent works: environment and setup."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fidelio.runtime.environments.versions import load_environment
from fidelio.runtime.navigation.context import describe_context
from fidelio.runtime.navigation.listing import list_children, list_sessions
from fidelio.runtime.navigation.own_files import name_files
from fidelio.runtime.navigation.reading import get_events, get_trace, list_traces
from fidelio.runtime.navigation.snapshot import get_snapshot
from fidelio.runtime.navigation.visibility import load_visible
from fidelio.runtime.setup import sections
from fidelio.runtime.setup.setup import compare_setups, load_setup
from fidelio.runtime.tools.model import Implementation, Preparation, ToolCall, ToolResult
from fidelio.runtime.tools.parameters import EmptyParameters, SessionParameters
from fidelio.sandbox.model import RUNTIME, RUNTIME_LINK, WORKSPACE

_SETUP_FILES = {"json": f"{RUNTIME_LINK}/agent-setup.json", "md": f"{RUNTIME_LINK}/agent-setup.md"}
_NO_SETUP = "Session {} has had no wake, so its setup was never recorded."


async def describe_environment(call: ToolCall, _: EmptyParameters, __: Preparation) -> ToolResult:
    record = call.record
    chosen = await load_environment(call.context, record.environment, record.environment_version)
    environment = chosen.environment
    mounts = sections.describe_mounts(record, environment)
    contract = [sections.fingerprint(mounts), sections.fingerprint(sections.describe_vaults(record))]
    output = {
        "id": chosen.label,
        "name": chosen.name,
        "version": chosen.version,
        "kind": "local",
        "description": environment.description or None,
        "fingerprint": sections.fingerprint(sections.describe_environment(environment)),
        "resourceContractFingerprint": sections.fingerprint(contract),
        "agentSetupFingerprint": record.wakes.setup or None,
        "artifactPath": f"{RUNTIME_LINK}/environment.json",
        "agentSetupArtifactPath": name_files(call, _SETUP_FILES).get("json"),
        "sandbox": {
            "network": environment.network,
            "hosts": list(environment.hosts),
            "packages": list(environment.packages),
            "limits": msgspec.to_builtins(environment.limits),
            "variables": sorted(environment.variables),
            "level": record.sandbox.level or None,
        },
        "workspaceMountDefaults": {"workspacePath": WORKSPACE, "runtimePath": RUNTIME},
        "mountedResources": sections.list_mounts(record, environment),
    }
    return ToolResult(output=output)


async def describe_setup_of(call: ToolCall, arguments: SessionParameters, _: Preparation) -> ToolResult:
    session = await load_visible(call, arguments.sessionId)
    setup, is_own = await load_setup(call.context, session.id), session.id == call.session.id
    files = name_files(call, _SETUP_FILES) if is_own else {}
    output = {
        "sessionId": session.id,
        "available": setup is not None,
        "artifactPath": files.get("json"),
        "artifactMarkdownPath": files.get("md"),
        "agentSetup": None if setup is None else {"agentId": session.record.agent, **setup.to_json()},
        "reason": None if setup is not None else _NO_SETUP.format(session.id),
    }
    return ToolResult(output=output)


async def compare_setup(call: ToolCall, arguments: SessionParameters, _: Preparation) -> ToolResult:
    target = await load_visible(call, arguments.sessionId)
    own, other = await load_setup(call.context, call.session.id), await load_setup(call.context, target.id)
    without = call.session.id if own is None else target.id if other is None else None
    compared: dict[str, Any] = {"sameSetup": False, "sameMemory": False, "changedSections": [], "differences": {}}
    if own is not None and other is not None:
        compared = compare_setups(own, other)
    output = {
        "currentSessionId": call.session.id,
        "targetSessionId": target.id,
        "available": without is None,
        **compared,
        "currentFingerprint": own.fingerprint if own is not None else None,
        "targetFingerprint": other.fingerprint if other is not None else None,
        "artifactPath": name_files(call, _SETUP_FILES).get("json"),
        "reason": None if without is None else _NO_SETUP.format(without),
    }
    return ToolResult(output=output)


IMPLEMENTATIONS: Mapping[str, Implementation] = {
    "environment_describe": Implementation(describe_environment),
    "agent_describe_setup": Implementation(describe_setup_of),
    "agent_compare_setup": Implementation(compare_setup),
    "session_list": Implementation(list_sessions),
    "session_list_children": Implementation(list_children),
    "session_get_snapshot": Implementation(get_snapshot),
    "session_describe_context": Implementation(describe_context),
    "session_get_events": Implementation(get_events),
    "session_get_trace": Implementation(get_trace),
    "session_list_traces": Implementation(list_traces),
}
