"""Command-line options of `fidelio mcp` as a table; the options of every server are also those of `fidelio up`.

Two parsers read the table: click, for help and documentation, and the small parser here, because importing click takes as
long as the rest of the start, and an agent waits for the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fidelio.errors import Command, Hint, UsageProblem
from fidelio.surfaces.mcp.dialects import DEFAULT, DIALECTS, SESSION_TOOLSETS, TOOLSETS, SandboxSession

_SESSION_OPTIONS = ("session", "environment", "agent", "mount")
_OF_SESSION = f"With --toolset {' or '.join(SESSION_TOOLSETS)}"
_HELP = Command("mcp", "--help")


class CommandOption(msgspec.Struct, frozen=True):
    """A command-line option. `name` is its field in `McpOptions`."""

    flag: str
    name: str
    help: str
    metavar: str = ""
    is_repeatable: bool = False

    @property
    def is_flag(self) -> bool:
        return not self.metavar


# Options of every server, over stdio and over HTTP.
SERVER_OPTIONS = (
    CommandOption("workflows", "workflows", "Read workflows from here instead (repeatable).", "DIR", is_repeatable=True),
    CommandOption("with-bundled", "with_bundled", "With --workflows: also the bundled workflows."),
    CommandOption("enforce", "enforce", "Refuse a wrong transition, a missing manifest and a false claim instead of warning."),
    CommandOption("person", "person", "Take answers to checkpoints from people only, never from the agent."),
    CommandOption(
        "no-adoption", "no_adoption", "Refuse tokens that do not verify instead of starting at the place they claim."
    ),
    CommandOption(
        "min-response-seconds", "min_response_seconds", "How soon a checkpoint may be answered (default: 3).", "SECONDS"
    ),
    CommandOption("server-name", "server_name", "What the server calls itself.", "NAME"),
    CommandOption("server-version", "server_version", "Which version the server says it is.", "VERSION"),
)
MCP_OPTIONS = (
    CommandOption("home", "home", "The home directory of Fidelio.", "DIR"),
    CommandOption("dialect", "dialect", f"Which set of tools to offer: {', '.join(DIALECTS)} (default: {DEFAULT}).", "NAME"),
    CommandOption("toolset", "toolset", f"What to serve: {', '.join(TOOLSETS)} (default: {TOOLSETS[0]}).", "NAME"),
    CommandOption("session", "session", f"{_OF_SESSION}: the session, by name (default: default).", "NAME"),
    CommandOption("environment", "environment", f"{_OF_SESSION}: the environment of a new session.", "NAME"),
    CommandOption("agent", "agent", f"{_OF_SESSION}: whose shared files the session has (default: default).", "NAME"),
    CommandOption(
        "mount",
        "mount",
        f"{_OF_SESSION}: show a directory at /workspace/project: as a copy (default), ro or rw.",
        "DIR[:copy|ro|rw]",
    ),
    CommandOption("worker", "worker", "Serve a worker of a conducted workflow: it cannot move sessions or answer for people."),
    *SERVER_OPTIONS,
)


class McpOptions(msgspec.Struct, frozen=True):
    """Parsed options. None stands for an option that was not passed."""

    home: str | None = None
    workflows: tuple[str, ...] = ()
    with_bundled: bool = False
    dialect: str | None = None
    toolset: str | None = None
    session: str | None = None
    environment: str | None = None
    agent: str | None = None
    mount: str | None = None
    enforce: bool = False
    person: bool = False
    worker: bool = False
    no_adoption: bool = False
    min_response_seconds: str | None = None
    server_name: str | None = None
    server_version: str | None = None

    def __post_init__(self) -> None:
        _check_choice("dialect", self.dialect, DIALECTS)
        _check_choice("toolset", self.toolset, TOOLSETS)
        passed = [f"--{name}" for name in _SESSION_OPTIONS if getattr(self, name) is not None]
        if passed and self.toolset not in SESSION_TOOLSETS:
            toolsets = " or ".join(SESSION_TOOLSETS)
            raise UsageProblem(
                f"{passed[0]} belongs to the toolset {toolsets}.", remedy=f"Add --toolset {toolsets}, or leave it out."
            )

    @property
    def tools(self) -> str:
        """The name of the set of tools to serve: a toolset, or a dialect of the workflows."""
        return self.dialect or DEFAULT if self.toolset in (None, TOOLSETS[0]) else self.toolset

    @property
    def sandbox(self) -> SandboxSession:
        passed = {name: getattr(self, name) for name in ("agent", "environment", "mount") if getattr(self, name) is not None}
        return SandboxSession(self.session or SandboxSession().name, **passed)


def _check_choice(kind: str, choice: str | None, known: Sequence[str]) -> None:
    if choice is not None and choice not in known:
        raise UsageProblem(f"{choice!r} is not a {kind}.", remedy=f"Use one of: {', '.join(known)}.")


def parse_options(arguments: Sequence[str]) -> McpOptions:
    """Parse `--name value` and `--name=value`."""
    known = {f"--{option.flag}": option for option in MCP_OPTIONS}
    values: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        option = known.get(flag)
        if option is None or (option.is_flag and equals):
            raise UsageProblem(f"The command mcp has no option {flag!r}.", remedy=Hint(_HELP, " lists them."))
        if not option.is_flag and not equals:
            if not rest:
                raise UsageProblem(f"{flag} needs a value.", remedy=Hint(_HELP, " shows which."))
            value = rest.pop(0)
        values[option.name] = _read_value(option, value, values)
    return McpOptions(**values)


def _read_value(option: CommandOption, value: str, values: dict[str, Any]) -> Any:
    if option.is_flag:
        return True
    return (*values.get(option.name, ()), value) if option.is_repeatable else value
