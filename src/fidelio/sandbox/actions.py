"""The public actions of a sandbox: names, parameters with bounds, and what each does to the machine.

Runtime and surfaces validate calls against this table and decide permissions by `effect`; the process inside of the sandbox
carries the actions out. Actions that only the host uses (bytes, digests, listings of whole trees) are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fidelio.sandbox.model import WORKSPACE

# `execute`: one program of the allow-list; `shell`: any command, or what lets one run.
Effect = Literal["read", "write", "execute", "shell"]
EntryKind = Literal["file", "directory"]

MAX_CHARS = 200_000
MAX_FOUND = 1_000
MAX_LINES = 1 << 31

Path = Annotated[str, Meta(min_length=1, max_length=4_096)]
Content = Annotated[str, Meta(max_length=8_000_000)]
Query = Annotated[str, Meta(min_length=1, max_length=2_000)]
Line = Annotated[int, Meta(ge=1, le=MAX_LINES)]
Found = Annotated[int, Meta(ge=1, le=MAX_FOUND)]
ShellText = Annotated[str, Meta(min_length=1, max_length=100_000)]
Milliseconds = Annotated[int, Meta(ge=1, le=60_000)]
WaitMilliseconds = Annotated[int, Meta(ge=0, le=45_000)]
OutputChars = Annotated[int, Meta(ge=1, le=40_000)]
CommandId = Annotated[str, Meta(min_length=1, max_length=200)]


class ActionParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of the parameters: a misspelt argument is refused and not ignored."""


class InspectParameters(ActionParameters, frozen=True):
    """Nothing."""


class ListDirParameters(ActionParameters, frozen=True, kw_only=True):
    """The directory to list."""

    path: Path = WORKSPACE
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


class ReadTextParameters(ActionParameters, frozen=True, kw_only=True):
    """A file and a window of lines: `lineCount` from `startLine`, or the last `tailLines`."""

    path: Path
    lineCount: Line | None = None
    startLine: Line | None = None
    tailLines: Line | None = None
    maxChars: Annotated[int, Meta(ge=1, le=MAX_CHARS)] = 12_000


class WriteTextParameters(ActionParameters, frozen=True, kw_only=True):
    """A file and its content, or what is appended to it."""

    path: Path
    content: Content


class ReplaceTextParameters(ActionParameters, frozen=True, kw_only=True):
    """A text that occurs once, or with `replaceAll` any number of times, and its replacement; both literal."""

    path: Path
    oldText: Annotated[str, Meta(min_length=1, max_length=1_000_000)]
    newText: Annotated[str, Meta(max_length=1_000_000)]
    replaceAll: bool = False


class MkdirParameters(ActionParameters, frozen=True, kw_only=True):
    """The directory to create, with `recursive` also those above it."""

    path: Path
    recursive: bool = True


class StatParameters(ActionParameters, frozen=True, kw_only=True):
    """The entry to describe; a link is described itself."""

    path: Path


class FindEntriesParameters(ActionParameters, frozen=True, kw_only=True):
    """A part of a name or path, in any case."""

    path: Path
    query: Query
    limit: Found = 40
    hidden: bool = False


class GlobParameters(ActionParameters, frozen=True, kw_only=True):
    """A pattern below `path`: `*` inside a directory, `**` at any depth, `{a,b}` alternatives."""

    path: Path
    pattern: Annotated[str, Meta(min_length=1, max_length=1_000)]
    kind: EntryKind | None = None
    limit: Found = 40
    hidden: bool = False


class GrepParameters(ActionParameters, frozen=True, kw_only=True):
    """What to search for in a file or below a directory. `ignoreFiles` obeys ignore files; `kind` is what `path` must be."""

    path: Path
    query: Query
    regex: bool = False
    caseSensitive: bool = True
    limit: Found = 20
    hidden: bool = False
    ignoreFiles: bool = False
    kind: EntryKind | None = None


class RunCommandParameters(ActionParameters, frozen=True, kw_only=True):
    """A program of the allow-list and its arguments; no shell reads them."""

    command: Annotated[str, Meta(min_length=1, max_length=100)]
    args: Annotated[tuple[Annotated[str, Meta(max_length=4_096)], ...], Meta(max_length=200)] = ()
    cwd: Path | None = None
    timeoutMs: Milliseconds = 15_000
    maxOutputChars: OutputChars = 12_000


class RunShellParameters(ActionParameters, frozen=True, kw_only=True):
    """A command for a shell of its own; `timeoutMs` ends it."""

    command: ShellText
    cwd: Path | None = None
    timeoutMs: Milliseconds = 15_000
    maxOutputChars: OutputChars = 12_000


class OpenShellParameters(ActionParameters, frozen=True, kw_only=True):
    """Where the persistent shell starts; `restart` replaces a live shell."""

    cwd: Path | None = None
    restart: bool = False
    pty: bool = False


class ExecShellParameters(ActionParameters, frozen=True, kw_only=True):
    """A command for the persistent shell; `timeoutMs` limits only the waiting."""

    command: ShellText
    cwd: Path | None = None
    timeoutMs: WaitMilliseconds = 15_000
    maxOutputChars: OutputChars = 12_000
    restart: bool = False


class WaitShellParameters(ActionParameters, frozen=True, kw_only=True):
    """How long to wait for which command."""

    commandId: CommandId | None = None
    timeoutMs: WaitMilliseconds = 1_000
    maxOutputChars: OutputChars = 12_000


class SandboxAction(msgspec.Struct, frozen=True):
    """An action that a caller can name. `runs_commands` says that it needs a level at which commands run."""

    name: str
    summary: str
    parameters: type[ActionParameters]
    effect: Effect

    @property
    def runs_commands(self) -> bool:
        return self.effect in ("execute", "shell") or self.name.endswith("_persistent_shell")


_TABLE = (
    SandboxAction("inspect", "List the mounts and what may be written.", InspectParameters, "read"),
    SandboxAction("list_dir", "List a directory, hidden names included.", ListDirParameters, "read"),
    SandboxAction("read_text", "Read a text file or a window of its lines.", ReadTextParameters, "read"),
    SandboxAction("write_text", "Create or replace a file in one step.", WriteTextParameters, "write"),
    SandboxAction("append_text", "Append to a file; it is created if missing.", WriteTextParameters, "write"),
    SandboxAction("replace_text", "Replace a text in a file, literally.", ReplaceTextParameters, "write"),
    SandboxAction("mkdir", "Create a directory.", MkdirParameters, "write"),
    SandboxAction("stat", "Describe an entry: kind, size, mode, times.", StatParameters, "read"),
    SandboxAction("find_entries", "Find entries by a part of their path.", FindEntriesParameters, "read"),
    SandboxAction("glob_entries", "Find entries by a pattern.", GlobParameters, "read"),
    SandboxAction("grep_text", "Search in a file or in all files of a directory.", GrepParameters, "read"),
    SandboxAction("run_command", "Run one read-only program without a shell.", RunCommandParameters, "execute"),
    SandboxAction("run_shell", "Run a command in a shell of its own.", RunShellParameters, "shell"),
    SandboxAction("inspect_persistent_shell", "Describe the persistent shell.", InspectParameters, "read"),
    SandboxAction("open_persistent_shell", "Open the persistent shell.", OpenShellParameters, "shell"),
    SandboxAction("exec_persistent_shell", "Run a command in the persistent shell.", ExecShellParameters, "shell"),
    SandboxAction("wait_persistent_shell", "Wait for the command of the persistent shell.", WaitShellParameters, "read"),
    SandboxAction("close_persistent_shell", "Close the persistent shell.", InspectParameters, "shell"),
)
ACTIONS: Mapping[str, SandboxAction] = {action.name: action for action in _TABLE}
Action = SandboxAction
