"""Paths of the files that describe a session inside of its sandbox, as tools name them (`fidelio.runtime.artifacts`)."""

from __future__ import annotations

from collections.abc import Mapping

from fidelio.sandbox.model import RUNTIME_LINK

ENVIRONMENT = f"{RUNTIME_LINK}/environment.json"
SETUP = f"{RUNTIME_LINK}/agent-setup.json"
SETUP_MARKDOWN = f"{RUNTIME_LINK}/agent-setup.md"
# The files that a session has from its first wake on, or from its first call of a tool with a sandbox.
SNAPSHOT_FILES: Mapping[str, str] = {
    "sessionRuntime": f"{RUNTIME_LINK}/session-runtime.json",
    "sessionRuntimeMarkdown": f"{RUNTIME_LINK}/session-runtime.md",
    "managedTools": f"{RUNTIME_LINK}/managed-tools.json",
    "permissions": f"{RUNTIME_LINK}/permissions.json",
    "permissionsMarkdown": f"{RUNTIME_LINK}/permissions.md",
    "permissionPosture": f"{RUNTIME_LINK}/permission-posture.json",
    "permissionPostureMarkdown": f"{RUNTIME_LINK}/permission-posture.md",
    "environment": ENVIRONMENT,
    "vaults": f"{RUNTIME_LINK}/vaults.json",
    "stagedSubstrate": f"{RUNTIME_LINK}/staged-substrate.json",
    "shellState": f"{RUNTIME_LINK}/shell-state.json",
    "shellHistory": f"{RUNTIME_LINK}/shell-history.json",
    "shellHistoryMarkdown": f"{RUNTIME_LINK}/shell-history.md",
    "shellLastOutput": f"{RUNTIME_LINK}/shell-last-output.json",
    "shellLastOutputMarkdown": f"{RUNTIME_LINK}/shell-last-output.md",
}
