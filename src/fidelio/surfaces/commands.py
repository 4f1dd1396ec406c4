"""The table of commands, and how messages spell a command that a person should type.

A command in a message must work when it is copied: with the program as it is installed here, and for the home in use. Lower
layers write only `fidelio NAME`; the command line and the servers insert the real program and `--home` when they print it.
"""

from __future__ import annotations

import os
import re
import sys

from fidelio.errors import HomeProblem
from fidelio.home import find_home

PROGRAM = "fidelio"
# Command: the module of `surfaces.cli` that defines it. Only that module is imported when the command runs.
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
# Our messages write a command in backticks or after a colon. Anywhere else the same text may be a name or path of the user.
_COMMAND_MENTION = re.compile(rf"(?:(?<=`)|(?<=: )){PROGRAM} (?=(?:{'|'.join(COMMANDS)})\b)")


def add_home_option(program: str, home: str | None) -> str:
    """Append `--home` to `program` if `home` was named and is not the default home."""
    import shlex  # noqa: PLC0415  # a server without --home starts faster without it

    return program if not home or _is_default_home(home) else f"{program} --home {shlex.quote(home)}"


def substitute_program(text: str, program: str) -> str:
    """Replace `fidelio` by `program` wherever `text` mentions a command."""
    return text if program == PROGRAM else _COMMAND_MENTION.sub(lambda _: f"{program} ", text)


def find_program() -> str:
    """How a person in this shell starts Fidelio: by name if that is on the PATH, else by path."""
    import shlex  # noqa: PLC0415  # only needed for a message
    import shutil  # noqa: PLC0415  # only needed for a message

    if shutil.which(PROGRAM):
        return PROGRAM
    script = sys.argv[0]
    if os.path.basename(script) == "__main__.py":  # noqa: PTH119  # argv[0] as text
        return f"{shlex.quote(sys.executable)} -m {PROGRAM}"
    # Without a separator the shell would search the PATH, where the script is not.
    return shlex.quote(script if os.sep in script else f".{os.sep}{script}")


def _is_default_home(home: str) -> bool:
    try:
        return find_home(home) == find_home()
    except HomeProblem:
        return False
