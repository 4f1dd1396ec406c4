"""Tells whether this process may answer for a person: not from below an agent that Fidelio started."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from pathlib import Path

from fidelio.errors import UsageProblem

# Fidelio sets this for the agents it starts; a process below one of them must not play the person.
AGENT_MARKER = "FIDELIO_AGENT"


def this_person() -> str:
    """The name of the user at this terminal; refuses to speak for a person from below an agent that Fidelio started."""
    if agent_above():
        raise UsageProblem(
            "This process runs below an agent, and an agent does not answer for a person.",
            remedy="Answer from a terminal of your own.",
        )
    return f"person:{_user()}"


def agent_above() -> str:
    """The run of the agent that this process runs below, by its marker; empty where there is none."""
    # A child can clear its own environment; that of the agent above it stays as it was started.
    return os.environ.get(AGENT_MARKER) or next(filter(None, map(_marker, _ancestors())), "")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a user whom the system does not know by name; older Pythons raise the first, newer the second.
        return f"uid-{os.getuid()}"


def _ancestors() -> Iterator[int]:
    """The processes above this one, where the system lets us see them."""
    process = os.getppid()
    while process > 1:
        yield process
        try:
            status = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return
        process = int(status.rpartition(")")[2].split()[1])


def _marker(process: int) -> str:
    try:
        environ = Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return ""
    start = f"{AGENT_MARKER}=".encode()
    return next((entry[len(start) :].decode() for entry in environ.split(b"\0") if entry.startswith(start)), "")
