"""The table of commands, and how a person types one.

A command that we tell people to type has to work as it stands: with the program that they have, and for the home that is
meant. Layers below know the commands by name alone; the command line and the servers add the rest where they show them.
"""

from __future__ import annotations

import os
import re
import sys

from fidelio.errors import HomeProblem
from fidelio.home import find_home

PROGRAM = "fidelio"
# Command, and the module of the command line that holds it: a command costs only its own imports.
COMMANDS = {
    "agents": "agents",
    "answer": "inbox",
    "completion": "machine",
    "demo": "serve",
    "doctor": "machine",
    "draw": "workflows",
    "events": "record",
    "inbox": "inbox",
    "init": "init",
    "keys": "machine",
    "lint": "workflows",
    "list": "workflows",
    "mcp": "serve",
    "report": "audit",
    "run": "run",
    "search": "record",
    "sessions": "record",
    "show": "workflows",
    "tour": "tour",
    "trace": "audit",
    "up": "serve",
    "verify": "record",
    "work": "serve",
}
# We name a command in backticks or after a colon. Elsewhere the same words are a name or a path that somebody has chosen.
_NAMED = re.compile(rf"(?:(?<=`)|(?<=: )){PROGRAM} (?=(?:{'|'.join(COMMANDS)})\b)")


def typed(program: str, home: str | None) -> str:
    """How a person starts `program` with the home that was asked for, where that one is not found anyway."""
    import shlex  # noqa: PLC0415  # a server that is told of no home starts without it

    return program if not home or _is_found_anyway(home) else f"{program} --home {shlex.quote(home)}"


def as_typed(text: str, program: str) -> str:
    """Words of rooms that know the commands by name, but neither how we were started nor for which home."""
    return text if program == PROGRAM else _NAMED.sub(lambda _: f"{program} ", text)


def own_program() -> str:
    """How a person at this prompt starts us: by name where that works."""
    import shlex  # noqa: PLC0415  # waits until somebody has to be told
    import shutil  # noqa: PLC0415  # the same

    if shutil.which(PROGRAM):
        return PROGRAM
    script = sys.argv[0]
    if os.path.basename(script) == "__main__.py":  # noqa: PTH119  # the word that we were started with, as text
        return f"{shlex.quote(sys.executable)} -m {PROGRAM}"
    # Without a separator a shell would look for it along its path, where it is not.
    return shlex.quote(script if os.sep in script else f".{os.sep}{script}")


def _is_found_anyway(home: str) -> bool:
    try:
        return find_home(home) == find_home()
    except HomeProblem:
        return False
