"""Parameters of the tools that are not actions of the sandbox. A wrong type, an unknown name or value is refused by name."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fidelio.sandbox.actions import ActionParameters as ToolParameters
from fidelio.sandbox.actions import ExecShellParameters as ShellExec
from fidelio.sandbox.actions import OpenShellParameters as ShellOpen
from fidelio.sandbox.actions import Path
from fidelio.sandbox.actions import RunShellParameters as ShellRun
from fidelio.sandbox.actions import WaitShellParameters as ShellWait

__all__ = [
    "CompareResource",
    "CopyResource",
    "EmptyParameters",
    "ListVersions",
    "PermissionsCheck",
    "PromoteResource",
    "ReadVersion",
    "RestoreVersion",
    "SandboxExecute",
    "SessionParameters",
    "ShellExec",
    "ShellHistory",
    "ShellOpen",
    "ShellReadCommand",
    "ShellRestart",
    "ShellRun",
    "ShellSendInput",
    "ShellSetCwd",
    "ShellSetEnv",
    "ShellUnsetEnv",
    "ShellWait",
    "ToolParameters",
]

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Limit = Annotated[int, Meta(ge=1, le=200)]


class EmptyParameters(ToolParameters, frozen=True):
    """Nothing."""


class SessionParameters(ToolParameters, frozen=True, kw_only=True):
    """A session of the same agent; None: the own."""

    sessionId: Name | None = None


class ShellHistory(SessionParameters, frozen=True, kw_only=True):
    """Which commands to list."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 5


class ShellReadCommand(SessionParameters, frozen=True, kw_only=True):
    """Which command to read again."""

    commandId: Name


class ShellSetCwd(ToolParameters, frozen=True):
    """The directory of the following commands."""

    path: Path


class ShellSetEnv(ToolParameters, frozen=True):
    """A variable of the following commands."""

    key: Annotated[str, Meta(min_length=1, max_length=200)]
    value: Annotated[str, Meta(min_length=1, max_length=32_768)]


class ShellUnsetEnv(ToolParameters, frozen=True):
    """The variable to remove."""

    key: Annotated[str, Meta(min_length=1, max_length=200)]


class ShellRestart(ToolParameters, frozen=True):
    """Where the new shell starts, and whether it gets a terminal."""

    cwd: Path | None = None
    pty: bool = False


class ShellSendInput(ToolParameters, frozen=True):
    """Input of the running command; `eof` ends its input."""

    text: Annotated[str, Meta(max_length=100_000)] = ""
    eof: bool = False


class PermissionsCheck(ToolParameters, frozen=True):
    """The call that is planned."""

    toolName: Name
    toolArgs: dict[str, Any] | None = None


class SandboxExecute(ToolParameters, frozen=True):
    """An action of the sandbox and its input."""

    name: Name
    input: dict[str, Any] = msgspec.field(default_factory=dict)


class CopyResource(ToolParameters, frozen=True):
    """The shared file to copy, and where to."""

    sourcePath: Path
    targetPath: Path | None = None
    overwrite: bool = False


class ListVersions(ToolParameters, frozen=True):
    """The shared file whose versions are listed."""

    targetPath: Path
    limit: Limit = 10


class ReadVersion(ToolParameters, frozen=True):
    """The version to read."""

    versionId: Name


class CompareResource(ToolParameters, frozen=True):
    """The draft, and the shared file it is compared with."""

    sessionPath: Path
    substratePath: Path | None = None
    maxPreviewLines: Annotated[int, Meta(ge=0, le=400)] = 12


class _Preconditions(ToolParameters, frozen=True, kw_only=True):
    requireOutcomePass: bool | None = None
    expectedVersionId: Name | None = None
    expectedContentHash: Name | None = None


class RestoreVersion(_Preconditions, frozen=True, kw_only=True):
    """The version to bring back."""

    versionId: Name


class PromoteResource(_Preconditions, frozen=True, kw_only=True):
    """The draft to share, and where to."""

    sourcePath: Path
    targetPath: Path | None = None
    overwrite: bool = False
