"""The table of commands, and how messages spell a command that a person should type.

A command in a message must work when it is copied: with the program as it is installed here, and for the home in use. Lower
layers use a `Command`; the command line and the servers render it with the real program and `--home` when they print it.
"""

from __future__ import annotations

import os
import shlex
import sys

from fidelio.errors import PROGRAM, HomeProblem, UsageProblem
from fidelio.home import find_home
from fidelio.trust import VARIABLE

# Command: the module of `surfaces.cli` that defines it, and its line in `fidelio --help`; a command without one is not listed.
# Only the module of the command that runs is imported. All of them take over a second.
COMMANDS = {
    "agents": ("agents", "Start, watch, resume and stop agents."),
    "anchor": ("anchors", "Sign the heads of all sessions, to be kept in another place."),
    "answer": ("answer", "Answer the requests that wait for you, or only REQUEST."),
    "chat": ("chat", "Talk to an agent of the runtime."),
    "completion": ("main", "Print the completion script for SHELL (default: your shell)."),
    "demo": ("serve", "Watch a scripted agent that stops at a question for you."),
    "doctor": ("machine", "Check this installation: what is missing, and what to do."),
    "draw": ("workflows", "Draw WORKFLOW: an SVG picture, a Mermaid flowchart, or text."),
    "environments": ("environments", "List, show, define and check environments of sandboxes."),
    "events": ("record", "Show the events of SESSION (an id or a name), in order."),
    "inbox": ("inbox", "List the requests that wait for a person, oldest first."),
    "init": ("init", "Set up a project: its home, and its MCP configuration."),
    "keys": ("machine", "Show the id of the key that seals new tokens, or rotate it."),
    "lint": ("workflows", "Check workflow files: in DIRECTORY, or on the search path."),
    "list": ("listing", "List the workflows on the search path."),
    "mcp": ("serve", "Serve workflows to an agent over standard input and output."),
    "new": ("new", "Write a small workflow NAME, to be changed into your own."),
    "open": ("serve", "Print a one-time link that signs a browser in to the page."),
    "passkeys": ("passkeys", "List, confirm and remove the keys that people answer with."),
    "redact": ("record", "Erase what events of SESSION contain, for good."),
    "report": ("audit", "Compare SESSION with its definition."),
    "run": ("run", "Run WORKFLOW with agents, activity by activity."),
    "runtime": ("runtime.group", "Define agents, send them messages, follow and answer them."),
    "sandbox": ("sandbox", "Look into the sandbox of a session, and bring changes back."),
    "schema": ("workflows", "Show the JSON Schemas of workflow files, for editors."),
    "search": ("record", "Find TEXT in events and documents."),
    "sessions": ("record", "List sessions, newest first."),
    "show": ("workflows", "Show WORKFLOW as text."),
    "tour": ("tour", "A first look: workflows, a drawing, and a recorded session."),
    "trace": ("audit", "Show every tool call of agents in SESSION, in order."),
    "trust": ("trust", "Trust a project, or list what is trusted."),
    "up": ("serve", "Serve the web page, and workflows over HTTP."),
    "vaults": ("vaults", "Keep secrets that sessions can be attached to."),
    "verify": ("record", "Prove that no event of SESSION was changed or removed."),
    "webhooks": ("webhooks", "Send each new request of the inbox to an address of yours."),
    "work": ("serve", ""),
}

# The sections of `fidelio --help`, in the order in which people need them.
SECTIONS = {
    "Begin": ("tour", "demo", "init", "new", "doctor"),
    "Workflows": ("list", "show", "draw", "lint", "schema", "run"),
    "Questions": ("inbox", "answer", "passkeys", "webhooks"),
    "Agents": ("agents", "chat", "runtime", "sandbox", "environments", "vaults"),
    "Record": ("sessions", "report", "events", "trace", "search", "verify", "anchor", "redact"),
    "Servers": ("mcp", "up", "open"),
    "Settings": ("trust", "keys", "completion"),
}


def add_home_option(program: str, home: str | None) -> str:
    """Append `--home` to `program` if `home` was named and is not the default home."""
    return program if not home or _is_default_home(home) else f"{program} --home {shlex.quote(home)}"


def find_program() -> str:
    """How a person in this shell starts Fidelio: by name if that is on the PATH, else by path."""
    candidates = (f"{directory}{os.sep}{PROGRAM}" for directory in os.get_exec_path())
    if any(os.path.isfile(path) and os.access(path, os.X_OK) for path in candidates):  # noqa: PTH113  # paths as text
        return PROGRAM
    script = sys.argv[0]
    if os.path.basename(script) == "__main__.py":  # noqa: PTH119  # argv[0] as text
        return f"{shlex.quote(sys.executable)} -m {PROGRAM}"
    # Without a separator the shell would search the PATH, where the script is not.
    return shlex.quote(script if os.sep in script else f".{os.sep}{script}")


def drop_trust_of_agents() -> None:
    """Forget FIDELIO_TRUST below an agent: what a person must agree to cannot be a variable that an agent sets."""
    from fidelio.inbox import require_person  # noqa: PLC0415  # brings the ledger, and only scripts set the variable

    try:
        require_person()
    except UsageProblem:
        del os.environ[VARIABLE]


def _is_default_home(home: str) -> bool:
    try:
        return find_home(home).path == find_home().path
    except HomeProblem:
        return False
