"""Values of the sandbox: what it consists of, what limits it, and what a call returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

# (a) bubblewrap; (b) the same namespaces by our own helper; (c) file actions only; (d) nothing runs.
Level = Literal["bubblewrap", "namespaces", "landlock", "none"]
Network = Literal["none", "limited", "unrestricted", "host"]
Access = Literal["read_only", "read_write"]
EndReason = Literal[
    "idle_timeout",
    "pool_full",
    "stop_requested",
    "spec_changed",
    "disk_bytes",
    "disk_reserve",
    "process_ended",
    "host_ended",
]
Verdict = Literal["allowed", "refused", "failed", "capped"]
MountKind = Literal[
    "session_workspace",
    "agent_workspace_substrate",
    "learnings_memory_store",
    "session_runtime_memory",
    "vault",
    "project",
    "toolchain",
    "memory_store",
    "session_files",
    "skills",
]

WORKSPACE = "/workspace"
SUBSTRATE = "/workspace/agent"
PROJECT = "/workspace/project"
RUNTIME = "/runtime"
# The same files as RUNTIME, at the path that the tools name.
RUNTIME_LINK = "/workspace/.openboa-runtime"
LEARNINGS = "/memory/learnings"
VAULTS = "/vaults"
# The files that a program has attached to a session, and the skills of its agent.
UPLOADS = "/mnt/session/uploads"
SKILLS = "/mnt/skills"


class Mount(msgspec.Struct, frozen=True):
    """A directory inside of the sandbox. `source` is the directory of the host; no tool returns it."""

    path: str
    source: str
    access: Access
    kind: MountKind


class SandboxLimits(msgspec.Struct, frozen=True):
    """Limits of a session: processes, and bytes of memory per process, of a file, and on disk; open files per process."""

    processes: int = 512
    memory_bytes: int = 4 << 30
    file_bytes: int = 1 << 30
    disk_bytes: int = 4 << 30
    open_files: int = 1024


class SandboxSpec(msgspec.Struct, frozen=True):
    """Everything that a sandbox of a session is built from.

    `directory` is the private directory of the host below `<home>/sandboxes`; the mounts that belong to the session lie in it.
    `hosts` are the names that network `limited` may reach; `*.example.org` covers subdomains. `toolchains` are further paths
    of the host that are visible read-only at the same path. `environment` are variables of every command.
    """

    session: str
    directory: str
    mounts: tuple[Mount, ...]
    network: Network = "none"
    hosts: tuple[str, ...] = ()
    limits: SandboxLimits = SandboxLimits()
    toolchains: tuple[str, ...] = ()
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)


class LevelReport(msgspec.Struct, frozen=True):
    """The level that this machine offers, why not a better level, and what a person can do about it."""

    level: Level
    reason: str
    remedy: str = ""

    @property
    def runs_commands(self) -> bool:
        return self.level in ("bubblewrap", "namespaces")


class Ending(msgspec.Struct, frozen=True):
    """Why a sandbox ended. `incarnation` says which of the session's sandboxes; `at` is in milliseconds since 1970."""

    session: str
    incarnation: str
    reason: EndReason
    message: str
    at: int


class SandboxState(msgspec.Struct, frozen=True):
    """A live sandbox, as its owner describes it. `incarnation` is new whenever the sandbox is started anew.

    `closed_because`: why the previous sandbox of the session ended, if the host has seen it.
    """

    session: str
    incarnation: str
    level: Level
    pid: int
    is_new: bool = False
    closed_because: Ending | None = None


class ConnectionEntry(msgspec.Struct, frozen=True):
    """A connection through the proxy, when it has ended. `sent` and `received` are bytes as the sandbox sees them."""

    number: int
    at: int
    host: str
    port: int
    verdict: Verdict
    reason: str
    sent: int
    received: int


class ConnectionPage(msgspec.Struct, frozen=True):
    """Entries of the connection log of a session, oldest first.

    `log` is new with every host. `missed` entries were dropped before they were fetched, because the log is bounded.
    """

    log: str
    entries: tuple[ConnectionEntry, ...] = ()
    missed: int = 0


class ActionError(msgspec.Struct, frozen=True):
    """Why an action did not run or failed. `code` is stable."""

    code: str
    message: str
    retryable: bool = False


class ActionResult(msgspec.Struct, frozen=True):
    """The result of an action: `output` if it worked, else `error`. A non-zero exit code of a command is no error."""

    ok: bool
    output: Mapping[str, Any] = msgspec.field(default_factory=dict)
    error: ActionError | None = None
