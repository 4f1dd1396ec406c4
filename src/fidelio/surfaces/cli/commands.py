"""The commands by name, and how a person types one.

What we tell people to type has to work as it stands: with the program that they have, and in the home that they are in.
"""

from __future__ import annotations

import os
import re
import shlex

from fidelio.errors import HomeProblem
from fidelio.home import find_home

# Command, and the module that holds it: a command costs only its own imports.
COMMANDS = {
    "agents": "agents",
    "answer": "people",
    "completion": "shell",
    "demo": "up",
    "doctor": "doctor",
    "draw": "workflows",
    "events": "record",
    "inbox": "people",
    "init": "init",
    "keys": "keys",
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
    "up": "up",
    "verify": "record",
    "work": "work",
}
_NAMED = re.compile(rf"(?<![\w./-])fidelio (?=(?:{'|'.join(COMMANDS)})\b)")


def typed(program: str, home: str | None) -> str:
    """How a person starts `program` with the home that was asked for, where the environment does not name it anyway."""
    return program if not home or _is_in_environment(home) else f"{program} --home {shlex.quote(home)}"


def as_typed(text: str, program: str) -> str:
    """Words of rooms that know the commands by name, but neither how we were started nor for which home."""
    return _NAMED.sub(lambda _: f"{program} ", text)


def _is_in_environment(home: str) -> bool:
    named = os.environ.get("FIDELIO_HOME")
    try:
        return bool(named) and find_home(named) == find_home(home)
    except HomeProblem:
        return False
