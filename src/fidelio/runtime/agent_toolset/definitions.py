"""Definitions of the tools of `agent_toolset_20260401`: names and inputs are fixed, because models and clients know them.

They are apart from the table of our own tools: six names are in both with other inputs, and no agent has both. The defaults
are those of the vendor: every tool is enabled and runs without asking, unless the agent says otherwise.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from fidelio.runtime.tools.model import ToolDefinition
from fidelio.runtime.tools.parameters import ToolParameters

# The longest that a command or a page may take, and what a command gets if nobody says how long it may take.
MAX_TIMEOUT_MS, DEFAULT_TIMEOUT_MS = 600_000, 120_000

FilePath = Annotated[str, Meta(min_length=1, max_length=4_096)]
Text = Annotated[str, Meta(max_length=8_000_000)]
Edited = Annotated[str, Meta(max_length=1_000_000)]


class BashInput(ToolParameters, frozen=True, kw_only=True):
    """A command for the shell of the session, or `restart`."""

    command: Annotated[str, Meta(min_length=1, max_length=100_000)] | None = None
    restart: bool | None = None
    # 0 is the default, as in the vendor's own runner.
    timeout_ms: Annotated[int, Meta(ge=0, le=MAX_TIMEOUT_MS)] | None = None


class ReadInput(ToolParameters, frozen=True, kw_only=True):
    """A file, and optionally [first line, last line], counted from 1; a last line of 0 or below is the end of the file."""

    file_path: FilePath
    view_range: Annotated[tuple[int, ...], Meta(min_length=2, max_length=2)] | None = None


class WriteInput(ToolParameters, frozen=True, kw_only=True):
    """A file and its whole content."""

    file_path: FilePath
    content: Text


class EditInput(ToolParameters, frozen=True, kw_only=True):
    """A text that occurs once in a file, or with `replace_all` any number of times, and its replacement."""

    file_path: FilePath
    old_string: Annotated[str, Meta(min_length=1, max_length=1_000_000)]
    new_string: Edited
    replace_all: bool | None = None


class GlobInput(ToolParameters, frozen=True, kw_only=True):
    """A pattern of paths below a directory."""

    pattern: Annotated[str, Meta(min_length=1, max_length=1_000)]
    path: FilePath | None = None


class GrepInput(ToolParameters, frozen=True, kw_only=True):
    """A regular expression, and the file or directory to search."""

    pattern: Annotated[str, Meta(min_length=1, max_length=2_000)]
    path: FilePath | None = None


class WebFetchInput(ToolParameters, frozen=True, kw_only=True):
    """The address of a page."""

    url: Annotated[str, Meta(min_length=1, max_length=4_096)]


class WebSearchInput(ToolParameters, frozen=True, kw_only=True):
    """What to search for."""

    query: Annotated[str, Meta(min_length=1, max_length=1_000)]


_READ = ("resource_read", "sandbox_execute")
_WRITE = ("resource_write", "sandbox_execute")
_OUTPUT = ("text",)

_TOOLS = (
    ToolDefinition(
        name="bash",
        title="Run a command",
        description=(
            "Run a command in a persistent bash session: directory, variables and functions stay. timeout_ms ends it (default "
            "120000, at most 600000). restart: true begins a new session. Output is cut in the middle when it is long."
        ),
        parameters=BashInput,
        group="shell",
        effects=("sandbox_execute", "memory_write"),
        output=_OUTPUT,
        destructive=True,
        interrupt="cancel",
    ),
    ToolDefinition(
        name="edit",
        title="Edit a file",
        description="Replace old_string by new_string in a file. It must occur exactly once, unless replace_all is true.",
        parameters=EditInput,
        group="files",
        effects=_WRITE,
        output=_OUTPUT,
        destructive=True,
    ),
    ToolDefinition(
        name="read",
        title="Read a file",
        description=(
            "Read a text file with line numbers, or an image. Relative paths begin at /workspace. "
            "view_range [first, last] selects lines; last 0 means to the end."
        ),
        parameters=ReadInput,
        group="files",
        effects=_READ,
        output=_OUTPUT,
        read_only=True,
    ),
    ToolDefinition(
        name="write",
        title="Write a file",
        description="Create or overwrite a file with its whole content; missing directories are made.",
        parameters=WriteInput,
        group="files",
        effects=_WRITE,
        output=_OUTPUT,
        destructive=True,
    ),
    ToolDefinition(
        name="glob",
        title="Find files by name",
        description="List the files below path (default /workspace) that match a pattern such as **/*.py, newest first.",
        parameters=GlobInput,
        group="files",
        effects=_READ,
        output=_OUTPUT,
        read_only=True,
    ),
    ToolDefinition(
        name="grep",
        title="Search in files",
        description="Search a file or directory (default /workspace) for a regular expression; gives path:line:text.",
        parameters=GrepInput,
        group="files",
        effects=_READ,
        output=_OUTPUT,
        read_only=True,
    ),
    ToolDefinition(
        name="web_fetch",
        title="Fetch a page",
        description="Fetch a page of the web as text. The network of the environment must allow its host.",
        parameters=WebFetchInput,
        # It uses the sandbox of the session for its network.
        group="sandbox",
        effects=("network", "sandbox_execute"),
        output=_OUTPUT,
        repeatable=True,
        interrupt="cancel",
    ),
    ToolDefinition(
        name="web_search",
        title="Search the web",
        description="Search the web; gives title, address and a few words of each hit.",
        parameters=WebSearchInput,
        group="recall",
        effects=("network",),
        output=_OUTPUT,
        repeatable=True,
        interrupt="cancel",
    ),
)
AGENT_DEFINITIONS = {tool.name: tool for tool in _TOOLS}
# Those that touch files and run commands. In a self-hosted environment a worker of the user carries them out.
HOSTED_TOOLS = ("bash", "edit", "read", "write", "glob", "grep")
