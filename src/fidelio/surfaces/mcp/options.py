"""The options of `fidelio mcp`, in one table; those that every server has are also the options of `fidelio up`.

Two parsers read it: click, for help and documentation, and the small one here, because an agent waits for this server to start
and click's import alone takes as long as the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fidelio.errors import UsageProblem
from fidelio.surfaces.mcp.dialects import DEFAULT, DIALECTS, TOOLSETS


class CommandOption(msgspec.Struct, frozen=True):
    """One option. `name` is its field in `McpOptions`."""

    flag: str
    name: str
    help: str
    metavar: str = ""
    many: bool = False

    @property
    def is_flag(self) -> bool:
        return not self.metavar


# Options of every server, over stdio and over HTTP.
SERVER_OPTIONS = (
    CommandOption("workflows", "workflows", "Read workflows from here instead (repeatable).", "DIR", many=True),
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
    CommandOption("home", "home", "Where Fidelio keeps its things.", "DIR"),
    CommandOption("dialect", "dialect", f"Which set of tools to offer: {', '.join(DIALECTS)} (default: {DEFAULT}).", "NAME"),
    CommandOption("toolset", "toolset", f"What to serve: {' or '.join(TOOLSETS)} (default: {TOOLSETS[0]}).", "NAME"),
    CommandOption("worker", "worker", "Serve a worker of a conducted workflow: it moves no session and answers for nobody."),
    *SERVER_OPTIONS,
)


class McpOptions(msgspec.Struct, frozen=True):
    """What was asked for. None stands for what was not."""

    home: str | None = None
    workflows: tuple[str, ...] = ()
    with_bundled: bool = False
    dialect: str | None = None
    toolset: str | None = None
    enforce: bool = False
    person: bool = False
    worker: bool = False
    no_adoption: bool = False
    min_response_seconds: str | None = None
    server_name: str | None = None
    server_version: str | None = None

    def __post_init__(self) -> None:
        _check("dialect", self.dialect, DIALECTS)
        _check("toolset", self.toolset, TOOLSETS)

    @property
    def tools(self) -> str:
        """The name of the table to serve: the orchestrator's, or that of a dialect of the workflows."""
        return "orchestrator" if self.toolset == "orchestrator" else self.dialect or DEFAULT


def _check(what: str, chosen: str | None, known: Sequence[str]) -> None:
    if chosen is not None and chosen not in known:
        raise UsageProblem(f"There is no {what} {chosen!r}.", remedy=f"The {what}s are: {', '.join(known)}.")


def parse_options(arguments: Sequence[str]) -> McpOptions:
    """Reads `--name value` and `--name=value`."""
    known = {f"--{option.flag}": option for option in MCP_OPTIONS}
    chosen: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        word, equals, value = rest.pop(0).partition("=")
        option = known.get(word)
        if option is None or (option.is_flag and equals):
            raise UsageProblem(f"fidelio mcp has no option {word!r}.", remedy="`fidelio mcp --help` lists them.")
        if not option.is_flag and not equals:
            if not rest:
                raise UsageProblem(f"{word} needs a value.", remedy="`fidelio mcp --help` shows which.")
            value = rest.pop(0)
        chosen[option.name] = _value(option, value, chosen)
    return McpOptions(**chosen)


def _value(option: CommandOption, value: str, chosen: dict[str, Any]) -> Any:
    if option.is_flag:
        return True
    return (*chosen.get(option.name, ()), value) if option.many else value
