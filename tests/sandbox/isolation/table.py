"""The table of escape attempts for the documentation: attempt, and what happens at each level.

It is rendered from what the tests demand, not from a run: `test_escapes.py` fails if a level does anything else.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.sandbox.isolation.attempts import files, kernel, processes
from tests.sandbox.isolation.attempts.harness import ATTEMPTS

# Importing these registers their attempts.
SECTIONS = {
    "Files": files.__name__,
    "Kernel, namespaces and networks": kernel.__name__,
    "Processes and limits": processes.__name__,
}
# Attempts that need the host, with the test that carries them out.
HOST_ATTEMPTS = {
    "a link left where a directory is mounted next time": "stopped",
    "a directory that is nested deeper than a path is long": "stopped",
    "a link in a directory of a sandbox that is removed": "stopped",
    "a file tool while a link is exchanged under it": "stopped",
    "a descriptor of the host process": "stopped",
    "a variable of the environment of the session for process 1": "not offered",
    "a mount of the home, of another session, or of a toolchain that contains it": "stopped",
}


class Row(NamedTuple):
    """An attempt, and what happens at the levels bubblewrap, namespaces and landlock."""

    section: str
    title: str
    bubblewrap: str
    namespaces: str
    landlock: str


def list_rows() -> list[Row]:
    rows = [
        Row(section, tried.title, "stopped", "stopped", "stopped" if tried.without_commands else "not offered")
        for section, module in SECTIONS.items()
        for tried in ATTEMPTS.values()
        if tried.run.__module__ == module
    ]
    return [*rows, *(Row("From the host's side", title, "stopped", "stopped", state) for title, state in HOST_ATTEMPTS.items())]


def render_escapes() -> str:
    """The page `docs/reference/escapes.md`."""
    rows = list_rows()
    lines = [
        "# Escape attempts",
        "",
        f"{len(rows)} attempts to leave a sandbox, each carried out by the tests as root and as another user. `stopped`: the",
        "attempt fails. `not offered`: the level runs no commands, so there is nothing to attempt it with. No attempt is",
        "`not stopped` at the levels `bubblewrap` and `namespaces`. Those from the host's side are carried out as the user who",
        "runs the tests. [Sandbox](../concepts/sandbox.md) describes the levels.",
    ]
    for section in dict.fromkeys(row.section for row in rows):
        lines += ["", f"## {section}", "", "| attempt | bubblewrap | namespaces | landlock |", "|---|---|---|---|"]
        lines += [
            f"| {row.title} | {row.bubblewrap} | {row.namespaces} | {row.landlock} |" for row in rows if row.section == section
        ]
    return "\n".join(lines) + "\n"
